"""What a graph is converted from, if it need not fit in memory: its nodes in blocks, and a query for its edges.

A source has the method ``node_blocks``, which yields features [n, F], labels [n] or [n, K] and splits [n] (see
`gistgnn.graphs.splits.SPLITS`), and the method ``edges``, which returns SQL for all edges with the columns source and
target. In messages, its nodes are at ``nodes_in`` and its edges at ``edges_in``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable
from gistgnn.graphs.duck import block_rows, columns_of, database, is_table, quoted, table, table_files
from gistgnn.graphs.folder import MANIFEST
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.named import find, load
from gistgnn.graphs.ogb import OgbFiles, is_ogb
from gistgnn.graphs.splits import SPLITS
from gistgnn.graphs.synthetic_blocks import Blocks

Array = npt.NDArray[Any]


_ENDS = ("source", "target")
_NODE, _SPLIT = "node", "split"
_SEVERAL = re.compile(r"y\d+")
_NUMBER = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN)(\[\d*\])?")


class TablesSource:
    """A table of edges with the columns `source` and `target`, and a table of nodes.

    The table of nodes has one row for each node, in the order of their numbers, with the columns `y` (or `y0`, `y1`,
    ... for several labels), `split` (train, val, test or empty) and optionally `node`, the node's number. All other
    columns are features. In Parquet, `x` and `y` may be columns of lists.

    Args:
        edges: a table in CSV or Parquet, or a folder of such files.
        nodes: likewise.

    Raises:
        InputError: a table is missing, or has other columns.
    """

    classes, undirected = None, False

    def __init__(self, edges: Path, nodes: Path) -> None:
        self.name, self.edges_in, self.nodes_in = printable(edges.name.partition(".")[0]), str(edges), str(nodes)
        self._edges, self._nodes = table_files(edges), table_files(nodes)
        with database() as connection:
            self._edge_types = _numbers(edges, columns_of(connection, self._edges), _ENDS)
            if set(self._edge_types) != set(_ENDS):
                found = ", ".join(self._edge_types)
                hint = "expected source and target alone (edge data comes from a .npz or .pt)"
                raise InputError(f"{edges}: the columns are {found}; {hint}")
            types = columns_of(connection, self._nodes)
        self._y = ["y"] if "y" in types else [name for name in types if _SEVERAL.fullmatch(name)]
        if not self._y or _SPLIT not in types:
            lacking = _SPLIT if self._y else "y"
            raise InputError(f"{nodes}: there is no column {lacking}; expected y, split, and features")
        self._x = [name for name in types if name not in (*self._y, _SPLIT, _NODE)]
        if not self._x:
            raise InputError(f"{nodes}: there are no features; expected more columns than y and split")
        self._types = _numbers(nodes, types, [name for name in types if name != _SPLIT])

    def node_blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield all nodes."""
        start = 0
        with database() as connection:
            names = ", ".join(quoted(name, '"') for name in self._types)
            query = f"SELECT {names} FROM {table(self._nodes, self._types)}"
            for batch in connection.sql(query).to_arrow_reader(block_rows(len(self._x))):
                if _NODE in self._types:
                    _check_numbers(_matrix(batch, [_NODE], start)[:, 0], start)
                x, y = _matrix(batch, self._x, start), _matrix(batch, self._y, start)
                yield x, y[:, 0] if y.shape[1] == 1 else y.astype(np.float32), _splits(batch.column(_SPLIT), start)
                start += len(x)

    def edges(self, connection: Any, folder: Path) -> str:
        """Return SQL for all edges."""
        return f"SELECT source, target FROM {table(self._edges, self._edge_types)}"


def _numbers(path: Path, types: dict[str, str], names: Any) -> dict[str, str]:
    """Return how columns are read: numbers in text as DOUBLE. Refuse other types in Parquet."""
    for name in names:
        kind = types.get(name, "BIGINT")
        if kind and (not _NUMBER.fullmatch(kind) or (name in _ENDS and "INT" not in kind)):
            expected = "integers" if name in _ENDS else "numbers"
            raise InputError(f"{path}: the column {name} is {kind}; expected {expected}")
    return {name: kind or ("DOUBLE" if name in names else "") for name, kind in types.items()}


def _matrix(batch: Any, names: list[str], start: int) -> Array:
    """Return columns of numbers, or a column of lists, side by side: [n, k]."""
    columns = []
    for name in names:
        column = batch.column(name)
        flat = column.flatten() if hasattr(column, "flatten") else column
        if column.null_count or flat.null_count:
            row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
            raise InputError(f"{name} of node {start + row} is missing; expected a number")
        if hasattr(column, "offsets") and len(np.unique(np.diff(column.offsets))) > 1:
            raise InputError(f"{name} has lists of different lengths from node {start} on")
        columns.append(flat.to_numpy(zero_copy_only=False).reshape(len(column), -1))
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _check_numbers(numbers: Array, start: int) -> None:
    wrong = numbers != np.arange(start, start + len(numbers))
    if wrong.any():
        row = int(wrong.argmax())
        hint = "sort the rows by node, from 0, without gaps"
        raise InputError(f"node is {numbers[row]:g} in the row of node {start + row}: {hint}")


def _splits(column: Any, start: int) -> npt.NDArray[np.uint8]:
    known = {**SPLITS, "": 0}
    texts = [(text or "").strip() for text in column.to_pylist()]
    for row, text in enumerate(texts):
        if text not in known:
            said = repr(printable(text)[:80])
            raise InputError(f"split of node {start + row} is {said}; expected train, val, test or nothing")
    return np.array([known[text] for text in texts], np.uint8)


Source = Blocks | TablesSource | OgbFiles


def find_source(name_or_path: str | Path, nodes: Path | None, data_root: str | Path) -> Source | Graph:
    """Return the source of a name or a path; a graph, if it has to be in memory.

    ``nodes`` is the table of nodes, for a table of edges; see `convert`.

    Raises:
        InputError: there is no such thing, or it cannot be read.
    """
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    info, is_raw = find(name), is_ogb(path)
    is_edges = info is None and (is_table(path) or (path.is_dir() and not is_raw and not (path / MANIFEST).exists()))
    if nodes is not None and not is_edges:
        raise InputError(f"{name}: a table of nodes is given, but this is no table of edges: leave --nodes out")
    if info is not None:
        return Blocks(info) if info.reader == "synthetic_blocks" else load(name, data_root)
    if is_edges and nodes is None:
        raise InputError(f"{path}: to convert a table of edges, give the table of nodes as well: --nodes TABLE")
    if nodes is not None:
        return TablesSource(path, nodes.expanduser())
    return OgbFiles(path) if is_raw else load(name_or_path, data_root)
