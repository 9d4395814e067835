"""Files that are written completely or not at all."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from gistgnn.errors import InputError, reason

TEMPORARY = ".gistgnn-"
"""Begins the names of all temporary files, so that what a killed process left can be told from a user's files."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which becomes `path` if the block ends without an error."""
    # A path that cannot be written, and a full disk, are an InputError; an older file at `path` is unchanged.
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"cannot write {path}: it is a pipe, a socket or a device; choose another name")
    temporary = temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        yield temporary
        sync(temporary)
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def temporary_path(path: Path) -> Path:
    """A new name beside `path`, which says which process uses it."""
    return path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}")


def remove_leftovers(folder: Path, within: Sequence[str] = ()) -> None:
    """Remove the temporary files of processes that have ended, from a folder and those `within`, such as "runs/*"."""
    for pattern in ("", *(f"{each}/" for each in within)):
        for path in list(folder.glob(f"{pattern}{TEMPORARY}*")):
            process = path.name.removeprefix(TEMPORARY).partition("-")[0]
            if process.isdecimal() and (int(process) == os.getpid() or not psutil.pid_exists(int(process))):
                path.unlink(missing_ok=True)


def remove_files(folder: Path, *patterns: str) -> None:
    """Remove the files of some names from a folder, and the folder if nothing else is in it; links are not followed."""
    if folder.is_symlink():
        return
    with contextlib.suppress(OSError):
        for pattern in (*patterns, f"{TEMPORARY}*"):
            for path in [*folder.glob(pattern)]:
                path.unlink(missing_ok=True)
        folder.rmdir()


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folder
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
    return InputError(f"cannot write {path}: {why}; make room, or choose a directory that can be written")
