"""Compiles the kernels for an H100 or H200 as presets launch them; prints what each one needs.

They are asked for and compiled as before a capture, so shapes and blocks are those of the code.
"""

import json
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

sys.path.insert(0, str(Path(__file__).parents[1]))
import gradients
import kernels
from macow.ops import compiling
from macow.ops.glow import kernel as glow_kernel
from macow.ops.masked_conv import kernel as scan_kernel

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


class Hopper:
    """As much of a GPU as a compiler looks at; also the stream that kernels are asked for on."""

    device = "cuda:0"

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def spills(cubin: bytes) -> int:
    """Bytes of a thread's stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", said)[1])


hopper = Hopper()
driver.set_active(hopper)
torch.cuda.current_stream = lambda: hopper
torch.cuda.device = lambda device: nullcontext()
with compiling.compiling(hopper):
    for channels, hidden, window, side, affine in [
        (9, 36, (2, 3), 16, True),
        (24, 96, (2, 3), 8, True),
        (12, 48, (2, 5), 64, False),
        (96, 384, (2, 5), 4, False),
    ]:
        shape = (channels, hidden, window, (side, side))
        learnt = gradients.masked_convolution(*shape, "left", affine=affine, extras=True, batch=1)
        learnt.outcome(learnt.by_kernels(torch.bfloat16), torch.float32)
        scan = kernels.Scan.of(*shape, affine=affine, extras=True).to(torch.float32)
        packed = scan_kernel.pack(scan.weights)
        scan_kernel.inverse(scan.y, packed, "left", scan.context, norm=scan.norm)
    for channels, transformed, hidden, side, affine in [
        (12, 6, 512, 16, True),
        (48, 24, 256, 8, False),
    ]:
        learnt = gradients.coupling(channels, transformed, hidden, (side, side), affine=affine)
        for dtype in (torch.bfloat16, torch.float32):
            learnt.outcome(learnt.by_kernels(dtype), torch.float32)
        single = {name: leaf.float() for name, leaf in learnt.leaves.items()}
        gradients.couple_exactly(single, affine=affine)
        step = kernels.Glow.of(channels, transformed, hidden, (side, side), affine=affine)
        single = step.to(torch.float32)
        glow_kernel.inverse(single.y, glow_kernel.pack(single.weights), None)
    compiler = compiling._compilers[hopper]
print(
    json.dumps(
        {
            f"{kernel.__name__} {rest}": (
                spills(compiled.result().asm["cubin"]),
                compiled.result().metadata.shared,
            )
            for (kernel, *rest), compiled in compiler._found.items()
        }
    )
)
