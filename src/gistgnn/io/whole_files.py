"""Files that are written completely or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from gistgnn.errors import InputError, reason
from gistgnn.io import file_locks

TEMPORARY = ".gistgnn-"
"""Begins the names of all temporary files, so that what a killed process left can be told from a user's files."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`. What is written there becomes `path` if the block ends without an error.

    Raises:
        InputError: the folder cannot be made or written, the disk is full, or `path` is a pipe or a device. An older
            file at `path` is unchanged.
    """
    temporary = handle = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(f"cannot write {path}: it is a pipe, a socket or a device; choose another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.stem}-", suffix=path.suffix)
        temporary = Path(name)
        handle = _keep_locked(handle)
        yield temporary
        with temporary.open("r+b") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def remove_leftovers(folder: Path, within: Sequence[str] = ()) -> None:
    """Remove the temporary files and locks that killed processes left in a folder.

    A file that a living process holds stays, and so do all files where the file system has no locks.

    Args:
        folder: it need not exist.
        within: patterns of more folders in it, such as "theta" or "runs/*".
    """
    if not file_locks.HAS_LOCKS:
        return
    for pattern in ("", *(f"{each}/" for each in within)):
        for path in list(folder.glob(f"{pattern}{TEMPORARY}*")):
            with contextlib.suppress(OSError):
                _remove_if_free(path)


def _remove_if_free(path: Path) -> None:
    """Remove a file unless a process has locked it."""
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        file_locks.lock(handle)
        path.unlink()
    finally:
        os.close(handle)


def _keep_locked(handle: int) -> int | None:
    """Lock a file as long as its handle is open; close it where that would not help."""
    with contextlib.suppress(OSError):
        if file_locks.HAS_LOCKS:
            file_locks.lock(handle)
            return handle
    os.close(handle)
    return None


def check_writable(directory: Path) -> None:
    """Raise InputError before the work starts if a folder cannot be written; leave no trace."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise unwritable(directory, error) from error
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


def unwritable(path: Path, error: Exception) -> InputError:
    """Return the error for a path that cannot be written."""
    why = getattr(error, "strerror", None) or reason(error)
    return InputError(f"cannot write {path}: {why}; choose a directory that can be written")


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
