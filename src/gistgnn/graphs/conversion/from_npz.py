"""A `.npz` as a source, read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gistgnn.errors import InputError, printable
from gistgnn.graphs.archive import check_members, open_archive
from gistgnn.graphs.cache import fingerprint
from gistgnn.graphs.conversion.arrays_in_zip import ZipArray
from gistgnn.graphs.conversion.from_graph import edge_block
from gistgnn.graphs.conversion.source import EdgeBlock, NodeBlock, Source, split_numbers
from gistgnn.graphs.edge_data import EDGE_DATA
from gistgnn.graphs.graph_files import reading_file
from gistgnn.graphs.on_disk.opening import SPLITS
from gistgnn.utils.checks import check_count

Array = npt.NDArray[Any]

_KEYS = ("edge_index", "x", "y", *SPLITS)
_ADVICE = "not made by numpy.savez"


class NpzSource(Source):
    """A `.npz` as for `gistgnn.graphs.load_file`, without edge data.

    Args:
        path: the file.

    Raises:
        InputError: it is missing or damaged, has no such arrays, or their shapes are wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.place, self.name = path, str(path), printable(path.stem)
        with reading_file(path), open_archive(path, _ADVICE) as archive:
            present = [name.removesuffix(".npy") for name in archive.namelist()]
            if missing := [key for key in _KEYS if key not in present]:
                found = ", ".join(sorted(present)) or "nothing"
                raise InputError(f"has no {', '.join(missing)}; expected the arrays {', '.join(_KEYS)} (found {found})")
            wanted = [*_KEYS, *(["num_classes"] if "num_classes" in present else [])]
            check_members(archive, [f"{name}.npy" for name in wanted], room=False)
            self._arrays = {name: ZipArray.find(archive, path, name) for name in wanted}
            self.features, self.nodes = self._check_x()
            self.edges = self._check_edges()
            self._check_y()
            self.classes = self._read_classes()
            self._split = split_numbers({name: self._arrays[name].whole() for name in SPLITS}, self.nodes)

    @property
    def key(self) -> str:
        """The file's path, size and time."""
        return fingerprint([self._path])

    def node_blocks(self, rows: int) -> Iterator[NodeBlock]:
        """Yield all nodes."""
        start = 0
        with open_archive(self._path, _ADVICE):
            for x, y in zip(self._arrays["x"].rows(rows), self._arrays["y"].rows(rows), strict=True):
                yield NodeBlock.plain(start, x, y, self._split[start : start + len(x)])
                start += len(x)

    def edge_blocks(self, rows: int) -> Iterator[EdgeBlock]:
        """Yield all edges."""
        start = 0
        with open_archive(self._path, _ADVICE):
            for block in self._arrays["edge_index"].columns(rows):
                yield edge_block(start, block[0], block[1])
                start += block.shape[1]

    def _check_x(self) -> tuple[int, int]:
        shape = self._arrays["x"].shape
        if len(shape) != 2 or 0 in shape:
            expected = "[nodes, features]" if len(shape) != 2 else "at least one node and one feature"
            raise InputError(f"x has shape {list(shape)}; expected {expected}")
        return shape[1], shape[0]

    def _check_edges(self) -> int:
        array = self._arrays["edge_index"]
        if len(array.shape) != 2 or array.shape[0] != 2:
            hint = ": transpose it" if len(array.shape) == 2 and array.shape[1] == 2 else ""
            raise InputError(f"edge_index has shape {list(array.shape)}; expected [2, edges]{hint}")
        if not array.shape[1]:
            raise InputError("edge_index has no edges (shape [2, 0]); expected at least one")
        if array.dtype.kind not in "iu":
            raise InputError(f"edge_index has dtype {array.dtype}; expected integers (int64)")
        return array.shape[1]

    def _check_y(self) -> None:
        shape = self._arrays["y"].shape
        if len(shape) not in (1, 2) or 0 in shape:
            expected = "[nodes], or [nodes, labels] for several labels per node"
            raise InputError(f"y has shape {list(shape)}; expected {expected}")
        if shape[0] != self.nodes:
            raise InputError(f"y has {shape[0]} rows and x has {self.nodes}; expected one row of each per node")

    def _read_classes(self) -> int | None:
        if "num_classes" not in self._arrays:
            return None
        count = self._arrays["num_classes"].whole()
        if count.size != 1 or count.dtype.kind not in "iu":
            shape, dtype = list(count.shape), count.dtype
            raise InputError(f"num_classes has shape {shape} and dtype {dtype}; expected one integer")
        check_count("num_classes", int(count.item()), least=2)
        return int(count.item())


def has_edge_data(path: Path) -> bool:
    """Whether a `.npz` has edge data.

    Raises:
        InputError: it cannot be read.
    """
    with reading_file(path), open_archive(path, _ADVICE) as archive:
        return any(f"{name}.npy" in archive.namelist() for name in EDGE_DATA)
