"""What machine a number was measured on."""

import os
import platform
from pathlib import Path

import torch


def describe_machine(device: str = "cpu", threads: int | None = None) -> str:
    """The processor or GPU, the threads that torch uses, and torch's version, in a line.

    Args:
        device: where models run.
        threads: of torch; None: those that it would use here.
    """
    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else processor()
    used = threads or torch.get_num_threads()
    said = f"{used} thread{'s' if used > 1 else ''} of {os.cpu_count()} cores"
    return f"{where}, {said}, torch {torch.__version__}"


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
