"""Data sets of the Open Graph Benchmark (OGB), read from their raw files."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gistgnn.errors import InputError, printable
from gistgnn.graphs.cache import cached, fingerprint
from gistgnn.graphs.checks import check_splits
from gistgnn.graphs.files import read_npz, reading_file, reading_raw
from gistgnn.graphs.graph import SPLITS, Graph, draw_split, undirected_graph
from gistgnn.graphs.named import DatasetInfo
from gistgnn.graphs.tables import Table, block_rows, database
from gistgnn.utils.tensors import Array

_PRODUCTS_NODES = 2_449_029  # of ogbn-products
_CLUSTER_GCN_TRAIN = 1_709_997  # Cluster-GCN's training nodes; the other nodes are test nodes
# How many training nodes we hold out for validation, the same number as in ogbn-products.
_HELD_OUT = 39_323

_TABLES = ("edge", "node-feat", "node-label")
_PARTS = {"train": "train", "val": "valid", "test": "test"}
_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/{}.zip"


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Read ogbn-arxiv, ogbn-products or amazon2m from OGB's raw files.

    The graphs are made undirected, and cached. amazon2m is the graph of ogbn-products with the
    split sizes of Cluster-GCN: 1,709,997 nodes for training and validation, of which 39,323 (as in
    ogbn-products) are held out for validation, and 739,032 for test. The original nodes are not
    published, so they are drawn at random with a fixed seed. For another size the counts are scaled
    in proportion.
    """
    (name,) = info.source
    folder = data_root / name.replace("-", "_")
    try:
        files = OgbFiles(folder)
    except InputError as error:
        url = _URL.format(name.removeprefix("ogbn-"))
        raise InputError(f"{info.name}: {error}; unpack {url} as the folder {folder}") from error
    with reading_raw(info.name, folder):
        graph = cached(name, fingerprint(files.paths), partial(files.graph, info.classes))
    if info.name != "amazon2m":
        return replace(graph, name=info.name)
    train_and_val, held_out = (
        round(graph.num_nodes * count / _PRODUCTS_NODES)
        for count in (_CLUSTER_GCN_TRAIN, _HELD_OUT)
    )
    train, val, test = draw_split(graph.num_nodes, train=train_and_val - held_out, val=held_out)
    return replace(graph, train=train, val=val, test=test, name="amazon2m")


def is_ogb(folder: Path) -> bool:
    """Whether a folder has the raw files of a data set of OGB."""
    return any((folder / "raw" / file).exists() for file in ("data.npz", "edge.csv.gz"))


class OgbFiles:
    """The raw files of OGB in a folder: tables in CSV, or two `.npz` as of ogbn-papers100M.

    A label that is NaN is none.
    """

    classes = None
    undirected = True
    class_names = ()

    def __init__(self, folder: Path) -> None:
        self.name = printable(folder.name.replace("_", "-"))
        raw = folder / "raw"
        self.nodes_in = self.edges_in = str(folder)
        self.is_text = not (raw / "data.npz").exists()
        names = (
            [f"{name}.csv.gz" for name in _TABLES]
            if self.is_text
            else ["data.npz", "node-label.npz"]
        )
        splits = sorted(folder.glob("split/*/train.csv.gz"))
        if len(splits) > 1:
            raise InputError(f"{folder}: {len(splits)} files split/*/train.csv.gz; expected one")
        parts = splits[0].parent if splits else folder / "split" / "..."
        self._splits = {name: parts / f"{file}.csv.gz" for name, file in _PARTS.items()}
        self._raw = {name.partition(".")[0]: raw / name for name in names}
        self.paths = [*self._raw.values(), *self._splits.values()]
        for path in self.paths:
            if not path.is_file():
                raise InputError(
                    f"{path}: {'expected a regular file' if path.exists() else 'no such file'}"
                )

    def graph(self, classes: int) -> Graph:
        """Return the graph in memory, with every edge in both directions."""
        x, y, split = (np.concatenate(part) for part in zip(*self.node_blocks(), strict=True))
        with database() as connection:
            columns = connection.sql(self.edges(connection)).fetchnumpy()
        one, other = (np.asarray(columns[name], np.int64) for name in ("source", "target"))
        return undirected_graph(x, one, other, y, split, num_classes=classes, name=self.name)

    def node_blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield features [n, F], labels [n] or [n, K] and splits [n] of all nodes."""
        if self.is_text:
            y = self._table(self._raw["node-label"], "DOUBLE")
            blocks = self._blocks(self._raw["node-feat"])
        else:
            x = self._member("data", "node_feat")
            y = self._member("node-label", "node_label")
            rows = block_rows(x.shape[1])
            blocks = (x[start : start + rows] for start in range(0, len(x), rows))
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        y = np.where(np.isnan(y), -1, y) if y.dtype.kind == "f" and y.ndim == 1 else y
        parts: dict[str, Any] = {
            name: self._table(path, "BIGINT")[:, 0] for name, path in self._splits.items()
        }
        masks = check_splits(parts, torch.zeros(len(y)))
        split: Any = sum(np.uint8(number) * masks[name].numpy() for name, number in SPLITS.items())
        start = 0
        for block in blocks:
            part = slice(start, start + len(block))
            yield block, y[part], split[part]
            start = part.stop
        if start != len(y):
            counts = f"{start} rows of features and {len(y)} of labels"
            raise InputError(f"there are {counts}; expected one of each per node")

    def edges(self, connection: Any, folder: Path | None = None) -> str:
        """Return SQL for all edges as they are stored, with the columns source and target."""
        if self.is_text:
            table = Table.read(connection, self._raw["edge"], header=False, kind="BIGINT")
            if len(table.names) != 2:
                raise InputError(
                    f"{table.path}: {len(table.names)} columns; expected source and target"
                )
            return f"SELECT c0 AS source, c1 AS target FROM {table.rows}"
        edges = self._member("data", "edge_index")
        connection.register(
            "edge_list", {"source": np.ascontiguousarray(edges[0]), "target": edges[1].copy()}
        )
        return "SELECT source, target FROM edge_list"

    def _member(self, file: str, name: str) -> Array:
        with reading_file(self._raw[file]):
            return read_npz(self._raw[file], (name,))[name]

    def _table(self, path: Path, kind: str) -> Array:
        blocks = list(self._blocks(path, kind))
        return np.concatenate(blocks) if blocks else np.empty((0, 1), np.int64)

    def _blocks(self, path: Path, kind: str = "DOUBLE") -> Iterator[Array]:
        with database() as connection:
            table = Table.read(connection, path, header=False, kind=kind)
            for batch in connection.sql(f"FROM {table.rows}").to_arrow_reader(
                block_rows(len(table.names))
            ):
                yield np.stack(
                    [column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1
                )
