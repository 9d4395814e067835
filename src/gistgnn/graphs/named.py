"""Data sets by name."""

import difflib
import importlib
from pathlib import Path

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs import files
from gistgnn.graphs.files import SUFFIXES, load_file
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.info import DATASETS


def load_nodes(name_or_path: str | Path, data_root: str | Path = "data") -> tuple[Tensor, Tensor]:
    """Load features and edges alone, as `load` does, from a file that need hold no labels and no splits.

    Returns:
        ``x`` [N, F] and ``edge_index`` [2, E].

    Raises:
        InputError: as `load`.
    """
    if str(name_or_path).lower() not in DATASETS and Path(name_or_path).suffix.lower() in SUFFIXES:
        return files.load_nodes(Path(name_or_path).expanduser())
    graph = load(name_or_path, data_root)
    return graph.x, graph.edge_index


def load(name_or_path: str | Path, data_root: str | Path = "data") -> Graph:
    """Load a data set by name, or a graph from a file.

    A name wins over a file of that name; write ``./cora`` for the file.

    Args:
        name_or_path: a name in `DATASETS`, in upper or lower case; or the path of a ``.npz`` or ``.pt`` file, as
            `load_file` reads it.
        data_root: the folder with one folder per source (``Planetoid``, ``Amazon``, ``ogbn_arxiv``, ...), as PyG and
            ogb lay them out. Raw files that are missing are downloaded to it; nothing else is written, so it may be
            read-only. Not used for files and for ``digits``.

    Raises:
        InputError: neither a name nor a file, or the data cannot be had or read.
    """
    name = str(name_or_path).lower()
    if name in DATASETS:
        info = DATASETS[name]
        # Imported here, as the readers need torch_geometric, scikit-learn or ogb.
        reader = importlib.import_module(f"gistgnn.graphs.{info.reader}")
        graph: Graph = reader.load(info, Path(data_root).expanduser())
        return graph
    path = Path(name_or_path).expanduser()
    if path.suffix.lower() in SUFFIXES or path.exists():
        return load_file(path)
    close = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise InputError(
        f"{str(name_or_path)!r} is neither a data set nor a file{hint}; "
        f"expected a .npz or .pt file or one of {', '.join(DATASETS)}"
    )
