"""Measures how fast a file is read from its disk, past the system's page cache."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gistgnn.errors import InputError, reason

_PIECE = 2**22  # bytes of one request
_THREADS = 4  # as many requests are under way at once
_MOST = 2**28  # bytes that are read
_SECONDS = 1.5  # after which no more is read
_ALIGNED = 4096  # O_DIRECT reads whole blocks of the disk


def reading_rate(path: Path) -> float:
    """Return the bytes that are read from a file in a second, in large pieces.

    Where the system cannot read past its page cache, the file's pages are dropped from it first, if that is possible.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        handle, direct = _open(path)
        try:
            return _measured(handle, os.fstat(handle).st_size, direct)
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or reason(error)})") from error


def _open(path: Path) -> tuple[int, bool]:
    """Open a file, past the page cache where that works; return whether it does."""
    binary = getattr(os, "O_BINARY", 0)
    if hasattr(os, "O_DIRECT") and hasattr(os, "preadv"):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:  # such as a file system in memory
            return os.open(path, os.O_RDONLY), False
        try:
            with mmap.mmap(-1, _ALIGNED) as block:
                os.preadv(handle, [block], 0)
            return handle, True
        except OSError:
            os.close(handle)
    return os.open(path, os.O_RDONLY | binary), False


def _measured(handle: int, size: int, direct: bool) -> float:
    places = list(range(0, max(min(size, _MOST) - _PIECE, 0) + 1, _PIECE))
    if not direct and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, min(size, _MOST), os.POSIX_FADV_DONTNEED)
    begun = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as threads:
        parts = [places[first::_THREADS] for first in range(_THREADS)]
        read = sum(threads.map(lambda part: _read(handle, part, begun + _SECONDS), parts))
    return read / max(time.perf_counter() - begun, 1e-6)


def _read(handle: int, places: Sequence[int], until: float) -> int:
    """Read the pieces at some places until a time; return how many bytes they have. One piece is read at least."""
    read = 0
    with mmap.mmap(-1, _PIECE) as piece:
        for place in places:
            if hasattr(os, "preadv"):
                read += os.preadv(handle, [piece], place)
            else:  # Windows: one thread after another would be right, and is what the lock of the file does
                os.lseek(handle, place, os.SEEK_SET)
                read += len(os.read(handle, _PIECE))
            if time.perf_counter() > until:
                break
    return read
