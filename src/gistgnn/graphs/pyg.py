"""Data sets of PyTorch Geometric.

Its classes and downloads are used, but none of its processed files.
"""

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric import datasets
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.transforms import NormalizeFeatures

from gistgnn.errors import InputError, reason
from gistgnn.graphs.files import reading_raw
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.named import DatasetInfo


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Read a data set from PyG's raw files, such as ``data_root/Planetoid/Cora/raw``.

    Missing files are downloaded. PyG's processed files are not read, because they may hold pickled
    objects, and not written. The raw files of Planetoid (cora, citeseer, pubmed) are pickles, and
    PyG unpickles them: take them from a source that you trust. The 24 graphs of PPI become one
    block-diagonal graph.
    """
    graphs: list[list[Data]] = []  # a list for each processed file that PyG would write
    _make_dataset(info, data_root, graphs=graphs)
    with reading_raw(info.name, data_root / info.source[0]):
        data = _join(graphs) if info.name == "ppi" else graphs[0][0]
        if info.row_normalised:
            data = NormalizeFeatures()(data)
        return Graph.from_pyg(data, name=info.name)


def raw_files(info: DatasetInfo, data_root: Path) -> list[Path]:
    """Return the raw files of a data set that has another reader.

    Missing ones are downloaded, as `load` does.
    """
    dataset = _make_dataset(info, data_root, process=lambda self: None)
    return [Path(path) for path in dataset.raw_paths]


def _make_dataset(info: DatasetInfo, data_root: Path, **attributes: Any) -> InMemoryDataset:
    """Make PyG's data set of a name, which downloads missing files, and processes them.

    ``attributes`` are those of its class, which is a subclass of `_FromRaw`.
    """
    kind, *arguments = info.source
    with tempfile.TemporaryDirectory(prefix="gistgnn-") as scratch:
        attributes |= {"info": info, "processed_dir": scratch}
        dataset_class = type(kind, (_FromRaw, getattr(datasets, kind)), attributes)
        return dataset_class(str((data_root / kind).absolute()), *arguments)


def _join(splits: Sequence[list[Data]]) -> Data:
    """Join the training, validation and test graphs, in that order, to one graph with masks."""
    joined = Batch.from_data_list([graph for graphs in splits for graph in graphs])
    sizes = [sum(graph.num_nodes for graph in graphs) for graphs in splits]
    split = torch.arange(len(splits)).repeat_interleave(torch.tensor(sizes))
    masks = {
        f"{name}_mask": split == number for number, name in enumerate(("train", "val", "test"))
    }
    return Data(x=joined.x, edge_index=joined.edge_index, y=joined.y, **masks)


class _FromRaw(InMemoryDataset):
    """Stands in front of PyG's data set class, and parses the raw files.

    It collects the graphs instead of saving them.
    """

    info: DatasetInfo
    graphs: list[list[Data]]
    root: str

    def save(self, data_list: Sequence[Data], path: str) -> None:
        self.graphs.append(list(data_list))

    def load(self, path: str, data_cls: Any = Data) -> None:
        pass  # self.graphs has the result

    def process(self) -> None:
        with reading_raw(self.info.name, Path(self.raw_dir)):
            # A pipe would be waited for.
            wrong = [path for path in map(Path, self.raw_paths) if not path.is_file()]
            if wrong:
                raise InputError(f"{wrong[0].name} is no regular file")
            super().process()

    def _process(self) -> None:
        self.log = False  # PyG's "Processing..."
        super()._process()

    def _download(self) -> None:
        """Download missing files to a temporary folder first.

        An interrupted download must not look complete.
        """
        root = self.root
        raw = Path(self.raw_dir)
        names = [Path(path).name for path in self.raw_paths]
        if all((raw / name).exists() for name in names):
            return
        former_timeout = socket.getdefaulttimeout()
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
            fault = f"raw files are missing in {raw} and cannot be downloaded ({reason(error)})"
            raise InputError(f"{self.info.name}: {fault}; put {', '.join(names)} there") from error
        finally:
            self.root = root
            socket.setdefaulttimeout(former_timeout)
