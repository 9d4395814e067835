"""`StoredFeatures`: the features of a graph folder, which stay in their file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gistgnn.graphs.archive import check_room
from gistgnn.graphs.on_disk.reading import ArrayFile, Ranges
from gistgnn.io.stored_tensor import Part, Place, StoredTensor
from gistgnn.io.tensors import row_pieces

_PIECE = 2**24  # bytes of features that are in memory at once while all of them are read
_LARGE = 2**26  # bytes from which on there is a check whether they fit in memory


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Reads features as float32.

    Args:
        file: [N, F] float32, float16, or int8.
        scale: [F], what int8 is multiplied by.
        mean: [F], then it is subtracted; None: 0.
        std: [F], then they are divided by it.
    """

    file: ArrayFile
    scale: Tensor | None = None
    mean: Tensor | None = None
    std: Tensor | None = None

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """Read some rows and columns."""
        rows = rows or slice(0, place.shape[0])
        if columns is None or columns == slice(0, place.shape[1]):
            return self.converted(self.file.rows([(rows.start, rows.stop)]))
        wanted = columns.stop - columns.start
        out = torch.empty(rows.stop - rows.start, wanted)
        for piece in row_pieces(len(out), place.shape[1] * self.file.dtype.itemsize, _PIECE):
            part = self.file.rows([(rows.start + piece.start, rows.start + piece.stop)])
            out[piece] = self.converted(part[:, columns], columns)
        return out

    def converted(self, rows: np.ndarray[Any, Any], columns: slice = slice(None)) -> Tensor:
        """Return rows of the file, which are in memory of their own, as float32, scaled. They may change in place."""
        values = rows.astype(np.float32, copy=False)
        if self.scale is not None:
            values *= self.scale[columns].numpy()
        if self.mean is not None and self.std is not None:
            values -= self.mean[columns].numpy()
            values /= self.std[columns].numpy()
        return torch.from_numpy(values)


class StoredFeatures(StoredTensor):
    """Features [N, F] float32 that are read when they are used: slices of rows and columns, and rows by number.

    Every other operation reads the whole for as long as it runs.

    Raises:
        InputError: from any operation: the file is cut short, or the whole does not fit in memory.
    """

    @classmethod
    def of(cls, file: FeatureFile) -> StoredFeatures:
        """Return all features of a file."""
        shape = file.file.shape
        place = Place(file.file.path, 0, shape, torch.float32)
        return cls(Part(file, place, slice(0, shape[0]), slice(0, shape[1])), torch.float32)

    @property
    def reader(self) -> FeatureFile:
        """What reads them."""
        assert isinstance(self.part.file, FeatureFile)
        return self.part.file

    @property
    def whole(self) -> bool:
        """Whether these are all rows and columns of the file."""
        rows, columns = self.part.place.shape
        return (self.part.rows, self.part.columns) == (slice(0, rows), slice(0, columns)) and not self.transposed

    @property
    def path(self) -> Path:
        """The file."""
        return self.part.place.path

    def on(self, device: torch.device | str) -> StoredFeatures:
        """Return the features that are moved to a device when they have been read."""
        return type(self)(self.part, self.dtype, device)

    def load(self) -> Tensor:
        """Return the features in new memory on their device."""
        if (needed := self.numel() * self.element_size()) > _LARGE:
            check_room(needed, f"the whole of {self.path}")
        return super().load()

    def ranges(self, ranges: Ranges) -> Tensor:
        """Return the rows of some ranges, one after another, on the device: [n, F]; of all features of a file."""
        assert self.whole
        return self.reader.converted(self.reader.file.rows(ranges)).to(self.device)

    def gathered(self, nodes: Tensor) -> Tensor:
        """Return the rows ``nodes``: [k] numbers or a mask, on the device: [k, F]."""
        return self.reader.converted(self.reader.file.gathered(nodes.cpu().numpy())).to(self.device)

    def standardised(self, mean: Tensor, std: Tensor) -> StoredFeatures:
        """Return the features with a mean subtracted and divided by a deviation: [F] each, when they are read."""
        assert self.reader.mean is None, "features are scaled once"
        reader = replace(self.reader, mean=mean.cpu(), std=std.cpu())
        return type(self)(replace(self.part, file=reader), self.dtype, self.device)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"StoredFeatures(shape={tuple(self.shape)}, file='{self.path}')"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BY_ROWS and (out := _BY_ROWS[func](*args, **(kwargs or {}))) is not NotImplemented:
            return out
        return super().__torch_function__(func, types, args, kwargs)


def _item(features: Any, index: Any) -> Any:
    if not isinstance(features, StoredFeatures) or not features.whole:
        return NotImplemented
    if isinstance(index, Tensor) and index.dim() == 1:
        return features.gathered(index)
    if isinstance(index, slice) and index.step not in (None, 1):
        return features.gathered(torch.arange(*index.indices(len(features))))
    return NotImplemented


def _index_select(features: Any, dim: int, index: Tensor) -> Any:
    if not isinstance(features, StoredFeatures) or dim != 0 or not features.whole:
        return NotImplemented
    return features.gathered(index)


_BY_ROWS: dict[Any, Callable[..., Any]] = {
    Tensor.__getitem__: _item,
    Tensor.index_select: _index_select,
    torch.index_select: _index_select,
}
