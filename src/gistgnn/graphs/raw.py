"""What all readers of raw files share: their errors, and files that are missing and have to be downloaded."""

import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gistgnn.errors import InputError, reason
from gistgnn.graphs.info import DatasetInfo

_TIMEOUT_SECONDS = 30.0


@contextlib.contextmanager
def downloading(info: DatasetInfo, folder: Path, files: Sequence[str]) -> Iterator[None]:
    """A context in which missing raw files are downloaded: no hanging connections, nothing on stdout.

    Args:
        info: the data set.
        folder: where the raw files belong.
        files: their paths below ``folder``.

    Raises:
        InputError: for whatever goes wrong inside; it says which files to put where.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)  # the downloaders of PyG and ogb set none
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except Exception as error:  # HTTP, archives and file systems each have errors of their own
        raise InputError(
            f"{info.name}: raw files are missing in {folder} and cannot be downloaded ({reason(error)}); "
            f"put {', '.join(files)} there"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def reading(info: DatasetInfo, folder: Path) -> Iterator[None]:
    """A context in which raw files are parsed and checked, with nothing on stdout.

    Args:
        info: the data set.
        folder: where its files are.

    Raises:
        InputError: the files are damaged, whatever the parser stumbled over, or hold wrong values.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except MemoryError:
        raise
    except Exception as error:  # damaged bytes make the parsers raise anything
        raise InputError(
            f"{info.name}: the raw files in {folder} cannot be read ({reason(error)}); delete them to get them anew"
        ) from error


def move_missing(source: Path, target: Path) -> None:
    """Move the files of ``source`` that ``target`` lacks to it, folder by folder, each in one step."""

    def move(one: str, other: str) -> None:
        if not os.path.exists(other):
            os.replace(one, other)

    shutil.copytree(source, target, copy_function=move, dirs_exist_ok=True)
