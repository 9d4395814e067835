"""The memory that is free, the memory that a run takes, and how the C library handles it."""

import ctypes
import resource
import sys
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gistgnn.utils.formats import size
from gistgnn.utils.limits import smallest_limit

_limit: int | None = None


def limit_memory(most: int | None) -> None:
    """Let `available_bytes` count what is left of ``most`` bytes, and keep less freed memory.

    With None there is no limit.
    """
    global _limit
    _limit = most
    if most is not None:
        keep_freed_memory()


def held_bytes(process: int | None = None) -> int:
    """Return the bytes of memory that a process holds, without the pages of mapped files.

    ``process`` defaults to this one.
    """
    if sys.platform == "linux":
        return _status_bytes("RssAnon", "RssShmem", process=process)
    return int(psutil.Process(process).memory_info().rss)


def available_bytes(device: torch.device) -> int:
    """Return how many more bytes this process may allocate on a device.

    On the host it is what is free, but no more than what is left of the limits: that of
    `limit_memory`, those of a container or a batch system, and ulimit.
    """
    if device.type != "cuda":
        return_freed_memory()
        available = int(psutil.virtual_memory().available)
        if (outside := smallest_limit()) is not None:
            available = min(available, outside.left)
        return available if _limit is None else max(min(available, _limit - held_bytes()), 0)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def limit_in_force() -> int | None:
    """Return the limit of memory, in bytes, if a container or ulimit sets one that matters.

    It is None where the machine has less free memory than the limit leaves.
    """
    outside = smallest_limit()
    return outside.limit if outside and outside.left < psutil.virtual_memory().available else None


def of_the_limit() -> str:
    """Return the words that follow a number of available bytes in a message.

    They name the limit of which these bytes are left, and are empty where there is none.
    """
    limit = limit_in_force()
    return f" of the limit of {size(limit)} that is set for this process" if limit else ""


def peak_memory_bytes(device: torch.device) -> int:
    """Return the process's peak memory.

    It is what was allocated on the GPU if the run used one, otherwise what was resident on the
    host.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "linux":  # getrusage would count the parent process as well
        return _status_bytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # other systems count in KiB


def resident_bytes(device: torch.device) -> int:
    """Return what the process has now of the memory that `peak_memory_bytes` counts."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


def _status_bytes(*names: str, process: int | None = None) -> int:
    try:
        status = Path(f"/proc/{process or 'self'}/status").read_text(encoding="ascii")
        return sum(int(status.split(f"{name}:")[1].split()[0]) * 1024 for name in names)
    except (OSError, IndexError):  # it has ended
        return 0


class PeakBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operations make within the block.

    ``peak`` is the most at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._made: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        of_arguments = _storage_bytes((args, kwargs))
        out = func(*args, **(kwargs or {}))
        for storage, count in _storage_bytes(out).items():
            if storage not in of_arguments:
                self._made[storage] = count
        self._made = {ref: count for ref, count in self._made.items() if not ref.expired()}
        self.peak = max(self.peak, sum(self._made.values()))
        return out


def _storage_bytes(values: Any) -> dict[StorageWeakRef, int]:
    """Return the size of the memory of every dense tensor among some values."""
    leaves = tree_leaves(values)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {StorageWeakRef(storage): storage.nbytes() for storage in storages}


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next tensors. Other systems: do nothing."""
    # Clearing pages takes longer than dropout or a norm. Under a limit less is kept: gaps between
    # pieces stay.
    if libc := _glibc():
        # These are constants of <malloc.h>.
        mmap_threshold = -3
        trim_threshold = -1
        outside = smallest_limit()
        limit = min(_limit or 2**63, outside.limit if outside else 2**63)
        # The first threshold is as large as glibc allows.
        libc.mallopt(mmap_threshold, min(32 * 2**20, limit // 256))
        libc.mallopt(trim_threshold, min(2**30, limit // 8))


def return_freed_memory() -> None:
    """Return freed memory to the system.

    Does nothing where this process has no limit, or the C library is not glibc.
    """
    if (_limit is not None or smallest_limit() is not None) and (libc := _glibc()):
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "gnu_get_libc_version"):
        return libc
    return None
