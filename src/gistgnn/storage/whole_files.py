"""Files that are written completely or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from gistgnn.errors import InputError, reason

TEMPORARY = ".gistgnn-"
"""Begins the names of all temporary files, so that what a killed process left can be told from a
user's files.
"""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which replaces `path` after the block.

    An error in the block leaves `path` as it was.
    """
    # A path that cannot be written, and a full disk, are an InputError; an older file at `path` is
    # unchanged.
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(
            f"cannot write {path}: it is a pipe, a socket or a device; choose another name"
        )
    temporary = temporary_path(path)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch(exist_ok=False)
            yield temporary
            sync(temporary)
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(
    path: Path, advice: str = "make room, or choose a directory that can be written"
) -> Iterator[Path]:
    """Yield a path, and turn an OSError in the block into an InputError.

    The message names the path and ends with the advice.
    """
    try:
        yield path
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or reason(error)}; {advice}"
        ) from error


@contextlib.contextmanager
def reading(path: Path, advice: str) -> Iterator[None]:
    """Turn whatever a missing or damaged file raises in the block into an InputError.

    The message ends with the advice.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for ever
            raise InputError(f"{path} is no regular file; {advice}")
        yield
    except InputError:
        raise
    except Exception as error:  # parsers may raise anything on damaged bytes
        why = getattr(error, "strerror", None) or reason(error)
        raise InputError(f"{path} cannot be read ({why}); {advice}") from error


def temporary_path(path: Path) -> Path:
    """A new name beside `path`, which says which process uses it."""
    return path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}")


def remove_leftovers(folder: Path, within: Sequence[str] = ()) -> None:
    """Remove the temporary files of processes that have ended.

    They are in a folder and in those `within`, such as "runs/*". This process must not have begun
    to write there: an earlier one may have had its number, as in a container that starts again.
    """
    for pattern in ("", *(f"{subfolder}/" for subfolder in within)):
        for path in list(folder.glob(f"{pattern}{TEMPORARY}*")):
            process = path.name.removeprefix(TEMPORARY).partition("-")[0]
            if not process.isdecimal():
                continue
            if int(process) == os.getpid() or not psutil.pid_exists(int(process)):
                path.unlink(missing_ok=True)


def remove_files(folder: Path, *patterns: str) -> None:
    """Remove the files of some names from a folder; links are not followed.

    The folder is removed if nothing else is in it.
    """
    if folder.is_symlink():
        return
    with contextlib.suppress(OSError):
        for pattern in (*patterns, f"{TEMPORARY}*"):
            for path in [*folder.glob(pattern)]:
                path.unlink(missing_ok=True)
        folder.rmdir()


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
