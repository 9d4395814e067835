"""The data sets of Shchur et al. (2018): goods of Amazon, and authors by the words of their papers.

Their files are read without PyG. It would make the words of coauthor-physics a dense matrix of 1.1
GiB, of which 0.4 % are not zero.
"""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from gistgnn.errors import InputError
from gistgnn.graphs.features import csr_of, places_of
from gistgnn.graphs.files import reading_raw
from gistgnn.graphs.graph import Graph, draw_split
from gistgnn.graphs.named import DatasetInfo

_PARTS = ("data", "indices", "indptr")  # of a CSR matrix in a file


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Read a data set from its raw file, such as ``data_root/Coauthor/Physics/raw/*.npz``.

    PyG downloads a missing one. The values are those of PyG's `read_npz` and `NormalizeFeatures`.
    The split is random with a fixed seed: 60 % train, 20 % val and 20 % test.
    """
    raw_folder = data_root.joinpath(*info.source, "raw")
    paths = sorted(raw_folder.glob("*.npz"))
    if len(paths) != 1:
        from gistgnn.graphs.pyg import raw_files  # importing PyG takes a while

        paths = raw_files(info, data_root)
    with reading_raw(info.name, raw_folder):
        if not paths[0].is_file():  # a pipe would be waited for
            raise InputError(f"{paths[0].name} is no regular file")
        words, adjacency, labels = _read(paths[0])
        places = places_of(csr_of(words > 0))
        counts = places.rowptr.diff().clamp(min=1)
        x = places.with_values(places.repeated(1 / counts.float()))
        adjacency.setdiag(0)
        source, target = (adjacency + adjacency.T).nonzero()
        nodes = len(labels)
        train, val, test = draw_split(nodes, train=round(0.6 * nodes), val=round(0.2 * nodes))
        edge_index = np.stack([source, target])
        return Graph.build(x, edge_index, labels, train=train, val=val, test=test, name=info.name)


def _read(path: Path) -> tuple[sp.csr_matrix, sp.csr_matrix, torch.Tensor]:
    """Return the words of every node, the edges, and the labels."""
    with np.load(path) as arrays:  # nothing is unpickled
        matrices = []
        for name in ("attr", "adj"):
            parts = tuple(arrays[f"{name}_{part}"] for part in _PARTS)
            matrix = sp.csr_matrix(parts, shape=tuple(arrays[f"{name}_shape"]))
            matrix.check_format(full_check=True)  # the file may be damaged
            matrices.append(matrix)
        labels = torch.from_numpy(arrays["labels"]).long()
    return matrices[0], matrices[1], labels
