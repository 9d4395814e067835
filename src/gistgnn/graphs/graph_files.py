"""A user's graph in a ``.npz`` or ``.pt`` file. Nothing is ever unpickled."""

import contextlib
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.graphs.checks import check_features
from gistgnn.graphs.edge_data import EDGE_DATA, check_edge_data, edge_data_of
from gistgnn.graphs.graph import Graph
from gistgnn.io.whole_files import replacing

SUFFIXES = (".npz", ".pt")
_KEYS = ("edge_index", "x", "y", "train", "val", "test")
_OPTIONAL = ("num_classes", *EDGE_DATA)


def load_file(path: str | Path) -> Graph:
    """Read a graph from a file. The graph's name is the file's name without the suffix.

    Args:
        path: a ``.npz`` with the arrays ``edge_index`` [2, E], ``x`` [N, F], ``y`` [N] or [N, K], ``train``, ``val``
            and ``test`` (masks or node numbers) and optionally ``num_classes``, ``edge_weight``, ``edge_attr`` and
            ``edge_type``; or a ``.pt`` with a `torch_geometric.data.Data` saved by `torch.save`. For the values see
            `Graph.build` and `Graph.from_pyg`.

    Raises:
        InputError: the file is missing, damaged, of another kind, or has wrong values; the message names the file.
    """
    path = Path(path)
    with _reading(path) as is_npz:
        if not is_npz:
            return Graph.from_pyg(_read_pt(path), name=path.stem)
        arrays: dict[str, Any] = _read_npz(path, _KEYS)
        if (count := arrays.get("num_classes")) is not None:
            if count.size != 1 or count.dtype.kind not in "iu":
                shape, dtype = list(count.shape), count.dtype
                raise InputError(f"num_classes has shape {shape} and dtype {dtype}; expected one integer")
            arrays["num_classes"] = int(count.item())
        return Graph.build(**arrays, name=path.stem)


def load_nodes(path: str | Path) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Read only ``x`` [N, F], ``edge_index`` [2, E] and edge data by name from a file as for `load_file`.

    The file needs no labels and no splits.

    Raises:
        InputError: as `load_file`.
    """
    path = Path(path)
    with _reading(path) as is_npz:
        if is_npz:
            arrays = _read_npz(path, ("edge_index", "x"))
            return _check_nodes(**arrays)
        data = _read_pt(path)
        return _check_nodes(data.x, data.edge_index, **edge_data_of(data))


def _check_nodes(
    x: Any, edge_index: Any, num_classes: Any = None, **edge_data: Any
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Check features, edges and edge data; ``num_classes`` is not needed."""
    for name, value in (("x", x), ("edge_index", edge_index)):
        if value is None:
            raise InputError(f"has no {name}; expected x [nodes, features] and edge_index [2, edges]")
    features = check_features(x)
    edges, data = check_edge_data(edge_index, edge_data, features.shape[0])
    device = features.device
    return features, edges.to(device), {name: value.to(device) for name, value in data.items()}


def save_file(graph: Graph, path: str | Path) -> None:
    """Write a graph as a ``.npz`` for `load_file`. An existing file is replaced in one step.

    Args:
        graph: the graph; its name is not stored.
        path: ends in ``.npz``, in a writable folder.

    Raises:
        InputError: another suffix, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected .npz")
    if graph.regression:
        raise InputError(f"{path}: the graph is one of a regression; expected classes or labels: keep it as a Data")
    arrays = {key: getattr(graph, key).cpu().numpy() for key in (*_KEYS, *graph.edge_data)}
    with replacing(path) as temporary:
        np.savez(temporary, num_classes=np.asarray(graph.num_classes), **arrays)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[bool]:
    """Yield whether the file is a ``.npz``, and name the file in every error of the block."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected a graph in a .npz or a .pt file")
    try:
        if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever, a device not end
            raise InputError("is a pipe, a socket or a device; expected a file: write the graph to a disk first")
        yield suffix == ".npz"
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; expected a graph in a .npz or a .pt file") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({reason(error)}); expected a readable file") from error
    except MemoryError as error:
        raise InputError(f"{path}: does not fit in memory, or is damaged ({reason(error)})") from error


def _read_npz(path: Path, keys: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise InputError("holds a single array; expected an archive made by numpy.savez")
        with loaded as archive:
            if missing := [key for key in keys if key not in archive.files]:
                present = ", ".join(sorted(archive.files)) or "nothing"
                raise InputError(
                    f"has no {', '.join(missing)}; expected the arrays {', '.join(keys)} (found {present})"
                )
            return {key: _read_array(archive, key) for key in archive.files if key in (*keys, *_OPTIONAL)}
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise InputError(f"is damaged, or not made by numpy.savez ({reason(error)}); write it again") from error


def _read_array(archive: Any, key: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise InputError(f"{key} is an array of Python objects, which are never unpickled; expected numbers") from error
    return array


def _read_pt(path: Path) -> Any:
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        # The containers of a Data; PyG 2.8 registers only some of them as safe.
        with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            data = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch's unpickler may raise anything on damaged bytes
        raise InputError(
            "is damaged, or holds Python objects other than a Data of plain tensors, which are never unpickled; "
            "write it with torch.save(Data(...), path)"
        ) from error
    if not isinstance(data, Data):
        raise InputError(f"the data is a {type(data).__name__}; expected a torch_geometric.data.Data")
    return data
