"""Reads ``.npz`` and ``.pt`` files, and names the file in errors. Nothing is unpickled but plain tensors."""

import contextlib
import io
import pickle
import stat
import warnings
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gistgnn.errors import InputError, reason
from gistgnn.graphs.checks import check_room
from gistgnn.graphs.info import DatasetInfo


@contextlib.contextmanager
def reading_file(path: Path) -> Iterator[None]:
    """Turn whatever a parser raises in the block into one line that names the file. Warnings are not shown.

    Raises:
        InputError: the block raises anything; or the file is a pipe or a device, which a parser would wait for.
    """
    try:
        if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
            raise InputError("is a pipe, a socket or a device; expected a file: write the graph to a disk first")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; expected a graph in a .npz or a .pt file") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({reason(error)}); expected a readable file") from error
    except MemoryError as error:
        raise InputError(f"{path}: does not fit in memory, or is damaged ({reason(error)})") from error
    except Exception as error:  # parsers may raise anything on damaged bytes
        made = "numpy.savez" if path.suffix.lower() == ".npz" else "torch.save(Data(...), path)"
        raise InputError(f"{path}: is damaged, or not made by {made} ({reason(error)}); write it again") from error


@contextlib.contextmanager
def reading_raw(info: DatasetInfo, folder: Path) -> Iterator[None]:
    """Turn whatever a parser raises in the block into one line that names the data set. What it prints is not shown.

    Raises:
        InputError: the block raises anything.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except MemoryError:
        raise
    except Exception as error:  # parsers may raise anything on damaged bytes
        raise InputError(
            f"{info.name}: the raw files in {folder} cannot be read ({reason(error)}); delete them to download them "
            "again"
        ) from error


def read_npz(path: Path, keys: Collection[str], optional: Collection[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Read arrays by name. Call it in `reading_file`: damaged bytes raise anything.

    Args:
        path: a file as `numpy.savez` or `numpy.savez_compressed` writes it; other arrays in it are not read.
        keys: the arrays that it must have.
        optional: arrays that it may have.

    Raises:
        InputError: an array is missing, or they do not fit in memory.
    """
    with zipfile.ZipFile(path) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        if missing := [key for key in keys if key not in present]:
            found = ", ".join(sorted(present)) or "nothing"
            raise InputError(f"has no {', '.join(missing)}; expected the arrays {', '.join(keys)} (found {found})")
        members = {key: archive.getinfo(f"{key}.npy") for key in (*keys, *optional) if key in present}
        check_room(sum(member.file_size for member in members.values()))
        return {key: _array(archive, member) for key, member in members.items()}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    try:
        with archive.open(member) as file:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            if file.read(1):  # at the member's end its checksum is compared
                raise ValueError(f"it is longer than its shape {list(array.shape)}")
    except ValueError as error:
        raise InputError(
            f"{member.filename} is damaged, or not of numbers ({reason(error)}); write it again"
        ) from error
    return array


def read_pt(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """Read attributes of a PyG `Data` by name; one that is missing or None is left out. Call it in `reading_file`.

    Args:
        path: a file that `torch.save` has written.
        keys: the names of the attributes. Their values are checked later.

    Raises:
        InputError: the file is damaged, does not fit in memory, or holds something else.
    """
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    with zipfile.ZipFile(path) as archive:
        check_room(sum(member.file_size for member in archive.infolist()))
        if damaged := archive.testzip():  # torch compares no checksums
            raise InputError(f"is damaged, or was saved without checksums (its member {damaged}); write it again")
    # The containers of a Data; PyG 2.8 registers only some of them as safe.
    try:
        with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # its text advises to load the file all the same
        raise InputError(
            "holds Python objects other than a Data of plain tensors, which are never unpickled; write it with "
            "torch.save(Data(...), path)"
        ) from error
    if type(data) is not Data:
        raise InputError(f"the data is a {type(data).__name__}; expected a torch_geometric.data.Data")
    attributes = getattr(vars(data).get("_store"), "_mapping", None)
    if not isinstance(attributes, dict):
        raise InputError("the Data has no attributes; expected one that torch.save has written as a whole")
    found = {key: attributes[key] for key in keys if attributes.get(key) is not None}
    for key, value in found.items():
        if not isinstance(value, (torch.Tensor, list, tuple)):
            raise InputError(f"{key} is a {type(value).__name__}; expected a tensor")
    return found
