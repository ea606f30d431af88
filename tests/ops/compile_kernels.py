"""Compiles the kernels for an H100 or H200 as presets launch them; prints what each one spills.

A launch is caught on its way to the GPU, so shapes and blocks are those of the code itself.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).parents[1]))
import gradients
import kernels
from macow.ops.glow import kernel as glow_kernel
from macow.ops.masked_conv import kernel as scan_kernel

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
spilled: dict[str, int] = {}


def spills(cubin: bytes) -> int:
    """Bytes of a thread's stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", said)[1])


def compiled(kernel, *arguments, grid, warmup, **options):
    """In place of a launch; what it would have written stays as it is."""
    names = kernel.arg_names
    meta = {key: options.pop(key) for key in ("num_warps", "num_stages") if key in options}
    given = dict(zip(names, arguments, strict=False)) | options
    constants = {name: value for name, value in given.items() if name in kernel_constants(kernel)}
    signature, aligned = {}, {}
    for place, name in enumerate(names):
        value = given[name]
        if name in constants:
            signature[name] = "constexpr"
        elif isinstance(value, torch.Tensor):
            signature[name] = TYPES[value.dtype]
            aligned[(place,)] = [["tt.divisibility", 16]]
        elif value == 1 and name not in kernel.do_not_specialize:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32"
            if value % 16 == 0 and name not in kernel.do_not_specialize:
                aligned[(place,)] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(source, target=TARGET, options=meta)
    shape = {name: value for name, value in constants.items() if isinstance(value, int)}
    spilled[f"{kernel.__name__} {meta} {shape}"] = spills(made.asm["cubin"])


def kernel_constants(kernel):
    return {parameter.name for parameter in kernel.params if parameter.is_constexpr}


JITFunction.run = compiled
for channels, hidden, window, side, affine in [
    (9, 36, (2, 3), 16, True),
    (24, 96, (2, 3), 8, True),
    (96, 384, (2, 5), 4, False),
]:
    shape = (channels, hidden, window, (side, side))
    learnt = gradients.masked_convolution(*shape, "left", affine=affine, extras=True)
    learnt.outcome(learnt.by_kernels(torch.bfloat16), torch.float32)
    scan = kernels.Scan.of(*shape, affine=affine, extras=True).to(torch.float32)
    packed = scan_kernel.pack(scan.weights)
    scan_kernel.inverse(scan.y, packed, "left", scan.context, norm=scan.norm)
for channels, transformed, hidden, side, affine in [
    (12, 6, 512, 16, True),
    (48, 24, 256, 8, False),
]:
    learnt = gradients.coupling(channels, transformed, hidden, (side, side), affine=affine)
    learnt.outcome(learnt.by_kernels(torch.bfloat16), torch.float32)
    step = kernels.Glow.of(channels, transformed, hidden, (side, side), affine=affine)
    single = step.to(torch.float32)
    glow_kernel.inverse(single.y, glow_kernel.pack(single.weights), None)
print(json.dumps(spilled))
