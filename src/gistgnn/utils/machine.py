"""The machine on which a number was measured."""

import os
import platform
from pathlib import Path

import torch

from gistgnn.errors import InputError, reason
from gistgnn.utils.checks import check_kind, shown
from gistgnn.utils.formats import plural


def describe_machine(device: str = "cpu", threads: int | None = None) -> str:
    """Describe the processor or GPU, torch's threads (None: of this process) and torch's version in one line."""
    hardware = torch.cuda.get_device_name(device) if device.startswith("cuda") else processor()
    used = plural(threads or torch.get_num_threads(), "thread")
    return f"{hardware}, {used} of {os.cpu_count()} cores, torch {torch.__version__}"


def usable_device(name: str | torch.device) -> torch.device:
    """Return a device; "cuda" alone is the GPU that torch uses now, by its number: threads begin with GPU 0.

    Raises:
        InputError: torch knows no such device, or finds no such GPU.
    """
    check_kind("device", name, (str, torch.device), "cpu, cuda or cuda:N")
    try:
        device = torch.device(name)
        torch.empty(0, device=device if device.type != "cuda" else "cpu")  # refuses what this torch has no code for
    except Exception as error:  # torch raises many kinds
        raise InputError(f"device is {shown(name)}, expected cpu, cuda or cuda:N ({reason(error)})") from error
    if device.type == "meta":
        raise InputError("device is meta, where tensors have no values; expected cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = plural(torch.cuda.device_count(), "GPU")
        raise InputError(f"device is '{device}', but torch finds {found} here: use device='cpu'")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
