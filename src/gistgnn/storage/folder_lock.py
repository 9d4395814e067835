"""A folder that one process writes.

Another process is refused until the first has ended, however it ends.
"""

import contextlib
import errno
import inspect
import logging
import os
import socket
import weakref
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gistgnn.errors import InputError
from gistgnn.storage.whole_files import writing

log = logging.getLogger(__name__)

# What a file system without locks answers: some NFS, FUSE and object stores.
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
# Newer versions of filelock would make a file in place of a lock, which a killed process leaves
# behind for ever.
_SETTINGS: Any = (
    {"fallback_to_soft": False}
    if "fallback_to_soft" in inspect.signature(FileLock).parameters
    else {}
)


class FolderInUseError(InputError):
    """Another process writes a folder."""


class FolderLock:
    """A lock on a folder, which the system frees when this process ends.

    The lock is a file that names its holder. A process may lock a folder several times. `free()`,
    or the end of a `with` block, frees it, and removes folders that were made for it and are still
    empty.

    Args:
        folder: is made if it is missing.
        beside: the folder is replaced, so the lock is `.gistgnn-NAME.lock` beside it. Otherwise it
            is `.gistgnn.lock` in the folder.
        advice: ends the message if another process holds the lock.

    Raises:
        FolderInUseError: another process holds the lock.
        InputError: the lock cannot be written.
    """

    def __init__(
        self, folder: Path, *, beside: bool = False, advice: str = "choose another folder"
    ) -> None:
        name = f".gistgnn-{folder.name}.lock" if beside else ".gistgnn.lock"
        path = (folder.parent if beside else folder).absolute() / name
        made = [parent for parent in path.parents if not parent.exists()]
        lock = FileLock(path, is_singleton=True, thread_local=False, **_SETTINGS)
        with writing(folder):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with _log_missing_locks(folder):
                    lock.acquire(blocking=False)
                since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
                path.write_text(
                    f"process {os.getpid()} on host {socket.gethostname()} since {since}",
                    encoding="utf-8",
                )
            except Timeout:
                holder = ""
                with contextlib.suppress(OSError):
                    holder = path.read_text(encoding="utf-8", errors="replace")[:200]
                message = (
                    f"{folder} is being written by {holder or 'another process'}: wait for it, "
                    f"or {advice}"
                )
                raise FolderInUseError(message) from None
            except OSError:
                _remove(made)
                raise
        self.free = weakref.finalize(self, _free, lock, path, made, os.getpid())

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


@contextlib.contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock of a file, and hold it in the block."""
    lock = FileLock(path, **_SETTINGS)
    with _log_missing_locks(path.parent):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _log_missing_locks(folder: Path) -> Iterator[None]:
    """Log a note instead of an error where the file system of a folder has no locks."""
    try:
        yield
    except (OSError, NotImplementedError) as error:  # filelock raises the latter
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        log.warning(
            "%s: its file system has no locks: start no second run that writes to this folder",
            folder,
        )


def _free(lock: FileLock, path: Path, made: Sequence[Path], holder: int) -> None:
    if os.getpid() != holder:  # a fork of the process that holds it
        return
    if lock.lock_counter <= 1:  # 0: the file system has no locks
        with contextlib.suppress(OSError):
            path.unlink()  # before another process can lock it
    lock.release()
    if not lock.is_locked:
        _remove(made)


def _remove(made: Sequence[Path]) -> None:
    for path in made:
        with contextlib.suppress(OSError):
            path.rmdir()
