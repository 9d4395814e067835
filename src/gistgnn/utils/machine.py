"""The machine on which a number was measured."""

import os
import platform
from pathlib import Path

import torch

from gistgnn.utils.formats import plural


def describe_machine(device: str = "cpu", threads: int | None = None) -> str:
    """Describe the processor or GPU, torch's threads (None: of this process) and torch's version in one line."""
    hardware = torch.cuda.get_device_name(device) if device.startswith("cuda") else processor()
    used = plural(threads or torch.get_num_threads(), "thread")
    return f"{hardware}, {used} of {os.cpu_count()} cores, torch {torch.__version__}"


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
