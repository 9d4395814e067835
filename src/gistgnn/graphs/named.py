"""Data sets by name."""

import difflib
import importlib
from dataclasses import replace
from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.graphs.folder import MANIFEST, Manifest, load_folder
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.graph_files import SUFFIXES, load_file
from gistgnn.graphs.info import DATASETS, DatasetInfo

# Fewest nodes per class in a fraction of a synthetic graph: with fewer there are no communities, and splits are empty.
_NODES_PER_CLASS = 20


def find(name: str) -> DatasetInfo | None:
    """Return the data set of a name, in upper or lower case; None if there is none.

    The name of a synthetic graph may end in ``@`` and the fraction of its nodes and edges: ``synthetic:reddit@0.1``.

    Raises:
        InputError: the fraction is out of range, or leaves too few nodes.
    """
    base, at, text = name.lower().partition("@")
    info = DATASETS.get(base)
    if info is None or not at:
        return info
    return _fraction(info, text) if base.startswith("synthetic:") else None


def _fraction(info: DatasetInfo, text: str) -> DatasetInfo:
    try:
        fraction = float(text)
    except ValueError:
        fraction = float("nan")
    if not 0 < fraction <= 1:
        raise InputError(f"{info.name}@{text}: the fraction is {text!r}; expected a number above 0, and at most 1")
    nodes, fewest = round(fraction * info.nodes), _NODES_PER_CLASS * info.classes
    if nodes < fewest:
        least = f"expected at least {fewest}, which is a fraction of {fewest / info.nodes:.2g}"
        raise InputError(f"{info.name}@{text}: {nodes} nodes are too few for {info.classes} classes; {least}")
    name = info.name if fraction == 1 else f"{info.name}@{fraction}"
    edges, train = 2 * round(fraction * (info.edges // 2)), round(fraction * info.train)
    return replace(info, name=name, nodes=nodes, edges=edges, train=train)


def is_file(name_or_path: str | Path) -> bool:
    """Whether `load` takes this for the path of a graph file: it is no data set's name, and no folder."""
    path = Path(name_or_path).expanduser()
    return find(str(name_or_path)) is None and path.suffix.lower() in SUFFIXES and not (path / MANIFEST).exists()


def clusters_of(name_or_path: str | Path) -> int | None:
    """Return the number of clusters of a folder that `gistgnn partition --out` has made; None: it is something else.

    Raises:
        InputError: the folder's manifest is damaged.
    """
    path = Path(name_or_path).expanduser()
    if find(str(name_or_path)) or not (path / MANIFEST).exists():
        return None
    return Manifest.read(path).clusters


def load(name_or_path: str | Path, data_root: str | Path = "data") -> Graph:
    """Load a data set by name, or a graph from a file or a folder.

    Example:
        >>> load("cora"), load("synthetic:reddit@0.1"), load("my_graph.npz"), load("my_graph")

    A name wins over a file with the same name; write ``./cora`` for the file.

    Args:
        name_or_path: a name as for `find`, the path of a ``.npz`` or ``.pt`` file as for `load_file`, or a folder that
            `gistgnn convert` has made. The tensors of a folder are mapped: they are read when they are used.
        data_root: the folder with one folder per source (``Planetoid``, ``Amazon``, ``ogbn_arxiv``, ...), laid out as
            PyG and OGB do. Missing raw files of PyG are downloaded there. Nothing else is written: it may be read-only.
            Not used for files, ``digits`` and synthetic graphs.

    Raises:
        InputError: neither a name nor a file, or the data cannot be downloaded or read.
    """
    name = str(name_or_path)
    if info := find(name):
        # Imported here: the readers need torch_geometric or DuckDB.
        reader = importlib.import_module(f"gistgnn.graphs.{info.reader}")
        graph: Graph = reader.load(info, Path(data_root).expanduser())
        return graph
    path = Path(name_or_path).expanduser()
    if path.is_dir() and (path.suffix.lower() not in SUFFIXES or (path / MANIFEST).exists()):
        return load_folder(path)
    if path.suffix.lower() in SUFFIXES or path.exists():
        return load_file(path)
    close = difflib.get_close_matches(name.lower().partition("@")[0], DATASETS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise InputError(
        f"{name!r} is neither a data set nor a file{hint}; expected a .npz or .pt file, a graph folder, or one of "
        f"{', '.join(DATASETS)}"
    )
