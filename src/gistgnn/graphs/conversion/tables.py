"""A table of edges and a table of nodes as a source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable
from gistgnn.graphs.duck import block_rows, columns_of, database, quoted, table, table_files
from gistgnn.graphs.folder import SPLITS

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
                raise InputError(
                    f"{edges}: the columns are {found}; expected source and target alone (edge data comes from a .npz "
                    "or .pt)"
                )
            types = columns_of(connection, self._nodes)
        self._y = ["y"] if "y" in types else [name for name in types if _SEVERAL.fullmatch(name)]
        if not self._y or _SPLIT not in types:
            raise InputError(
                f"{nodes}: there is no column {_SPLIT if self._y else 'y'}; expected y, split, and features"
            )
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
            raise InputError(
                f"{path}: the column {name} is {kind}; expected {'integers' if name in _ENDS else 'numbers'}"
            )
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
        if len(flat) % max(len(column), 1):
            raise InputError(f"{name} has lists of different lengths from node {start} on")
        columns.append(flat.to_numpy(zero_copy_only=False).reshape(len(column), -1))
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _check_numbers(numbers: Array, start: int) -> None:
    wrong = numbers != np.arange(start, start + len(numbers))
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"node is {numbers[row]:g} in the row of node {start + row}: sort the rows by node, from 0, without gaps"
        )


def _splits(column: Any, start: int) -> npt.NDArray[np.uint8]:
    known = {**SPLITS, "": 0}
    texts = [(text or "").strip() for text in column.to_pylist()]
    for row, text in enumerate(texts):
        if text not in known:
            said = repr(printable(text)[:80])
            raise InputError(f"split of node {start + row} is {said}; expected train, val, test or nothing")
    return np.array([known[text] for text in texts], np.uint8)
