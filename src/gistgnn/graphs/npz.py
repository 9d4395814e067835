"""Reads the arrays of a ``.npz`` file. Nothing is unpickled, and sizes are compared with the file before reading."""

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.archive import check_members, open_archive
from gistgnn.graphs.checks import KINDS

_SINGLE = b"\x93NUMPY"  # begins the file of one array
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path: Path, keys: Collection[str], optional: Collection[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Read arrays of numbers by name.

    Args:
        path: a file as `numpy.savez` or `numpy.savez_compressed` writes it; other arrays in it are not read.
        keys: the arrays that it must have.
        optional: arrays that it may have.

    Raises:
        InputError: an array is missing, is not made of numbers, is damaged, or does not fit in memory.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        if file.read(len(_SINGLE)) == _SINGLE:
            raise InputError("holds a single array; expected an archive made by numpy.savez")
    with open_archive(path, "not made by numpy.savez") as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        if missing := [key for key in keys if key not in present]:
            found = ", ".join(sorted(present)) or "nothing"
            raise InputError(f"has no {', '.join(missing)}; expected the arrays {', '.join(keys)} (found {found})")
        names = {name: _member(archive, name) for name in (*keys, *(key for key in optional if key in present))}
        check_members(archive, names.values())
        return {name: _read(archive.getinfo(member), archive, name) for name, member in names.items()}


def _member(archive: zipfile.ZipFile, name: str) -> str:
    if f"{name}.npy" not in archive.namelist():
        raise InputError(f"{name} is no array, but a file of that name; expected an archive made by numpy.savez")
    return f"{name}.npy"


def _read(info: zipfile.ZipInfo, archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with archive.open(info) as file:
        read_header(file, info.file_size, name)
    with archive.open(info) as file:
        array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        file.read()  # at its end the checksum is compared
    return array


def read_header(file: IO[bytes], size: int, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape of an array, whether its columns are stored one after the other, and its dtype.

    Args:
        file: a member of an archive, at its begin; afterwards it stands where the values begin.
        size: bytes of the member.
        name: of the array, for messages.

    Raises:
        InputError: it holds other things than numbers, or its shape does not fit the size of the member.
    """
    read = _HEADERS.get(np.lib.format.read_magic(file))
    if read is None:
        raise InputError(f"{name} has a format that is not of plain arrays; expected an archive made by numpy.savez")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise InputError(f"{name} is an array of Python objects, which are never unpickled; expected numbers")
    if dtype.kind not in KINDS:
        raise InputError(f"{name} has dtype {dtype}; expected a dense array of real numbers")
    expected, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or expected != held:
        raise InputError(f"{name} is damaged: its shape {list(shape)} takes {expected} bytes, {held} are there")
    return shape, fortran, dtype
