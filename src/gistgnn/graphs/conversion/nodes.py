"""The pass over the nodes: x, y and split are checked and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.conversion.source import Array, NodeBlock, Source
from gistgnn.graphs.on_disk.making import Making
from gistgnn.graphs.on_disk.manifest import StoredArray
from gistgnn.graphs.on_disk.npy import ArrayWriter
from gistgnn.graphs.on_disk.opening import SPLITS

X_DTYPES = ("float32", "float16", "int8")
_LEVELS = 127  # of int8, on each side of 0


class Labels:
    """Checks labels block by block, as `gistgnn.graphs.checks` does for a whole graph.

    Args:
        classes: C, or K; None: found from the labels.
        regression: they are targets.
    """

    def __init__(self, classes: int | None, regression: bool) -> None:
        self._given, self._regression = classes, regression
        self._columns: int | None = None  # K; 0: one label for each node
        self._lowest, self._largest, self._at = 2**63, -1, ""

    @property
    def task(self) -> str:
        """One of `gistgnn.graphs.on_disk.manifest.TASKS`."""
        if self._regression:
            return "regression"
        return "multi-label" if self._columns else "single-label"

    def checked(self, block: NodeBlock) -> Array:
        """Return labels as they are stored: [n] int64, or [n, K] float32.

        Raises:
            InputError: another shape, or a value out of range.
        """
        y = block.y
        if y.ndim == 2 and y.shape[1] == 1 and not self._regression:
            y = y[:, 0]
        if self._regression:
            y = y.reshape(len(y), -1)
        if self._columns is None:
            self._columns = y.shape[1] if y.ndim == 2 else 0
            if self._columns and self._given not in (None, self._columns):
                raise InputError(
                    f"y has {self._columns} columns and num_classes is {self._given}; expected them to be equal"
                )
        if self._regression:
            return y.astype(np.float32)
        return self._several(y, block) if self._columns else self._single(y, block)

    def classes(self, nodes: int) -> int:
        """Return C or K, when all labels are checked.

        Raises:
            InputError: there are fewer than two classes, or more than nodes.
        """
        if self._columns:
            return self._columns
        if self._given is not None:
            return self._given
        if self._largest >= nodes:
            raise InputError(
                f"{self._at} is {self._largest}, which makes more classes than the {nodes} nodes; expected labels "
                "0, 1, ..., classes - 1: renumber them, or give num_classes"
            )
        if self._largest <= min(self._lowest, self._largest):
            labels = "no label but -1 (unlabelled)" if self._largest < 0 else f"only the label {self._largest}"
            raise InputError(f"y holds {labels}; expected at least 2 classes")
        return self._largest + 1

    def _several(self, y: Array, block: NodeBlock) -> Array:
        wrong = (y != 0) & (y != 1)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InputError(
                f"{block.y_called(row, column)} is {y[row, column]}; expected 0 or 1 in labels of shape [nodes, labels]"
            )
        return y.astype(np.float32)

    def _single(self, y: Array, block: NodeBlock) -> Array:
        if y.dtype.kind == "f":
            wrong = ~np.isfinite(y) | (y != np.floor(y))
            if wrong.any():
                row = int(wrong.argmax())
                raise InputError(
                    f"{block.y_called(row, 0)} is {y[row]}; expected an integer label, or -1 for an unlabelled node"
                )
        y = y.astype(np.int64)
        low, high = int(y.argmin()), int(y.argmax())
        if y[low] < -1:
            raise InputError(
                f"{block.y_called(low, 0)} is {y[low]}; expected labels from 0 up, or -1 for an unlabelled node"
            )
        if self._given is not None and y[high] >= self._given:
            raise InputError(
                f"{block.y_called(high, 0)} is {y[high]}; expected labels below num_classes, which is {self._given}"
            )
        if y[high] > self._largest:
            self._largest, self._at = int(y[high]), block.y_called(high, 0)
        labelled = y[y >= 0]
        self._lowest = min(self._lowest, int(labelled.min())) if len(labelled) else self._lowest
        return y


def checked_features(block: NodeBlock, features: int) -> npt.NDArray[np.float32]:
    """Return features as float32.

    Raises:
        InputError: NaN or infinity.
    """
    with np.errstate(over="ignore"):
        x = block.x.astype(np.float32)
    if x.shape[1] != features:
        raise InputError(f"x has {x.shape[1]} columns from row {block.start} on; expected {features}")
    if not (np.isfinite(x.min()) and np.isfinite(x.max())):
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise InputError(
            f"{block.x_called(row, column)} is {x[row, column]}; expected finite float32 values: clean or impute the "
            f"features of node {block.start + row} (the first such row)"
        )
    return x


def largest_features(source: Source, rows: int, seen: Callable[[int], None]) -> list[float]:
    """Return the largest absolute value of every feature: [F]."""
    largest = np.zeros(source.features, np.float32)
    for block in source.node_blocks(rows):
        np.maximum(largest, np.abs(checked_features(block, source.features)).max(axis=0), out=largest)
        seen(block.start + len(block.x))
    return [float(value) for value in largest]


def write_nodes(
    source: Source, work: Making, dtype: str, largest: list[float] | None, rows: int, seen: Callable[[int], None]
) -> dict[str, Any]:
    """Write `x.npy`, `x_scale.npy`, `y.npy` and `split.npy`, and return what the manifest needs of them.

    Args:
        source: the graph.
        work: the folder.
        dtype: one of `X_DTYPES`.
        largest: for int8, of `largest_features`.
        rows: of a block.
        seen: is called with the number of nodes that are written.

    Raises:
        InputError: wrong values.
        OSError: the files cannot be written.
    """
    labels, counts = Labels(source.classes, source.regression), np.zeros(4, np.int64)
    scale = None
    if dtype == "int8":
        tops = np.array(largest, np.float32)
        step = tops / np.float32(_LEVELS)
        scale = np.where(step > 0, step, np.float32(1)).astype(np.float32)
    arrays: dict[str, StoredArray] = {}
    with ExitStack() as stack:
        x_file = stack.enter_context(ArrayWriter(work.folder / "x.npy", dtype, (source.features,)))
        split_file = stack.enter_context(ArrayWriter(work.folder / "split.npy", np.uint8))
        y_file: ArrayWriter | None = None
        for block in source.node_blocks(rows):
            y = labels.checked(block)
            if y_file is None:
                y_file = stack.enter_context(ArrayWriter(work.folder / "y.npy", y.dtype, y.shape[1:]))
            _check_splits(block, y)
            x_file.append(_stored(checked_features(block, source.features), block, dtype, scale))
            y_file.append(y)
            split_file.append(block.split)
            counts += np.bincount(block.split, minlength=4)
            seen(x_file.rows)
        if y_file is None:
            raise InputError("there are no nodes; expected at least one")
        for name, number in SPLITS.items():
            if not counts[number]:
                raise InputError(f"{name} is empty; expected at least one node")
        nodes, classes = x_file.rows, labels.classes(x_file.rows)
        arrays = {"x": x_file.finish(), "y": y_file.finish(), "split": split_file.finish()}
    if scale is not None:
        with ArrayWriter(work.folder / "x_scale.npy", np.float32) as file:
            file.append(scale)
            arrays["x_scale"] = file.finish()
    return {"nodes": nodes, "classes": classes, "task": labels.task, "arrays": arrays}


def _check_splits(block: NodeBlock, y: Array) -> None:
    wrong = (block.split > 0) & ((y < 0) if y.ndim == 1 else ~np.isfinite(y).all(axis=1))
    if wrong.any():
        row = int(wrong.argmax())
        name = next(name for name, number in SPLITS.items() if number == block.split[row])
        value = "-1 (unlabelled)" if y.ndim == 1 else "not finite"
        raise InputError(
            f"{block.y_called(row, 0)} is {value}, but {name} holds node {block.start + row}; expected labelled nodes "
            f"only: take it out of {name}"
        )


def _stored(x: Array, block: NodeBlock, dtype: str, scale: Array | None) -> Array:
    if scale is not None:
        return np.rint(x / scale).clip(-_LEVELS, _LEVELS).astype(np.int8)
    if dtype == "float32":
        return x
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    if not (np.isfinite(half.min()) and np.isfinite(half.max())):
        row, column = np.argwhere(~np.isfinite(half))[0]
        raise InputError(
            f"{block.x_called(row, column)} is {x[row, column]}, which float16 does not hold (at most 65,504): choose "
            "--dtype float32 or int8"
        )
    return half


def row_blocks(total: int, rows: int) -> Iterator[slice]:
    """Cut ``total`` rows into slices of at most ``rows``."""
    return (slice(start, min(start + rows, total)) for start in range(0, total, rows))
