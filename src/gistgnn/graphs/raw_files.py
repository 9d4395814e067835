"""Raw files of data sets: errors for downloading and reading them, shared by all readers."""

import contextlib
import io
import os
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gistgnn.errors import InputError, reason
from gistgnn.graphs.info import DatasetInfo


@contextlib.contextmanager
def downloading(info: DatasetInfo, folder: Path, files: Sequence[str]) -> Iterator[None]:
    """Download missing raw ``files`` of a folder inside the block: connections time out, and stdout stays empty.

    Folders that are still empty afterwards are removed, if they were not there before.

    Raises:
        InputError: any error of the block; the message says which files to put where.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30.0)  # seconds; the downloaders of PyG and ogb set none
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except Exception as error:  # HTTP, archives and file systems each have their own errors
        raise InputError(
            f"{info.name}: raw files are missing in {folder} and cannot be downloaded ({reason(error)}); "
            f"put {', '.join(files)} there"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
        for place in missing:
            with contextlib.suppress(OSError):  # it is not empty: something was downloaded
                place.rmdir()


@contextlib.contextmanager
def reading(info: DatasetInfo, folder: Path) -> Iterator[None]:
    """Parse and check raw files of ``folder`` inside the block; what the parser prints is not shown.

    Raises:
        InputError: the files are damaged or hold wrong values.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except MemoryError:
        raise
    except Exception as error:  # a parser may raise anything on damaged bytes
        raise InputError(
            f"{info.name}: the raw files in {folder} cannot be read ({reason(error)}); delete them to download them "
            "again"
        ) from error


def require_files(paths: Iterable[Path]) -> None:
    """Refuse pipes and devices in the place of raw files: a reader would wait for them, or not come to an end.

    Raises:
        InputError: one of the paths is no regular file.
    """
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path.name} is no regular file")


def move_missing(source: Path, target: Path) -> None:
    """Move every file of ``source`` that ``target`` does not have to ``target``, each in one step."""

    def move(one: str, other: str) -> None:
        if not os.path.exists(other):
            os.replace(one, other)

    shutil.copytree(source, target, copy_function=move, dirs_exist_ok=True)
