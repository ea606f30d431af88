"""What all tests share."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are defined

torch.set_num_threads(1)  # the same bits in a test, in its children and beside other tests


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
