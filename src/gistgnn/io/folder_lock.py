"""A folder that one process writes: another one is refused, until the first has ended, however it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import util
from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.io import file_locks
from gistgnn.io.whole_files import unwritable

log = logging.getLogger(__name__)

LOCK = ".gistgnn{}.lock"
_PATIENCE = 0.5  # seconds for a process that has just locked to write who it is


@dataclass
class _Held:
    handle: int
    count: int


_held: dict[Path, _Held] = {}  # the locks of this process, by file


class FolderInUseError(InputError):
    """Another process writes a folder."""


class FolderLock:
    """A lock on a folder, which the system frees when this process ends.

    The lock is on a file that holds this process's number, its host and the time. The file is removed when the lock is
    freed. A killed process leaves the file, but no lock. A process may lock a folder several times.

    Args:
        folder: made if it is not there.
        beside: the file lies beside the folder, as `.gistgnn-NAME.lock`, because the folder itself is replaced;
            otherwise it is `.gistgnn.lock` in the folder.
        advice: what the user of another process should do, after "wait for it, or".

    Raises:
        FolderInUseError: another process holds the lock.
        InputError: the folder cannot be written.
    """

    _free = True  # until it is locked

    def __init__(self, folder: Path, *, beside: bool = False, advice: str = "choose another folder") -> None:
        self._path = Path(
            os.path.abspath(folder.with_name(LOCK.format(f"-{folder.name}")) if beside else folder / LOCK.format(""))
        )
        self._made: list[Path] = []
        if held := _held.get(self._path):
            held.count += 1
            self._free = False
            return
        where = self._path.parent
        self._made = [path for path in (where, *where.parents) if not path.exists()]
        try:
            where.mkdir(parents=True, exist_ok=True)
            _held[self._path] = _Held(self._lock(folder, advice), 1)
            self._free = False
            _free_at_the_end()
        except OSError as error:
            self._remove_made()
            raise unwritable(folder, error) from error

    def free(self) -> None:
        """Free the lock; folders that were made for it and are still empty are removed."""
        if self._free or self._path not in _held:
            return
        self._free, held = True, _held[self._path]
        held.count -= 1
        if held.count:
            return
        del _held[self._path]
        with contextlib.suppress(OSError):
            self._path.unlink()  # before another process can lock it
        os.close(held.handle)
        self._remove_made()

    def __del__(self) -> None:
        self.free()

    def _remove_made(self) -> None:
        for path in self._made:
            with contextlib.suppress(OSError):
                path.rmdir()

    def _lock(self, folder: Path, advice: str) -> int:
        """Return the handle of the locked file."""
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
            try:
                file_locks.lock(handle)
            except BlockingIOError:
                os.close(handle)
                raise FolderInUseError(
                    f"{folder} is being written by {_holder(self._path)}: wait for it, or {advice}"
                ) from None
            except OSError as error:
                if error.errno not in file_locks.NO_LOCKS:
                    os.close(handle)
                    raise
                log.warning("the disk of %s has no locks: make sure that no other run writes there", folder)
            if self._is(handle):
                break
            os.close(handle)  # its holder has removed it meanwhile
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.ftruncate(handle, 0)
        os.pwrite(
            handle, json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since}).encode(), 0
        )
        return handle

    def _is(self, handle: int) -> bool:
        """Whether a handle is that of the file that other processes find."""
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return False


_ends: set[int] = set()  # processes in which `_free_all` is registered: this one, or the one that has forked it


def _free_at_the_end() -> None:
    """Free what is still locked when the process ends, also in those of multiprocessing, which ignore atexit."""
    if os.getpid() not in _ends:
        _ends.add(os.getpid())
        util.Finalize(None, _free_all, exitpriority=0)


def _free_all() -> None:
    for path in _held:
        with contextlib.suppress(OSError):
            path.unlink()
    _forget()


def _forget() -> None:
    """In a forked process: the locks are its parent's."""
    for held in _held.values():
        os.close(held.handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def locked(folder: Path, *, beside: bool = False, advice: str = "choose another folder") -> Iterator[Path]:
    """Lock a folder within the block, and yield it; see `FolderLock`."""
    lock = FolderLock(folder, beside=beside, advice=advice)
    try:
        yield folder
    finally:
        lock.free()


def _holder(path: Path) -> str:
    """Return who holds a lock, in words."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            return f"process {int(said['process'])} on host {said['host']!s:.80} since {said['since']!s:.40}"
        except (OSError, ValueError, KeyError, TypeError):
            if time.monotonic() > until:
                return "another process"
        time.sleep(0.02)
