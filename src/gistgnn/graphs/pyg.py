"""Data sets that PyTorch Geometric reads: its classes, its downloads, but none of its processed files."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric import datasets
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.transforms import NormalizeFeatures

from gistgnn.graphs.graph import Graph
from gistgnn.graphs.info import DatasetInfo
from gistgnn.graphs.raw import downloading, move_missing, reading
from gistgnn.graphs.splits import draw_split

# name: (class of torch_geometric.datasets, which is also the folder below the data root; its name argument)
_CLASSES: dict[str, tuple[str, str | None]] = {
    "cora": ("Planetoid", "Cora"),
    "citeseer": ("Planetoid", "CiteSeer"),
    "pubmed": ("Planetoid", "PubMed"),
    "amazon-computers": ("Amazon", "Computers"),
    "amazon-photo": ("Amazon", "Photo"),
    "coauthor-cs": ("Coauthor", "CS"),
    "coauthor-physics": ("Coauthor", "Physics"),
    "reddit": ("Reddit", None),
    "flickr": ("Flickr", None),
    "ppi": ("PPI", None),
}


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Read a data set of PyG from its raw files below ``data_root``, which are downloaded where they are missing.

    The raw files lie where PyG keeps them, as ``Planetoid/Cora/raw``. Nothing else is written there, and the processed
    files that PyG may have left there, which can hold pickled objects, are not read. The raw files of Planetoid (cora,
    citeseer, pubmed) are themselves pickles, which PyG unpickles: the one exception, so take them from a place you
    trust.

    Data sets without a split (amazon-*, coauthor-*) get 60 % train, 20 % val and 20 % test, drawn uniformly at random
    with a fixed seed of its own. PPI's 24 graphs become one block-diagonal graph.

    Args:
        info: the entry of the data set.
        data_root: the folder of all data sets; may be read-only where the raw files are there.

    Raises:
        InputError: raw files are missing and cannot be downloaded, or are damaged.
    """
    graphs = _read(info, data_root)
    with reading(info, data_root / _CLASSES[info.name][0]):
        return _to_graph(info, graphs)


def _to_graph(info: DatasetInfo, graphs: list[list[Data]]) -> Graph:
    data = _join(graphs) if info.name == "ppi" else graphs[0][0]
    if info.row_normalised:
        data = NormalizeFeatures()(data)
    if "train_mask" not in data:
        nodes = data.num_nodes
        split = draw_split(nodes, train=round(0.6 * nodes), val=round(0.2 * nodes))
        data.train_mask, data.val_mask, data.test_mask = split
    return Graph.from_pyg(data, name=info.name)


def _read(info: DatasetInfo, data_root: Path) -> list[list[Data]]:
    kind, argument = _CLASSES[info.name]
    held: list[list[Data]] = []
    root = str((data_root / kind).absolute())
    with tempfile.TemporaryDirectory(prefix="gistgnn-") as scratch:
        fields = {"info": info, "held": held, "processed_dir": scratch}
        dataset = type(kind, (_FromRaw, getattr(datasets, kind)), fields)
        if argument is None:
            dataset(root)
        else:
            dataset(root, argument)
    return held


def _join(splits: Sequence[list[Data]]) -> Data:
    """One graph of the training, validation and test graphs, in that order, with masks."""
    for split, graphs in enumerate(splits):
        for graph in graphs:
            graph.split = torch.full((graph.num_nodes,), split)
    whole = Batch.from_data_list([graph for graphs in splits for graph in graphs])
    masks = {f"{name}_mask": whole.split == split for split, name in enumerate(("train", "val", "test"))}
    return Data(x=whole.x, edge_index=whole.edge_index, y=whole.y, **masks)


class _FromRaw(InMemoryDataset):
    """Put in front of a data set's class: parses the raw files anew, and holds the result instead of saving it.

    Class attributes, set in a subclass because the constructor already needs them:
        info: the entry of the data set.
        held: gets one list of graphs for every processed file.
        processed_dir: an empty folder; PyG looks for earlier results there, and may unpickle them.
    """

    info: DatasetInfo
    held: list[list[Data]]
    root: str

    def save(self, data_list: Sequence[Data], path: str) -> None:
        self.held.append(list(data_list))

    def load(self, path: str, data_cls: Any = Data) -> None:
        pass  # what was processed is in self.held

    def process(self) -> None:
        with reading(self.info, Path(self.raw_dir)):
            super().process()

    def _process(self) -> None:
        self.log = False  # PyG's "Processing..."
        super()._process()

    def _download(self) -> None:
        files = self.raw_file_names
        with downloading(self.info, Path(self.raw_dir), [files] if isinstance(files, str) else files):
            super()._download()

    def download(self) -> None:
        """Download beside the raw files first: what is interrupted must not look complete the next time."""
        root, target = self.root, Path(self.raw_dir)
        with tempfile.TemporaryDirectory(dir=target, prefix=".download-") as staging:
            self.root = staging
            try:
                os.makedirs(self.raw_dir)
                super().download()
                move_missing(Path(self.raw_dir), target)
            finally:
                self.root = root
