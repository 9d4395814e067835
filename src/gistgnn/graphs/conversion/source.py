"""What a graph is converted from: nodes and edges in blocks, so that it need not fit in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError

Array = npt.NDArray[Any]

Called = Callable[[int, int], str]
"""Returns what messages call a value of a block, given its row in the block and its column."""


@dataclass
class NodeBlock:
    """Consecutive nodes.

    Attributes:
        start: the number of the first one.
        x: [n, F] numbers.
        y: [n] or [n, K] numbers.
        split: [n] uint8, see `gistgnn.graphs.on_disk.opening.SPLITS`.
        x_called: what messages call a feature.
        y_called: what they call a label.
    """

    start: int
    x: Array
    y: Array
    split: npt.NDArray[np.uint8]
    x_called: Called
    y_called: Called

    @classmethod
    def plain(cls, start: int, x: Array, y: Array, split: npt.NDArray[np.uint8]) -> NodeBlock:
        """Return a block whose values are called as those of arrays."""
        return cls(
            start,
            x,
            y,
            split,
            lambda row, column: f"x[{start + row}, {column}]",
            lambda row, column: f"y[{start + row}, {column}]" if y.ndim == 2 else f"y[{start + row}]",
        )


@dataclass
class EdgeBlock:
    """Some edges.

    Attributes:
        source: [n] integers.
        target: [n] integers.
        called: what messages call an end of an edge; column 0 is the source, 1 the target.
    """

    source: Array
    target: Array
    called: Called


class Source(ABC):
    """A graph that is read in blocks, as often as it is needed.

    Attributes:
        name: of the graph.
        features: F.
        classes: C, or K labels or targets; None: found from the labels.
        nodes: N; None: not known before all nodes are read.
        edges: how many edges `edge_blocks` yields, to plan memory and disk.
        counted: whether `edges` is exact; otherwise it is a guess from the sizes of files.
        place: of the files, where messages about their content do not name it themselves.
        undirected: whether the reverse of every edge is added, unless the user says otherwise.
        regression: whether y holds numbers to be predicted.
    """

    name: str
    features: int
    classes: int | None = None
    nodes: int | None = None
    edges: int = 0
    counted: bool = True
    place: str = ""
    undirected: ClassVar[bool] = False
    regression: bool = False

    @property
    @abstractmethod
    def key(self) -> str:
        """All that decides the graph, such as the sizes and times of its files."""

    @abstractmethod
    def node_blocks(self, rows: int) -> Iterator[NodeBlock]:
        """Yield all nodes in order, in blocks of at most ``rows``.

        Raises:
            InputError: they cannot be read, or are wrong.
        """

    @abstractmethod
    def edge_blocks(self, rows: int) -> Iterator[EdgeBlock]:
        """Yield all edges, in any order, in blocks of at most ``rows``.

        Raises:
            InputError: likewise.
        """


def split_numbers(parts: dict[str, Array], nodes: int) -> npt.NDArray[np.uint8]:
    """Return the number of every node's split: [N], from masks or node numbers by the names of the splits.

    Raises:
        InputError: a mask of another length, a number out of range or twice, or nodes in two splits.
    """
    from gistgnn.graphs.on_disk.opening import SPLITS

    split = np.zeros(nodes, np.uint8)
    for name, number in SPLITS.items():
        chosen = _node_numbers(parts[name], name, nodes)
        if (taken := split[chosen]).any():
            other = next(key for key, value in SPLITS.items() if value == taken[taken > 0][0])
            if other == name or number == taken[taken > 0][0]:
                raise InputError(_twice(name, int(chosen[taken > 0][0])))
            first = int(chosen[taken == SPLITS[other]].min())
            shared = int((taken == SPLITS[other]).sum())
            raise InputError(
                f"{other} and {name} share {shared} nodes, the first is node {first}; expected disjoint splits"
            )
        split[chosen] = number
    return split


def _node_numbers(values: Array, name: str, nodes: int) -> Array:
    if values.ndim != 1:
        raise InputError(f"{name} has shape {list(values.shape)}; expected a mask [nodes] or a list of node numbers")
    if values.dtype == bool:
        if len(values) != nodes:
            raise InputError(f"{name} is a mask of length {len(values)}; expected {nodes}, one entry per node")
        return np.flatnonzero(values)
    if values.dtype.kind not in "iu":
        raise InputError(f"{name} has dtype {values.dtype}; expected a bool mask or integer node numbers")
    wrong = (values < 0) | (values >= nodes)
    if wrong.any():
        place = int(wrong.argmax())
        raise InputError(f"{name}[{place}] is {values[place]}; expected node numbers from 0 to {nodes - 1}")
    ordered = np.sort(values)
    same = ordered[1:] == ordered[:-1]
    if same.any():
        raise InputError(_twice(name, int(ordered[1:][same][0])))
    return values


def _twice(name: str, node: int) -> str:
    return f"{name} holds node {node} more than once; expected distinct node numbers (if it is a mask, make it bool)"


def numbers_only(array_dtype: np.dtype[Any], name: str) -> None:
    """Refuse what is no real number.

    Raises:
        InputError: the dtype is of something else.
    """
    if array_dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {array_dtype}; expected a dense array of real numbers")


def require_files(*paths: Path) -> None:
    """Refuse what is missing or no regular file.

    Raises:
        InputError: a path is.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if not path.is_file():
            raise InputError(f"{path}: expected a regular file")
