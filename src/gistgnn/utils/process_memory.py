"""How much memory a run takes, and how it is handled."""

import ctypes
import sys
from pathlib import Path

import torch


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory this process has held: on the GPU where the run was there, else resident on the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    if sys.platform == "linux":  # getrusage counts the process that started this one as well
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # other systems count in KiB


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next tensors, where it is glibc; up to 1 GiB more stays held.

    By default it hands every large tensor's memory back to the system, which then clears it page by page for the next
    one: on the CPU that takes longer than the arithmetic of dropout or a norm.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "gnu_get_libc_version"):
        mmap_threshold, trim_threshold = -3, -1  # of <malloc.h>
        libc.mallopt(mmap_threshold, 32 * 2**20)  # the largest that it takes
        libc.mallopt(trim_threshold, 2**30)
