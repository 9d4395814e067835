"""`graph.json`: what a graph folder holds, and the checksums of its arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gistgnn.errors import InputError
from gistgnn.storage.records import read_record, write_record

MANIFEST = "graph.json"
BLOCK = 2**22
"""Bytes of an array's values that have one checksum; the last block may be smaller."""

TASKS = ("single-label", "multi-label", "regression")
REQUIRED = ("rowptr", "col", "x", "y", "split")
ADVICE = "convert the graph again"

_VERSION = 1
_DTYPES = {
    "rowptr": ("int64",),
    "col": ("int32", "int64"),
    "x": ("float32", "float16", "int8"),
    "x_scale": ("float32",),
    "y": ("int64", "float32"),
    "split": ("uint8",),
    "edge_weight": ("float32",),
    "edge_attr": ("float32", "int64"),
    "edge_type": ("int64",),
    "node": ("int64",),
    "cluster_ptr": ("int64",),
}
_SCHEMA: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("name", "task", "made_from"), str),
    **dict.fromkeys(("nodes", "edges", "features", "classes", "block"), int),
    "arrays": dict,
}


@dataclass(frozen=True)
class StoredArray:
    """One array of a folder.

    Attributes:
        dtype: NumPy's name of the type of its numbers.
        shape: of the array.
        checksums: xxh3_64 of every block of `BLOCK` bytes of its values, as hexadecimal digits.
    """

    dtype: str
    shape: tuple[int, ...]
    checksums: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Manifest:
    """What `graph.json` says.

    Attributes:
        name: of the graph.
        nodes: N.
        edges: E, directed.
        features: F.
        classes: C, or K labels or targets of a node.
        task: one of `TASKS`.
        arrays: by name; the array ``x`` lies in ``x.npy``.
        made_from: a digest of the source and of the options.
    """

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    task: str
    arrays: dict[str, StoredArray]
    made_from: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def clusters(self) -> int | None:
        """The number of clusters that the nodes are in the order of; None: they are not."""
        return self.arrays["cluster_ptr"].shape[0] - 1 if "cluster_ptr" in self.arrays else None

    def write(self, folder: Path) -> None:
        """Write `graph.json` into a folder.

        Raises:
            InputError: it cannot be written.
        """
        arrays = {
            name: {
                "dtype": array.dtype,
                "shape": array.shape,
                "bytes": array.nbytes,
                "checksums": array.checksums,
            }
            for name, array in self.arrays.items()
        }
        names = ("name", "task", "nodes", "edges", "features", "classes", "made_from")
        content = {**{name: getattr(self, name) for name in names}, "block": BLOCK, "arrays": arrays}
        write_record(folder / MANIFEST, content, _VERSION, indent=1)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the `graph.json` of a folder.

        Raises:
            InputError: the folder has none, or it is damaged, of another version, or contradicts itself.
        """
        path = folder / MANIFEST
        try:
            record = read_record(path, _VERSION, _SCHEMA, ADVICE)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError(
                f"{folder}: there is no {MANIFEST}; expected a folder that `gistgnn convert` has made"
            ) from error
        own = {name: record[name] for name in ("name", "nodes", "edges", "features", "classes", "task", "made_from")}
        manifest = cls(**own, arrays={name: _stored(path, name, entry) for name, entry in record["arrays"].items()})
        if problem := manifest._problem(record["block"]):
            raise InputError(f"{path} {problem}; {ADVICE}")
        return manifest

    def _problem(self, block: int) -> str | None:
        if self.task not in TASKS or block != BLOCK or min(self.nodes, self.edges, self.features, self.classes) < 1:
            return "describes no graph that this gistgnn knows"
        if missing := [name for name in REQUIRED if name not in self.arrays]:
            return f"has no array {missing[0]}"
        if ("x_scale" in self.arrays) != (self.arrays["x"].dtype == "int8"):
            return "has x_scale without x in int8, or x in int8 without x_scale"
        if ("node" in self.arrays) != ("cluster_ptr" in self.arrays):
            return "has node without cluster_ptr, or cluster_ptr without node"
        for name, array in self.arrays.items():
            if array.dtype not in _DTYPES[name] or not self._fits(name, array):
                return f"says that {name} is {array.dtype} of shape {list(array.shape)}, which does not fit the graph"
        return None

    def _fits(self, name: str, array: StoredArray) -> bool:
        rows = {"rowptr": self.nodes + 1, "x_scale": self.features, "x": self.nodes, "y": self.nodes}
        rows |= {"split": self.nodes, "node": self.nodes}
        columns = {"x": self.features}
        if name == "y" and self.task != "single-label":
            columns["y"] = self.classes
            if array.dtype != "float32":
                return False
        elif name == "y" and array.dtype != "int64":
            return False
        first, *others = array.shape or (-1,)
        if name == "cluster_ptr":
            return 2 <= first <= self.nodes + 1 and not others
        if name == "edge_attr":
            return first == self.edges and (not others or (len(others) == 1 and others[0] > 0))
        return first == rows.get(name, self.edges) and others == ([columns[name]] if name in columns else [])


def _stored(path: Path, name: str, entry: Any) -> StoredArray:
    """Read the entry of one array."""
    try:
        array = StoredArray(entry["dtype"], tuple(entry["shape"]), tuple(entry["checksums"]))
        right = name in _DTYPES and array.dtype in _DTYPES[name]
        right = right and all(type(size) is int and size >= 0 for size in array.shape)
        right = right and all(isinstance(text, str) for text in array.checksums)
        right = right and entry["bytes"] == array.nbytes and len(array.checksums) == -(-array.nbytes // BLOCK)
    except (KeyError, TypeError):
        right = False
    if not right:
        raise InputError(f"{path} has a wrong entry for the array {name!r:.80}; {ADVICE}")
    return array
