"""The memory that is free, the memory that a run takes, and how the C library handles it."""

import ctypes
import mmap
import sys
from functools import cache
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
    """Make glibc keep freed memory for the next tensors, in large pages. Other systems: do nothing.

    By default glibc returns the memory of every large tensor to the system, which clears it page by page for the next
    tensor. On the CPU this takes longer than the arithmetic of dropout or a norm. Up to 1 GiB more stays allocated.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "gnu_get_libc_version"):
        mmap_threshold, trim_threshold = -3, -1  # constants of <malloc.h>
        libc.mallopt(mmap_threshold, 32 * 2**20)  # the largest allowed value
        libc.mallopt(trim_threshold, 2**30)
        _ask_for_large_pages()


@cache
def _ask_for_large_pages() -> None:
    """Extend the heap, and ask the kernel for pages of 2 MiB there; what is not used of it takes no memory.

    Tensors that are larger than the caches are then read and written faster. Where the kernel refuses, nothing changes.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    top_pad, default, large_pages = -2, 2**17, 14  # constants of <malloc.h> and <sys/mman.h>
    begin = libc.sbrk(0)
    blocks: list[int] = []
    libc.mallopt(top_pad, 2**29)
    while libc.sbrk(0) == begin and len(blocks) < 64:  # until what is free is used up
        blocks.append(libc.malloc(2**24))
    libc.mallopt(top_pad, default)
    for block in blocks:
        libc.free(block)
    begin = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    libc.madvise(begin, libc.sbrk(0) - begin, large_pages)
