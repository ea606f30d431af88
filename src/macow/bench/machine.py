"""What a measurement was made on."""

import platform
import subprocess
from pathlib import Path

import torch


def machine(device: str) -> dict[str, str]:
    """The device, the versions and, in a checkout, the commit: columns of every result."""
    return {
        "device": _cpu_name()
        if torch.device(device).type == "cpu"
        else torch.cuda.get_device_name(device),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str:
    folder = Path(__file__).parent
    try:
        git = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude", "*"]
        done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
