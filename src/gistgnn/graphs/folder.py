"""A graph as a folder of `.npy` files, which are mapped: read, checked and written.

docs/how-to/data.md describes the folder.
"""

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.checks import EDGE_DATA, check_classes, check_table, dense
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.graph import SPLITS, Graph, masks_of
from gistgnn.storage.folder_lock import FolderLock
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import check_digest, file_digest, map_array
from gistgnn.storage.whole_files import TEMPORARY, reading, writing
from gistgnn.utils.checks import LONGEST_NAME
from gistgnn.utils.tensors import Array, remember_digest

MANIFEST = "manifest.json"
HEADER = 128  # bytes before the values of a `.npy` file that gistgnn writes

_ADVICE = "convert the graph again"
_ROWS = 2**20  # nodes that are checked at once

Task = Literal["single-label", "multi-label", "regression"]


class ArrayEntry(msgspec.Struct, frozen=True):
    """What the manifest says of one array; ``xxh3`` is the digest of its file."""

    dtype: str
    shape: tuple[int, ...]
    xxh3: str


class Manifest(msgspec.Struct, frozen=True):
    """What `manifest.json` says: docs/how-to/data.md lists its entries."""

    name: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
    task: Task
    nodes: int
    edges: int
    features: int
    classes: int
    arrays: dict[str, ArrayEntry]
    class_names: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    version: Literal[3] = 3

    @property
    def nbytes(self) -> int:
        return sum(
            int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize
            for array in self.arrays.values()
        )

    def write(self, folder: Path) -> None:
        """Write `manifest.json` into a folder."""
        write_json(folder / MANIFEST, self, indent=1)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the `manifest.json` of a folder.

        It is an `InputError` if there is none, or if it is damaged.
        """
        path = folder / MANIFEST
        if not path.exists():
            check_table(folder)
            raise InputError(f"{folder} has no {MANIFEST}; expected a folder of `gistgnn convert`")
        manifest = read_json(path, cls, _ADVICE)
        if not _NEEDED <= manifest.arrays.keys() <= _NEEDED | _OPTIONAL:
            raise InputError(
                f"{path} is damaged: it names other arrays than a graph has; {_ADVICE}"
            )
        return manifest


# The arrays that all graphs have, those on nodes that some have, and all that some have.
_NEEDED = {"rowptr", "col", "x", "y", "split"}
_OF_NODES = ("node", "cluster_ptr", "id")
_OPTIONAL = {*EDGE_DATA, *_OF_NODES}


def open_arrays(folder: Path) -> tuple[Manifest, dict[str, Tensor]]:
    """Read the manifest of a graph folder, and map its arrays.

    A file that is cut short, or is not the array that the manifest says, is an InputError.
    """
    manifest = Manifest.read(folder)
    written = _last_change(folder / MANIFEST)
    arrays = {}
    for name, entry in manifest.arrays.items():
        path = folder / f"{name}.npy"
        with reading(path, _ADVICE):
            array = arrays[name] = map_array(path)
        form = str(array.dtype).removeprefix("torch."), tuple(array.shape)
        if form != (entry.dtype, entry.shape) or path.stat().st_size != HEADER + array.nbytes:
            raise InputError(
                f"{path} is not the {entry.dtype} {list(entry.shape)} that {MANIFEST} says; "
                f"{_ADVICE}"
            )
        if _last_change(path) <= written:  # a file that was changed later has another digest
            remember_digest(array, entry.xxh3)
    return manifest, arrays


def _last_change(path: Path) -> int:
    """Return when a file was changed last, in nanoseconds.

    A copy that keeps the old time counts as a change.
    """
    state = path.stat()
    return max(state.st_mtime_ns, state.st_ctime_ns)


def load_folder(folder: Path, *, in_memory: bool = False) -> Graph:
    """Return the graph in a folder.

    Features, edges and edge data are mapped: they are read when they are used. Nothing may be
    written into a mapped tensor: the system ends a process that does.

    Args:
        folder: one that `gistgnn convert` or `gistgnn partition --out` has made.
        in_memory: read all tensors.
    """
    manifest, arrays = open_arrays(folder)
    _check_values(folder, manifest, arrays)
    small = ("y", "cluster_ptr")
    arrays = {
        name: array.clone() if in_memory or name in small else array
        for name, array in arrays.items()
    }
    return Graph(
        arrays["x"],
        CSR(arrays["rowptr"], arrays["col"]),
        arrays["y"],
        **masks_of(arrays["split"]),
        num_classes=manifest.classes,
        name=manifest.name,
        regression=manifest.task == "regression",
        **{name: arrays[name] for name in EDGE_DATA if name in arrays},
        folder=None if in_memory else folder.absolute(),
        cluster_ptr=arrays.get("cluster_ptr"),
        class_names=manifest.class_names or (),
    )


def _check_values(folder: Path, manifest: Manifest, arrays: dict[str, Tensor]) -> None:
    """Check what would make a product read memory that is not its own, or a loss fail."""
    y = arrays["y"]
    split = arrays["split"]
    edges = manifest.edges
    if manifest.task == "single-label":
        check_classes(manifest.classes, manifest.nodes)
    if manifest.class_names and len(manifest.class_names) != manifest.classes:
        raise InputError(
            f"{folder / MANIFEST} is damaged: it does not name {manifest.classes} classes; "
            f"{_ADVICE}"
        )
    if not _rises(arrays["rowptr"], edges, 0):
        raise _damaged(folder, "rowptr", f"does not rise from 0 to {edges}")
    if manifest.task == "single-label" and (int(y.min()) < -1 or int(y.max()) >= manifest.classes):
        raise _damaged(folder, "y", f"holds a label outside of -1 to {manifest.classes - 1}")
    if int(split.max()) > max(SPLITS.values()) or (y.ndim == 1 and bool((y[split > 0] < 0).any())):
        problem = "holds another number than 0 to 3, or has a node without a label in a split"
        raise _damaged(folder, "split", problem)
    if "cluster_ptr" in arrays and not _rises(arrays["cluster_ptr"], manifest.nodes, 1):
        problem = f"does not rise strictly from 0 to {manifest.nodes}"
        raise _damaged(folder, "cluster_ptr", problem)


def _damaged(folder: Path, name: str, problem: str) -> InputError:
    return InputError(f"{folder / name}.npy is damaged: it {problem}; {_ADVICE}")


def _rises(bounds: Tensor, last: int, least: int) -> bool:
    """Tell whether bounds rise from 0 to ``last``, by ``least`` or more at every step."""
    pieces = (
        bounds[start : start + _ROWS + 1].diff() for start in range(0, len(bounds) - 1, _ROWS)
    )
    return (
        int(bounds[0]) == 0
        and int(bounds[-1]) == last
        and all(int(piece.min()) >= least for piece in pieces)
    )


def original_nodes(graph: Graph) -> Tensor | None:
    """Return the numbers that the nodes of a folder of clusters had before: [N], mapped.

    Returns None if they are the same.
    """
    if graph.folder is None or graph.cluster_ptr is None:
        return None
    node = open_arrays(graph.folder)[1]["node"]
    is_there = torch.zeros(graph.num_nodes, dtype=torch.bool)
    if int(node.min()) >= 0 and int(node.max()) < graph.num_nodes:
        is_there[node] = True
    if not bool(is_there.all()):
        raise InputError(
            f"{graph.folder}/node.npy is damaged: it does not hold every node once; {_ADVICE}"
        )
    return node


def node_ids(graph: Graph) -> Tensor | None:
    """Return the ids that nodes have in the table of a folder: [N, L] bytes, in its order.

    Returns None if they are numbers.
    """
    return None if graph.folder is None else open_arrays(graph.folder)[1].get("id")


def verify(folder: Path) -> int:
    """Read every array of a graph folder, and compare it with its digest; return their bytes."""
    load_folder(folder)
    manifest = Manifest.read(folder)
    for name, entry in manifest.arrays.items():
        check_digest(folder / f"{name}.npy", entry.xxh3, _ADVICE)
    return manifest.nbytes


class ArrayWriter:
    """Writes the rows of an array to the file ``folder/name.npy``.

    ``columns`` is the shape of a row.
    """

    def __init__(
        self, folder: Path, name: str, dtype: npt.DTypeLike, columns: tuple[int, ...] = ()
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.columns = columns
        self.rows = 0
        self._path = folder / f"{name}.npy"
        self._file = self._path.open("wb")
        self._file.write(self._header())

    def append(self, values: Array) -> None:
        """Write more rows, or raise an OSError."""
        self._file.write(np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data)
        self.rows += len(values)

    def finish(self) -> ArrayEntry:
        """Write the header with the number of rows, and return the manifest's entry.

        The file is on the disk then.
        """
        self._file.seek(0)
        self._file.write(self._header())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return ArrayEntry(self.dtype.name, (self.rows, *self.columns), file_digest(self._path))

    def _header(self) -> bytes:
        """Return a header of `HEADER` bytes: NumPy leaves room for the number of rows to grow."""
        facts = {
            "descr": self.dtype.str,
            "fortran_order": False,
            "shape": (self.rows, *self.columns),
        }
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, facts)
        assert buffer.tell() == HEADER
        return buffer.getvalue()


def write_array(folder: Path, name: str, values: Array) -> ArrayEntry:
    """Write a whole array, and return the manifest's entry."""
    writer = ArrayWriter(folder, name, values.dtype, values.shape[1:])
    writer.append(values)
    return writer.finish()


def write_graph(graph: Graph, folder: Path) -> None:
    """Write a graph, with its manifest, into a folder that is empty.

    Of a graph that is in a folder itself, the clusters and the ids of the nodes are written too.
    """
    graph = graph.to("cpu")
    split = sum(
        number * getattr(graph, name).numpy().astype(np.uint8) for name, number in SPLITS.items()
    )
    tensors = {"rowptr": graph.edges.rowptr.long(), "col": graph.edges.col.int(), **graph.edge_data}
    if graph.folder is not None:
        _, stored = open_arrays(graph.folder)
        tensors |= {name: stored[name] for name in _OF_NODES if name in stored}
    values = {name: tensor.numpy() for name, tensor in tensors.items()}
    values |= {"x": dense(graph.x).numpy(), "y": graph.y.numpy(), "split": split}
    arrays = {name: write_array(folder, name, value) for name, value in values.items()}
    task: Task = "multi-label" if graph.multi_label else "single-label"
    if graph.regression:
        task = "regression"
    manifest = Manifest(
        name=graph.name,
        task=task,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        classes=graph.num_classes,
        arrays=arrays,
        class_names=graph.class_names or msgspec.UNSET,
    )
    manifest.write(folder)


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder that becomes ``target`` if the block ends without an error.

    The target has to be new or empty.
    """
    target = Path(os.path.realpath(target))
    with writing(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"{target} is there already: choose another folder, or remove it")
        with FolderLock(target, beside=True):
            folder = target.with_name(f"{TEMPORARY}convert-{target.name}")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                folder.mkdir(parents=True)
                yield folder
                folder.rename(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
