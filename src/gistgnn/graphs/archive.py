"""Zip archives of a user, such as ``.npz`` and ``.pt`` files: checked before anything in them is read."""

import contextlib
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from gistgnn.errors import InputError, reason
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1  # bit of a member's flags


@contextlib.contextmanager
def open_archive(path: Path, advice: str) -> Iterator[zipfile.ZipFile]:
    """Yield a zip archive, and turn whatever is raised in the block into an error that says that the file is damaged.

    Warnings of the libraries that read it are not shown.

    Args:
        path: the archive.
        advice: what the message says after the reason, such as "write it again".

    Raises:
        InputError: it is no zip archive, or damaged; also what the block raises itself.
        OSError: the file cannot be opened.
        MemoryError: it does not fit.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with zipfile.ZipFile(path) as archive:
                yield archive
    except (InputError, FileNotFoundError, PermissionError, IsADirectoryError, MemoryError):
        raise
    except Exception as error:  # parsers may raise anything on damaged bytes
        raise InputError(f"is damaged, or {advice} ({reason(error)}); write it again") from error


def check_members(archive: zipfile.ZipFile, names: Iterable[str] | None = None, *, room: bool = True) -> None:
    """Refuse members that are not plain, that occur twice, or that take more memory than there is, from their headers.

    Args:
        archive: the open archive.
        names: of the members that are to be read; None: all of them.
        room: they are to be read as a whole, so they have to fit in memory.

    Raises:
        InputError: a member is refused; the message names it.
    """
    wanted = set(archive.namelist() if names is None else names)
    members = [member for member in archive.infolist() if member.filename in wanted]
    for member in members:
        if member.flag_bits & _ENCRYPTED:
            raise InputError(f"its member {member.filename} is encrypted; expected a file without a password")
        if member.compress_type not in _COMPRESSIONS:
            raise InputError(
                f"its member {member.filename} is compressed by another method than deflate; write it again"
            )
    if len(members) > len({member.filename for member in members}):
        raise InputError("has two members of the same name; write it again")
    if room:
        check_room(sum(member.file_size for member in members))


def check_room(needed: int, what: str = "") -> None:
    """Refuse what takes more bytes than this machine has available.

    Raises:
        InputError: it does; the message begins with ``what``.
    """
    available = available_bytes(torch.device("cpu"))
    if needed > available:
        raise InputError(
            f"{what or 'it'} takes {size(needed)} of memory, {size(available)} are available".removeprefix("it ")
        )
