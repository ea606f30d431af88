"""Every kernel compiles for a GPU: the interpreter takes what the compiler would not.

No GPU is needed for that, but a process in which kernels are not interpreted.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

SPILLED = 512
"""Bytes of registers that a thread may keep in memory: more is a kernel that crawls."""


@pytest.mark.skipif(torch.cuda.is_available(), reason="test_gpu.py runs them there")
def test_every_kernel_compiles():
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(Path(__file__).with_name("compile_kernels.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    spilled = json.loads(done.stdout)
    assert len(spilled) > 20
    assert {name: size for name, size in spilled.items() if size > SPILLED} == {}
