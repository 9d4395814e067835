"""A user's graph in a ``.npz`` or ``.pt`` file; raw files of data sets.

Nothing is unpickled but plain tensors.
"""

import contextlib
import io
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError, printable, reason
from gistgnn.graphs.checks import (
    EDGE_DATA,
    check_edges,
    check_features,
    check_room,
    check_table,
    dense,
    edges_of_adj_t,
    naming,
)
from gistgnn.graphs.graph import DATA_KEYS, Graph, require_data
from gistgnn.graphs.hetero import from_hetero
from gistgnn.storage.whole_files import reading, replacing

_KEYS = ("edge_index", "x", "y", "train", "val", "test")


@contextlib.contextmanager
def reading_file(path: Path) -> Iterator[None]:
    """Turn whatever a parser raises in the block into one line that names the file.

    Its warnings are not shown.
    """
    made_by = FORMATS[path.suffix.lower()].made_by
    with (
        naming(str(path)),
        reading(path, f"expected a graph in a file made by {made_by}"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def reading_raw(name: str, folder: Path) -> Iterator[None]:
    """Turn whatever a parser raises in the block into one line that names the data set.

    What it prints is not shown.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except MemoryError:
        raise
    except Exception as error:  # parsers may raise anything on damaged bytes
        hint = "delete them to download them again"
        raise InputError(
            f"{name}: the raw files in {folder} cannot be read ({reason(error)}); {hint}"
        ) from error


def read_npz(
    path: Path, keys: Collection[str], optional: Collection[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays ``keys``, and those of ``optional`` that are there.

    Call it in `reading_file`.
    """
    with zipfile.ZipFile(path) as archive:
        present = {name.removesuffix(".npy"): archive.getinfo(name) for name in archive.namelist()}
        only_as_masks = [
            key for key in (*keys, *optional) if key not in present and f"{key}_mask" in present
        ]
        present |= {key: present[f"{key}_mask"] for key in only_as_masks}
        if missing := [key for key in keys if key not in present]:
            names = ", ".join(sorted(present)) or "nothing"
            expected = f"expected the arrays {', '.join(keys)} (found {names})"
            if "train" in missing:
                draw = "numpy.split(numpy.random.permutation(N), [a, b])"
                expected += f": {draw} draws train, val and test"
            raise InputError(f"has no {', '.join(missing)}; {expected}")
        members = {key: present[key] for key in (*keys, *optional) if key in present}
        check_room(sum(member.file_size for member in members.values()))
        arrays = {}
        for key, member in members.items():
            try:
                with archive.open(member) as file:
                    arrays[key] = np.lib.format.read_array(file, allow_pickle=False)
                    if file.read(1):  # reading to the end compares the member's checksum
                        raise ValueError(f"it is longer than its shape {list(arrays[key].shape)}")
            except ValueError as error:
                fault = f"{member.filename} is damaged, or not of numbers ({reason(error)})"
                kinds = (
                    "numbers with .astype(float), texts with .astype(str) and '' for none, "
                    "SciPy with .toarray()"
                )
                raise InputError(f"{fault}; write it again: {kinds}") from error
        return arrays


def read_pt(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """Read attributes of a PyG `Data` or `HeteroData` that are there, by name.

    Call it in `reading_file`.
    """
    from torch_geometric.data import HeteroData, storage
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr

    with zipfile.ZipFile(path) as archive:
        check_room(sum(member.file_size for member in archive.infolist()))
        if damaged := archive.testzip():  # torch compares no checksums
            raise InputError(
                f"is damaged, or was saved without checksums (its member {damaged}); write it again"
            )
    # The containers of a Data and a HeteroData; PyG 2.8 registers only some of them as safe.
    stores = [storage.BaseStorage, storage.GlobalStorage, storage.NodeStorage, storage.EdgeStorage]
    try:
        with torch.serialization.safe_globals(
            [Data, DataEdgeAttr, DataTensorAttr, HeteroData, *stores]
        ):
            data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's text advises to load the file all the same
        fault = "holds Python objects other than a Data of plain tensors, which are never unpickled"
        raise InputError(f"{fault}; {_advice_on_object(path, str(error))}") from error
    data = _only_graph(data)
    data = from_hetero(data) if type(data) is HeteroData else data
    require_data(data)
    attributes = {key: value for key, value in data(*keys) if value is not None}
    for key, value in attributes.items():
        if not isinstance(value, (Tensor, list, tuple)):
            raise InputError(f"{key} is a {type(value).__name__}; expected a tensor")
    return attributes


def _only_graph(data: Any) -> Any:
    """Return the one graph in what PyG's InMemoryDataset saves as processed/data.pt.

    Anything else is returned as it is.
    """
    from torch_geometric.data import Data, HeteroData

    is_collated = (
        isinstance(data, tuple) and len(data) in (2, 3) and isinstance(data[1], (dict, NoneType))
    )
    if not is_collated or not isinstance(data[0], (dict, Data, HeteroData)):
        return data
    slices = data[1]
    while isinstance(slices, dict):  # the slices of a HeteroData lie deeper
        slices = next(iter(slices.values()), None)
    if slices is not None and len(slices) != 2:
        hint = "for a label of each graph see examples/graph_classification.py"
        raise InputError(f"holds {len(slices) - 1} graphs of a data set; expected one: {hint}")
    kind = HeteroData if len(data) == 3 and data[2] is HeteroData else Data
    return kind.from_dict(data[0]) if isinstance(data[0], dict) else data[0]


def _advice_on_object(path: Path, text: str) -> str:
    """Name the attribute that holds the object which torch refuses, and say what to do."""
    rewrite = "write it with torch.save(Data.from_dict(data.to_dict()), path)"
    kind = re.search(r"GLOBAL ([\w.]+)", text)
    name = _attribute_with(path, kind[1]) if kind else ""
    if not kind or not name.isidentifier() or name.startswith("_"):
        return rewrite
    attribute = f"data.{name}"
    package = kind[1].partition(".")[0]
    if package == "numpy":
        return (
            f"its {name} is of NumPy: {attribute} = torch.as_tensor({attribute}), or del "
            f"{attribute}"
        )
    if package == "scipy":
        return (
            f"its {name} is of SciPy: {attribute} = torch.as_tensor({attribute}.toarray()), or "
            f"del {attribute}"
        )
    if package == "torch_sparse":
        return (
            f"its {name} is of torch_sparse: leave the transform ToSparseTensor out, so that "
            "data has edge_index"
        )
    return f"its {name} is a {kind[1]}: del {attribute}, or make a tensor of it"


def _attribute_with(path: Path, kind: str) -> str:
    """Return the last text before the name of a class in a file's pickle.

    The pickle is looked at, and not unpickled.
    """
    with zipfile.ZipFile(path) as archive:
        member = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        content = archive.read(member)
    last = ""  # the last text
    texts: dict[int, str] = {}  # by their places in the pickle's memo
    previous = ""  # the text that the previous operation has made, or ""
    for operation, argument, _ in pickletools.genops(content):
        if operation.name == "GLOBAL" and str(argument).replace(" ", ".") == kind:
            return last
        if operation.name in ("BINUNICODE", "SHORT_BINUNICODE", "UNICODE"):
            last = previous = str(argument)
        elif operation.name in ("BINPUT", "LONG_BINPUT"):
            if previous:
                texts[int(argument or 0)] = previous
            previous = ""
        else:
            if operation.name in ("BINGET", "LONG_BINGET"):
                last = texts.get(int(argument or 0), last)
            previous = ""
    return ""


def load_file(path: str | Path, *, partial: bool = False) -> Graph:
    """Read a graph from a file. The graph's name is the file's name without the suffix.

    Args:
        path: a ``.npz`` with the arrays ``edge_index`` [2, E], ``x`` [N, F], ``y`` [N] or [N, K],
            ``train``, ``val``, optionally ``test`` (masks or node numbers; PyG's names
            ``train_mask`` ... do as well), ``num_classes``, ``edge_weight``, ``edge_attr`` and
            ``edge_type``; or a ``.pt`` with a `torch_geometric.data.Data` or `HeteroData` saved by
            `torch.save`. For the values see `Graph.build`, `Graph.from_pyg` and `from_hetero`.
        partial: any two of the splits may be missing or empty: the graph is to be scored, not
            trained on.
    """
    path = Path(path)
    file_format = _format_of(path)
    with reading_file(path):
        return file_format.read_graph(path, partial)


def load_nodes(path: str | Path) -> tuple[Tensor, Tensor, dict[str, Tensor], int]:
    """Read ``x`` [N, F], ``edge_index`` [2, E] and edge data by name, without labels and splits.

    For the file see `load_file`. The last number says how many of the first nodes are to be
    predicted: N, or those of a `HeteroData`'s target type.
    """
    path = Path(path)
    file_format = _format_of(path)
    with reading_file(path):
        values = file_format.read_nodes(path)
        if (adj_t := values.pop("adj_t", None)) is not None and "edge_index" not in values:
            values["edge_index"], weights = edges_of_adj_t(adj_t)
            if bool((weights != 1).any()):
                values.setdefault("edge_weight", weights)
        if missing := [key for key in ("edge_index", "x") if key not in values]:
            raise InputError(
                f"has no {missing[0]}; expected x [nodes, features] and edge_index [2, edges]"
            )
        x = check_features(values.pop("x"))
        count = len(values.pop("target_nodes", x))
        edge_index, edge_data = check_edges(values.pop("edge_index"), len(x), values)
        return x, edge_index, edge_data, count


def _graph_of_npz(path: Path, partial: bool) -> Graph:
    may_lack = _KEYS[3:] if partial else _KEYS[5:]
    needed = [key for key in _KEYS if key not in may_lack]
    arrays: dict[str, Any] = dict.fromkeys(may_lack, ())
    arrays |= read_npz(path, needed, (*may_lack, "num_classes", *EDGE_DATA))
    if (count := arrays.get("num_classes")) is not None:
        arrays["num_classes"] = count.item() if count.size == 1 else count
    return Graph.build(**arrays, name=printable(path.stem), partial=partial)


def _nodes_of_npz(path: Path) -> dict[str, Any]:
    return read_npz(path, ("edge_index", "x"), EDGE_DATA)


def _graph_of_pt(path: Path, partial: bool) -> Graph:
    from torch_geometric.data import Data

    values = read_pt(path, (*DATA_KEYS, *EDGE_DATA, "adj_t", "edge_label"))
    return Graph.from_pyg(Data(**values), name=printable(path.stem), partial=partial)


def _nodes_of_pt(path: Path) -> dict[str, Any]:
    return read_pt(path, ("edge_index", "x", *EDGE_DATA, "adj_t", "target_nodes"))


class Format(NamedTuple):
    """A format of graph files.

    Its functions are called in `reading_file`, which turns their errors into one line.
    """

    made_by: str  # what writes such a file, for messages
    read_graph: Callable[[Path, bool], Graph]  # takes the path, and whether splits may be missing
    read_nodes: Callable[[Path], dict[str, Any]]  # returns x, edge_index and edge data by name


FORMATS = {
    ".npz": Format("numpy.savez", _graph_of_npz, _nodes_of_npz),
    ".pt": Format("torch.save(Data(...), path)", _graph_of_pt, _nodes_of_pt),
}
"""The formats by suffix. A new one is an entry here, and in `gistgnn.cli.options.GRAPH_FILES`."""

SUFFIXES = tuple(FORMATS)


def _format_of(path: Path) -> Format:
    check_table(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(
            f"{path}: the suffix is {path.suffix!r}; expected a graph in a "
            f"{' or a '.join(FORMATS)} file"
        )
    return FORMATS[suffix]


def save_file(graph: Graph, path: str | Path) -> None:
    """Write a graph as a ``.npz`` for `load_file`. An existing file is replaced in one step.

    Args:
        graph: the graph; its name is not stored.
        path: ends in ``.npz``, in a writable folder.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected .npz")
    if graph.regression:
        raise InputError(
            f"{path}: the graph is one of a regression; expected classes or labels: keep it as a "
            "Data"
        )
    tensors = {key: getattr(graph, key) for key in (*_KEYS, *graph.edge_data)}
    tensors["x"] = dense(graph.x)
    arrays = {key: tensor.cpu().numpy() for key, tensor in tensors.items()}
    if graph.class_names:
        arrays["y"] = np.array([*graph.class_names, ""])[arrays["y"]]  # -1 is the last
    with replacing(path) as temporary:
        np.savez(temporary, num_classes=np.asarray(graph.num_classes), **arrays)
