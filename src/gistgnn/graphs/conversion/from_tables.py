"""A table of edges and a table of nodes as a source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable
from gistgnn.graphs.cache import fingerprint
from gistgnn.graphs.conversion.source import EdgeBlock, NodeBlock, Source
from gistgnn.graphs.conversion.tables import Table
from gistgnn.graphs.conversion.text_tables import Rows, Wanted
from gistgnn.graphs.on_disk.opening import SPLITS

Array = npt.NDArray[Any]

_ENDS = ("source", "target")
_NODE, _SPLIT = "node", "split"
_EDGE_BYTES = 8  # of a row of edges in a file, at least about
_SEVERAL = re.compile(r"y\d+")


class TablesSource(Source):
    """A table of edges with the columns `source` and `target`, and a table of nodes.

    The table of nodes has one row for each node, in the order of their numbers, with the columns `y` (or `y0`, `y1`,
    ... for several labels), `split` (train, val, test or empty) and optionally `node`, the node's number. All other
    columns are features. In Parquet, `x` and `y` may be columns of lists.

    Args:
        edges: see `Table`.
        nodes: likewise.

    Raises:
        InputError: a table is missing, or has other columns.
    """

    def __init__(self, edges: Path, nodes: Path) -> None:
        self._edges, self._nodes = Table(edges), Table(nodes)
        self.name = printable(edges.name.partition(".")[0])
        if set(self._edges.columns) != set(_ENDS):
            found = ", ".join(self._edges.columns)
            raise InputError(
                f"{edges}: the columns are {found}; expected source and target alone (edge data comes from a .npz or "
                ".pt)"
            )
        self._columns = self._find(self._nodes)
        self.features = self._width("x")
        self.nodes = self._nodes.count
        self.edges, self.counted = self._edges.bytes // _EDGE_BYTES, False
        if (count := self._edges.count) is not None:
            self.edges, self.counted = count, True

    @property
    def key(self) -> str:
        """The files' paths, sizes and times."""
        return fingerprint([*self._edges.files, *self._nodes.files])

    def node_blocks(self, rows: int) -> Iterator[NodeBlock]:
        """Yield all nodes."""
        start = 0
        for block in self._nodes.rows(list(self._columns.values()), rows):
            self._check_numbers(block, start)
            called = [partial(self._called, name, block) for name in ("x", "y")]
            yield NodeBlock(start, block.columns["x"], block.columns["y"], _splits(block), *called)
            start += len(block)

    def edge_blocks(self, rows: int) -> Iterator[EdgeBlock]:
        """Yield all edges."""
        for block in self._edges.rows([Wanted(end, (end,), np.int64) for end in _ENDS], rows):
            yield EdgeBlock(block.columns["source"], block.columns["target"], partial(_end_called, block))

    def _find(self, table: Table) -> dict[str, Wanted]:
        """Return the columns that are read of the table of nodes, by name."""
        names = table.columns
        several = [name for name in names if _SEVERAL.fullmatch(name)]
        labels = ["y"] if "y" in names else several
        if not labels or _SPLIT not in names:
            missing = _SPLIT if labels else "y"
            raise InputError(f"{table.path}: there is no column {missing}; expected y, split, and features")
        features = [name for name in names if name not in (*labels, _SPLIT, _NODE)]
        if not features:
            raise InputError(f"{table.path}: there are no features; expected more columns than y and split")
        lists = "x" in names and table.width("x") is not None
        if lists and len(features) > 1:
            other = next(name for name in features if name != "x")
            raise InputError(f"{table.path}: the column {other} is beside x; expected features in x alone")
        flat = len(labels) == 1 and table.width(labels[0]) is None
        found = {
            "x": Wanted("x", tuple(features), np.float64, flat=False),
            "y": Wanted("y", tuple(labels), np.float64, flat=flat),
            _SPLIT: Wanted(_SPLIT, (_SPLIT,), str),
        }
        return found | ({_NODE: Wanted(_NODE, (_NODE,), np.int64)} if _NODE in names else {})

    def _width(self, name: str) -> int:
        columns = self._columns[name].columns
        return (self._nodes.width(columns[0]) if len(columns) == 1 else None) or len(columns)

    def _called(self, name: str, block: Rows, row: int, column: int) -> str:
        columns = self._columns[name].columns
        shown = f"{columns[0]}[{column}]" if self._nodes.width(columns[0]) is not None else columns[column]
        return f"{block.place(row)}: {shown}"

    def _check_numbers(self, block: Rows, start: int) -> None:
        if _NODE not in self._columns:
            return
        numbers = block.columns[_NODE]
        wrong = numbers != np.arange(start, start + len(numbers))
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"{block.place(row)}: node is {numbers[row]}; expected {start + row}: sort the rows by node, from 0, "
                "without gaps"
            )


def _end_called(block: Rows, row: int, column: int) -> str:
    return f"{block.place(row)}: {_ENDS[column]}"


def _splits(block: Rows) -> npt.NDArray[np.uint8]:
    texts = np.char.strip(block.columns[_SPLIT])
    split = np.zeros(len(texts), np.uint8)
    known = texts == ""
    for name, number in SPLITS.items():
        split[texts == name] = number
        known |= texts == name
    if not known.all():
        row = int((~known).argmax())
        said = repr(printable(texts[row])[:80])
        raise InputError(f"{block.place(row)}: split is {said}; expected train, val, test or nothing")
    return split
