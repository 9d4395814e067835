"""A user's graph in a ``.npz`` or ``.pt`` file. Nothing is ever unpickled."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from gistgnn.errors import InputError, printable
from gistgnn.graphs.checks import check_features
from gistgnn.graphs.edge_data import EDGE_DATA, check_edge_data
from gistgnn.graphs.files import read_npz, read_pt, reading_file
from gistgnn.graphs.graph import DATA_KEYS, Graph
from gistgnn.storage.whole_files import replacing

SUFFIXES = (".npz", ".pt")
_KEYS = ("edge_index", "x", "y", "train", "val", "test")


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
    is_npz, name = _is_npz(path), printable(path.stem)
    with reading_file(path):
        if not is_npz:
            from torch_geometric.data import Data

            return Graph.from_pyg(Data(**read_pt(path, (*DATA_KEYS, *EDGE_DATA))), name=name)
        arrays: dict[str, Any] = read_npz(path, _KEYS, ("num_classes", *EDGE_DATA))
        if (count := arrays.get("num_classes")) is not None:
            if count.size != 1 or count.dtype.kind not in "iu":
                shape, dtype = list(count.shape), count.dtype
                raise InputError(f"num_classes has shape {shape} and dtype {dtype}; expected one integer")
            arrays["num_classes"] = int(count.item())
        return Graph.build(**arrays, name=name)


def load_nodes(path: str | Path) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Read only ``x`` [N, F], ``edge_index`` [2, E] and edge data by name from a file as for `load_file`.

    The file needs no labels and no splits.

    Raises:
        InputError: as `load_file`.
    """
    path, keys = Path(path), ("edge_index", "x")
    is_npz = _is_npz(path)
    with reading_file(path):
        found: dict[str, Any] = read_npz(path, keys, EDGE_DATA) if is_npz else read_pt(path, (*keys, *EDGE_DATA))
        if missing := [key for key in keys if key not in found]:
            raise InputError(f"has no {missing[0]}; expected x [nodes, features] and edge_index [2, edges]")
        x = check_features(found.pop("x"))
        edges, data = check_edge_data(found.pop("edge_index"), found, len(x))
        return x, edges.to(x.device), {name: value.to(x.device) for name, value in data.items()}


def _is_npz(path: Path) -> bool:
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected a graph in a .npz or a .pt file")
    return path.suffix.lower() == ".npz"


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
