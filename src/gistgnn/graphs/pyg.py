"""Data sets of PyTorch Geometric: its classes and downloads are used, but none of its processed files."""

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric import datasets
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import remove_self_loops, to_undirected

from gistgnn.errors import InputError, reason
from gistgnn.graphs.features import csr_of, places_of
from gistgnn.graphs.files import reading_raw
from gistgnn.graphs.graph import Graph, draw_split
from gistgnn.graphs.named import DatasetInfo

_CSR_PARTS = ("data", "indices", "indptr")


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Read a data set from PyG's raw files, such as ``data_root/Planetoid/Cora/raw``; missing ones are downloaded.

    PyG's processed files are not read, because they may hold pickled objects, and not written. The raw files of
    Planetoid (cora, citeseer, pubmed) are pickles, and PyG unpickles them: take them from a source that you trust. Data
    sets without a split (amazon-*, coauthor-*) get a random one with a fixed seed: 60 % train, 20 % val and 20 % test.
    The 24 graphs of PPI become one block-diagonal graph.
    """
    kind, *arguments = info.source
    graphs: list[list[Data]] = []  # a list for each processed file that PyG would write
    with tempfile.TemporaryDirectory(prefix="gistgnn-") as scratch:
        fields = {"info": info, "graphs": graphs, "processed_dir": scratch}
        type(kind, (_FromRaw, getattr(datasets, kind)), fields)(str((data_root / kind).absolute()), *arguments)
    with reading_raw(info.name, data_root / kind):
        data = _join(graphs) if info.name == "ppi" else graphs[0][0]
        if info.row_normalised and not info.sparse:
            data = NormalizeFeatures()(data)
        if "train_mask" not in data:
            nodes = data.num_nodes
            split = draw_split(nodes, train=round(0.6 * nodes), val=round(0.2 * nodes))
            data.train_mask, data.val_mask, data.test_mask = split
        return Graph.from_pyg(data, name=info.name)


def _read_words(path: Path) -> Data:
    """Read a graph of Shchur et al. as PyG's `read_npz` and `NormalizeFeatures` do, with features as a CSR tensor.

    PyG makes them dense: for coauthor-physics 1.1 GiB, of which 0.4 % are not zero.
    """
    with np.load(path) as arrays:  # nothing is unpickled
        parts = {
            name: sp.csr_matrix(tuple(arrays[f"{name}_{part}"] for part in _CSR_PARTS), arrays[f"{name}_shape"])
            for name in ("attr", "adj")
        }
        labels = torch.from_numpy(arrays["labels"]).long()
    for matrix in parts.values():
        matrix.check_format(full_check=True)  # the file may be damaged
    words = csr_of(parts["attr"] > 0)
    places = places_of(words)
    counts = places.rowptr.diff().clamp(min=1)
    x = places.with_values(places.repeated(1 / counts.float()))
    row, col = parts["adj"].nonzero()
    edge_index = torch.from_numpy(np.stack([row, col])).long()
    edge_index, _ = remove_self_loops(edge_index)
    edge_index = to_undirected(edge_index, num_nodes=len(labels))
    return Data(x=x, edge_index=edge_index, y=labels)


def _join(splits: Sequence[list[Data]]) -> Data:
    """Join the training, validation and test graphs, in that order, to one graph with masks."""
    whole = Batch.from_data_list([graph for graphs in splits for graph in graphs])
    split = torch.arange(len(splits)).repeat_interleave(torch.tensor([sum(g.num_nodes for g in s) for s in splits]))
    masks = {f"{name}_mask": split == number for number, name in enumerate(("train", "val", "test"))}
    return Data(x=whole.x, edge_index=whole.edge_index, y=whole.y, **masks)


class _FromRaw(InMemoryDataset):
    """In front of PyG's data set class: parses the raw files, and collects the graphs instead of saving them."""

    info: DatasetInfo
    graphs: list[list[Data]]
    root: str

    def save(self, data_list: Sequence[Data], path: str) -> None:
        self.graphs.append(list(data_list))

    def load(self, path: str, data_cls: Any = Data) -> None:
        pass  # self.graphs has the result

    def process(self) -> None:
        with reading_raw(self.info.name, Path(self.raw_dir)):
            if odd := [path for path in map(Path, self.raw_paths) if not path.is_file()]:  # a pipe would be waited for
                raise InputError(f"{odd[0].name} is no regular file")
            if self.info.sparse:
                self.graphs.append([_read_words(Path(self.raw_paths[0]))])
            else:
                super().process()

    def _process(self) -> None:
        self.log = False  # PyG's "Processing..."
        super()._process()

    def _download(self) -> None:
        """Download missing files to a temporary folder first: an interrupted download must not look complete."""
        root, raw, names = self.root, Path(self.raw_dir), [Path(path).name for path in self.raw_paths]
        if all((raw / name).exists() for name in names):
            return
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(30.0)  # seconds; PyG sets none
        try:
            raw.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=raw, prefix=".download-") as self.root:
                os.makedirs(self.raw_dir)
                with contextlib.redirect_stdout(sys.stderr):
                    self.download()
                for name in names:
                    if not (raw / name).exists():
                        os.replace(Path(self.raw_dir, name), raw / name)
        except Exception as error:  # HTTP, archives and file systems each have their own errors
            what = f"raw files are missing in {raw} and cannot be downloaded ({reason(error)})"
            raise InputError(f"{self.info.name}: {what}; put {', '.join(names)} there") from error
        finally:
            self.root = root
            socket.setdefaulttimeout(before)
