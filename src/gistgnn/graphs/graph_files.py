"""A user's own graph in a file. Nothing that is read is unpickled."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.graphs.checks import check_nodes
from gistgnn.graphs.graph import Graph
from gistgnn.io.whole_files import replacing

SUFFIXES = (".npz", ".pt")
T = TypeVar("T")
_KEYS = ("edge_index", "x", "y", "train", "val", "test")


def load_file(path: str | Path) -> Graph:
    """Read a graph from a file; its name is the file's, without the suffix.

    Args:
        path: a ``.npz`` with the arrays ``edge_index`` [2, E], ``x`` [N, F], ``y`` [N] or [N, K], ``train``, ``val``
            and ``test`` (masks or node numbers) and, if wished, ``num_classes``; or a ``.pt`` with a
            `torch_geometric.data.Data` saved by `torch.save`, read with ``weights_only=True``. `Graph.build` and
            `Graph.from_pyg` say what is expected of the values.

    Raises:
        InputError: the file is missing, damaged, of another kind, or holds wrong values; the message names the file.
    """
    return _read(Path(path), _npz_graph, _pt_graph)


def load_nodes(path: str | Path) -> tuple[Tensor, Tensor]:
    """Read the features and edges alone, from a file that need hold no labels and no splits.

    Args:
        path: a file as `load_file` takes it, of which only ``x`` and ``edge_index`` are read.

    Returns:
        ``x`` [N, F] and ``edge_index`` [2, E], checked as `Graph.build` checks them.

    Raises:
        InputError: as `load_file`.
    """
    return _read(Path(path), _npz_nodes, _pt_nodes)


def _read(path: Path, npz: Callable[[Path], T], pt: Callable[[Path], T]) -> T:
    """Read a file by its suffix, and name it in every error."""
    read = {".npz": npz, ".pt": pt}.get(path.suffix.lower())
    if read is None:
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected a graph in a .npz or a .pt file")
    try:
        return read(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; expected a graph in a .npz or a .pt file") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({reason(error)}); expected a readable file") from error
    except MemoryError as error:
        raise InputError(f"{path}: does not fit in memory, or is damaged ({reason(error)})") from error


def _npz_graph(path: Path) -> Graph:
    arrays = _read_arrays(path, _KEYS)
    num_classes = _read_num_classes(arrays.pop("num_classes", None))
    return Graph.build(**arrays, num_classes=num_classes, name=path.stem)


def _npz_nodes(path: Path) -> tuple[Tensor, Tensor]:
    arrays = _read_arrays(path, ("edge_index", "x"))
    return check_nodes(arrays["x"], arrays["edge_index"])


def _pt_graph(path: Path) -> Graph:
    return Graph.from_pyg(_read_pt(path), name=path.stem)


def _pt_nodes(path: Path) -> tuple[Tensor, Tensor]:
    data = _read_pt(path)
    return check_nodes(data.x, data.edge_index)


def _read_arrays(path: Path, wanted: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """The wanted arrays of an archive, and ``num_classes`` where it is there."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise InputError("holds a single array; expected an archive made by numpy.savez")
        with loaded as archive:
            if missing := [key for key in wanted if key not in archive.files]:
                found = ", ".join(sorted(archive.files)) or "nothing"
                expected = ", ".join(wanted)
                raise InputError(f"has no {', '.join(missing)}; expected the arrays {expected} (found {found})")
            return {key: _member(archive, key) for key in archive.files if key in (*wanted, "num_classes")}
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise InputError(f"is damaged, or not made by numpy.savez ({reason(error)}); write it again") from error


def _member(archive: Any, key: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise InputError(f"{key} is an array of Python objects, which are never unpickled; expected numbers") from error
    return array


def _read_num_classes(array: npt.NDArray[Any] | None) -> int | None:
    if array is None:
        return None
    if array.size != 1 or array.dtype.kind not in "iu":
        raise InputError(f"num_classes has shape {list(array.shape)} and dtype {array.dtype}; expected one integer")
    return int(array.item())


def _read_pt(path: Path) -> Any:
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        # The containers that make up a Data; PyG 2.8 registers only some of them as safe.
        with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            data = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # on damaged bytes the unpickler of torch raises whatever it stumbles over
        raise InputError(
            "is damaged, or holds Python objects other than a Data of plain tensors, which are never unpickled; "
            "write it with torch.save(Data(...), path)"
        ) from error
    if not isinstance(data, Data):
        raise InputError(f"the data is a {type(data).__name__}; expected a torch_geometric.data.Data")
    return data


def save_file(graph: Graph, path: str | Path) -> None:
    """Write a graph as a ``.npz`` that `load_file` reads; a file of that name is replaced in one step.

    Args:
        graph: the graph; its name is not stored.
        path: ends in ``.npz``, in a folder that can be written.

    Raises:
        InputError: another suffix, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected .npz")
    arrays = {key: getattr(graph, key).cpu().numpy() for key in _KEYS}
    with replacing(path) as temporary:
        np.savez(temporary, num_classes=np.asarray(graph.num_classes), **arrays)
