"""Writing a graph folder: its arrays, row by row, and the folder, whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from gistgnn.errors import InputError
from gistgnn.graphs.folder import HEADER, ArrayEntry, Manifest, Task
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.splits import SPLITS
from gistgnn.storage.folder_lock import locked
from gistgnn.storage.whole_files import TEMPORARY, unwritable

Array = npt.NDArray[Any]

X_DTYPES = ("float32", "float16")
"""The types that features may have in a folder."""


class ArrayWriter:
    """Writes the rows of an array to the file ``folder/name.npy``; ``columns`` is the shape of a row."""

    def __init__(self, folder: Path, name: str, dtype: npt.DTypeLike, columns: tuple[int, ...] = ()) -> None:
        self.dtype, self.columns, self.rows = np.dtype(dtype), columns, 0
        self._hashed, self._file = xxhash.xxh3_64(), (folder / f"{name}.npy").open("wb")
        self._file.write(self._header())

    def append(self, values: Array) -> None:
        """Write more rows, or raise an OSError."""
        data = np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data
        self._file.write(data)
        self._hashed.update(data)
        self.rows += len(values)

    def finish(self) -> ArrayEntry:
        """Write the header with the number of rows, wait for the disk, and return the manifest's entry."""
        self._file.seek(0)
        self._file.write(self._header())
        self._hashed.update(self._header())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return ArrayEntry(self.dtype.name, (self.rows, *self.columns), self._hashed.hexdigest())

    def _header(self) -> bytes:
        """Return a header of `HEADER` bytes: NumPy leaves room for the number of rows to grow."""
        facts = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, *self.columns)}
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, facts)
        assert buffer.tell() == HEADER
        return buffer.getvalue()


def write_array(folder: Path, name: str, values: Array) -> ArrayEntry:
    """Write a whole array."""
    writer = ArrayWriter(folder, name, values.dtype, values.shape[1:])
    writer.append(values)
    return writer.finish()


def stored_features(x: Array, dtype: str, first: int = 0) -> Array:
    """Return features [n, F] in the type of the folder; ``first`` is the number of the first node, for messages."""
    with np.errstate(over="ignore"):
        stored: Array = x.astype(dtype, copy=False)
    if dtype == "float16" and not np.isfinite(stored).all():
        row, column = np.argwhere(~np.isfinite(stored))[0]
        what = f"x[{first + row}, {column}] is {x[row, column]}, which float16 does not hold (at most 65,504)"
        raise InputError(f"{what}: choose --dtype float32")
    return stored


def write_graph(graph: Graph, folder: Path, dtype: str = "float32") -> None:
    """Write a graph in memory, with its manifest, into a folder that is empty; features in ``dtype`` of `X_DTYPES`."""
    graph = graph.to("cpu")
    split = sum(number * getattr(graph, name).numpy().astype(np.uint8) for name, number in SPLITS.items())
    tensors = {"rowptr": graph.edges.rowptr.long(), "col": graph.edges.col.int(), **graph.edge_data}
    values = {name: tensor.numpy() for name, tensor in tensors.items()}
    values |= {"x": stored_features(graph.x.numpy(), dtype), "y": graph.y.numpy(), "split": split}
    arrays = {name: write_array(folder, name, value) for name, value in values.items()}
    task: Task = "regression" if graph.regression else "multi-label" if graph.multi_label else "single-label"
    sizes = graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes
    Manifest(graph.name, task, *sizes, arrays).write(folder)


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside ``target``. It becomes ``target`` if the block ends without an error, or it goes.

    What a killed process left is removed first. ``target`` must not exist, or be an empty folder; a link stands for the
    place that it leads to.
    """
    target = Path(os.path.realpath(target))
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"{target} is there already: choose another folder, or remove it")
        with locked(target, beside=True, advice="choose another folder"):
            folder = target.with_name(f"{TEMPORARY}convert-{target.name}")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                folder.mkdir(parents=True)
                yield folder
                folder.rename(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise unwritable(target, error) from error
