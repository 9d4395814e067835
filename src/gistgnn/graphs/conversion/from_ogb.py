"""A folder of OGB's raw files as a source: in CSV, or in `data.npz` as of ogbn-papers100M."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable
from gistgnn.graphs.archive import check_members, open_archive
from gistgnn.graphs.cache import fingerprint
from gistgnn.graphs.conversion.arrays_in_zip import ZipArray
from gistgnn.graphs.conversion.from_graph import edge_block
from gistgnn.graphs.conversion.source import EdgeBlock, NodeBlock, Source, require_files, split_numbers
from gistgnn.graphs.conversion.text_tables import Wanted, text_columns, text_rows
from gistgnn.graphs.graph_files import reading_file

Array = npt.NDArray[Any]

_PARTS = {"train": "train", "val": "valid", "test": "test"}
_TABLES = ("edge", "node-feat", "node-label", "num-node-list")
_BLOCK = 2**20  # rows of the lists of nodes
_ADVICE = "no raw file of OGB"


def is_ogb(folder: Path) -> bool:
    """Whether a folder has the raw files of a data set of OGB."""
    return (folder / "raw" / "data.npz").exists() or (folder / "raw" / "edge.csv.gz").exists()


class OgbSource(Source):
    """The raw files of a node classification data set of OGB, such as in `data/ogbn_papers100M`.

    As in the data sets that gistgnn knows by name, every edge is made to go both ways, unless the user says otherwise.

    Args:
        folder: with `raw` and one folder in `split`.

    Raises:
        InputError: files are missing or damaged.
    """

    undirected: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.name, self._raw = printable(folder.name.replace("_", "-")), folder / "raw"
        self.place = str(folder)
        splits = sorted(folder.glob("split/*/train.csv.gz"))
        if len(splits) != 1:
            raise InputError(f"{folder}: {len(splits)} files split/*/train.csv.gz; expected one")
        self._splits = {name: splits[0].with_name(f"{file}.csv.gz") for name, file in _PARTS.items()}
        require_files(*self._splits.values())
        self._reader = _Binary(self._raw) if (self._raw / "data.npz").exists() else _Text(self._raw)
        self.features, self.nodes, self.edges = self._reader.features, self._reader.nodes, self._reader.edges
        self.counted = isinstance(self._reader, _Binary)
        parts = {name: _column(path) for name, path in self._splits.items()}
        self._split = split_numbers(parts, self._reader.nodes)

    @property
    def key(self) -> str:
        """The files' paths, sizes and times."""
        return fingerprint([*self._reader.files, *self._splits.values()])

    def node_blocks(self, rows: int) -> Iterator[NodeBlock]:
        """Yield all nodes; a label that is NaN means unlabelled."""
        start = 0
        for x, y in self._reader.node_rows(rows):
            if len(x) != len(y):
                raise InputError(f"{self._raw}: features and labels are of {len(x)} and {len(y)} nodes from {start} on")
            if y.ndim == 2 and y.shape[1] == 1:
                y = y[:, 0]
            if y.dtype.kind == "f" and y.ndim == 1:
                y = np.where(np.isnan(y), -1, y)
            yield NodeBlock.plain(start, x, y, self._split[start : start + len(x)])
            start += len(x)
        if start != self.nodes:
            raise InputError(f"{self._raw}: there are {start} nodes; expected {self.nodes}")

    def edge_blocks(self, rows: int) -> Iterator[EdgeBlock]:
        """Yield all edges as they are stored."""
        start = 0
        for source, target in self._reader.edge_rows(rows):
            yield edge_block(start, source, target)
            start += len(source)


class _Text:
    """`edge.csv.gz`, `node-feat.csv.gz` and the others, without names of columns."""

    def __init__(self, raw: Path) -> None:
        self._paths = {name: raw / f"{name}.csv.gz" for name in _TABLES}
        self.files = list(self._paths.values())
        require_files(*self.files)
        counts = _column(self._paths["num-node-list"])
        if len(counts) != 1 or counts[0] < 1:
            raise InputError(
                f"{self._paths['num-node-list']}: {len(counts)} numbers of nodes; expected those of one graph"
            )
        self.nodes = int(counts[0])
        self.features = len(text_columns(self._paths["node-feat"], unnamed=True))
        self.edges = self._paths["edge"].stat().st_size // 4  # compressed

    def node_rows(self, rows: int) -> Iterator[tuple[Array, Array]]:
        x, y = self._read("node-feat", rows, np.float64), self._read("node-label", rows, np.float64)
        yield from zip(x, y, strict=False)

    def edge_rows(self, rows: int) -> Iterator[tuple[Array, Array]]:
        for pairs in self._read("edge", rows, np.int64):
            yield pairs[:, 0], pairs[:, 1]

    def _read(self, name: str, rows: int, dtype: Any) -> Iterator[Array]:
        path = self._paths[name]
        columns = tuple(map(str, range(len(text_columns(path, unnamed=True)))))
        wanted = [Wanted("values", columns, dtype, flat=False)]
        return (block.columns["values"] for block in text_rows(path, wanted, rows, columns))


class _Binary:
    """`data.npz` with edge_index and node_feat, and `node-label.npz`."""

    def __init__(self, raw: Path) -> None:
        self.files = [raw / "data.npz", raw / "node-label.npz"]
        require_files(*self.files)
        self._x, self._edges = _arrays(self.files[0], "node_feat", "edge_index")
        (self._y,) = _arrays(self.files[1], "node_label")
        if len(self._x.shape) != 2 or 0 in self._x.shape or self._y.shape[:1] != self._x.shape[:1]:
            shapes = f"{list(self._x.shape)} and {list(self._y.shape)}"
            raise InputError(f"{raw}: node_feat and node_label have shapes {shapes}; expected one row for each node")
        if len(self._edges.shape) != 2 or self._edges.shape[0] != 2 or self._edges.dtype.kind not in "iu":
            raise InputError(
                f"{raw}: edge_index has shape {list(self._edges.shape)} and dtype {self._edges.dtype}; expected "
                "[2, edges] integers"
            )
        self.nodes, self.features = self._x.shape
        self.edges = self._edges.shape[1]

    def node_rows(self, rows: int) -> Iterator[tuple[Array, Array]]:
        with open_archive(self.files[0], _ADVICE), open_archive(self.files[1], _ADVICE):
            yield from zip(self._x.rows(rows), self._y.rows(rows), strict=True)

    def edge_rows(self, rows: int) -> Iterator[tuple[Array, Array]]:
        with open_archive(self.files[0], _ADVICE):
            for block in self._edges.columns(rows):
                yield block[0], block[1]


def _arrays(path: Path, *names: str) -> list[ZipArray]:
    with reading_file(path), open_archive(path, _ADVICE) as archive:
        if missing := [name for name in names if f"{name}.npy" not in archive.namelist()]:
            raise InputError(f"has no {missing[0]}; expected {', '.join(names)}")
        check_members(archive, [f"{name}.npy" for name in names], room=False)
        return [ZipArray.find(archive, path, name) for name in names]


def _column(path: Path) -> npt.NDArray[np.int64]:
    """Return the numbers in a file with one in each line."""
    blocks = [rows.columns["0"] for rows in text_rows(path, [Wanted("0", ("0",), np.int64)], _BLOCK, ("0",))]
    return np.concatenate(blocks) if blocks else np.empty(0, np.int64)
