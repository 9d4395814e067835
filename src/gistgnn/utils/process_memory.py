"""The memory that is free, the memory that a run takes, and how the C library handles it."""

import ctypes
import sys
from pathlib import Path

import psutil
import torch


def available_bytes(device: torch.device) -> int:
    """Return how many more bytes this process can allocate on a device."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def peak_memory_bytes(device: torch.device) -> int:
    """Return the process's peak memory: allocated on the GPU if the run used one, otherwise resident on the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    if sys.platform == "linux":  # getrusage would count the parent process as well
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # other systems count in KiB


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next tensors. Up to 1 GiB more stays allocated. Other systems: do nothing.

    By default glibc returns the memory of every large tensor to the system, which clears it page by page for the next
    tensor. On the CPU this takes longer than the arithmetic of dropout or a norm.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "gnu_get_libc_version"):
        mmap_threshold, trim_threshold = -3, -1  # constants of <malloc.h>
        libc.mallopt(mmap_threshold, 32 * 2**20)  # the largest allowed value
        libc.mallopt(trim_threshold, 2**30)
