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
ON_CHIP = 227 << 10
"""Bytes that a program may share there."""


@pytest.mark.skipif(torch.cuda.is_available(), reason="test_gpu.py runs them there")
def test_every_kernel_compiles():
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(Path(__file__).with_name("compile_kernels.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    needs = json.loads(done.stdout)
    assert len(needs) > 20
    assert {name: spilt for name, (spilt, _) in needs.items() if spilt > SPILLED} == {}
    assert {name: held for name, (_, held) in needs.items() if held > ON_CHIP} == {}
