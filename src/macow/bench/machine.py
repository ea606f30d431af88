"""What a measurement was made on."""

import platform
from pathlib import Path

import torch

from macow._version import commit


def machine(device: str) -> dict[str, str]:
    """The device, the versions and, in a checkout, the commit: columns of every result."""
    return {
        "device": _cpu_name()
        if torch.device(device).type == "cpu"
        else torch.cuda.get_device_name(device),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
