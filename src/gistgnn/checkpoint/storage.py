"""The tensors of a checkpoint: every rank writes its rows into a safetensors file, and any rank reads any rows.

The metadata of a file say which rows it holds. So a run may be resumed with another number of ranks, and no rank waits
for another while it writes or reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from gistgnn.io.digests import RUN
from gistgnn.io.tensors import Place, TensorFile, read_header, row_pieces, write_tensors

_PIECE = 2**26  # bytes that are copied at a time
_ROWS = "rows"  # in the metadata of a file: for every tensor its first row here, and the shape of the whole tensor


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a tensor that this process holds.

    Args:
        tensor: the rows, [rows, ...]; for a single number, the number itself.
        shape: shape of the whole tensor.
        first: which row of the whole tensor is the first of these.
    """

    tensor: Tensor
    shape: torch.Size
    first: int = 0

    @classmethod
    def whole(cls, tensor: Tensor) -> Part:
        """Return a part that is all of a tensor."""
        return cls(tensor, tensor.shape)


@dataclass(frozen=True)
class SavedTensor:
    """A tensor in the files of a checkpoint.

    Attributes:
        shape: shape of the whole tensor.
        dtype: type of its numbers.
        pieces: the first row of every piece, and where the piece lies.
    """

    shape: torch.Size
    dtype: torch.dtype
    pieces: list[tuple[int, Place]] = field(default_factory=list)

    @property
    def numel(self) -> int:
        """How many of the tensor's numbers the files hold."""
        return sum(torch.Size(place.shape).numel() for _, place in self.pieces)


def write_parts(folder: Path, parts: Mapping[str, Part], rank: int, run: str = "") -> None:
    """Write the parts of a rank into its file, and wait until the file is on the disk.

    Args:
        folder: where to write; it is made if it is not there.
        parts: by the names of the tensors; none of them may be empty.
        rank: number of the process, from 0.
        run: the id of the run.

    Raises:
        OSError: the file cannot be written; nothing of it is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank-{rank:05d}.safetensors"
    specs = {name: (part.tensor.shape, part.tensor.dtype) for name, part in parts.items()}
    rows = {name: [part.first, list(part.shape)] for name, part in parts.items()}
    metadata = {RUN: run, _ROWS: json.dumps(rows)}
    try:
        write_tensors(path, specs, lambda name: _pieces(parts[name].tensor.detach()), metadata)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def saved_tensors(folder: Path) -> dict[str, SavedTensor]:
    """Return where the tensors of a checkpoint lie, by name; the tensors themselves are not read.

    Raises:
        OSError: a file cannot be read.
        Exception: a file is damaged; see `read_header`.
    """
    saved: dict[str, SavedTensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        places, metadata = read_header(path)
        rows = json.loads(metadata[_ROWS])
        for name, place in places.items():
            first, shape = rows[name]
            saved.setdefault(name, SavedTensor(torch.Size(shape), place.dtype)).pieces.append((first, place))
    return saved


def read_parts(saved: Mapping[str, SavedTensor], parts: Mapping[str, Part]) -> None:
    """Fill parts of tensors, in place, from the files of all ranks."""
    for name, part in parts.items():
        for first, place in saved[name].pieces:
            with closing(TensorFile(place.path)) as file:
                _fill(part, first, place, file)


def _fill(part: Part, first: int, place: Place, file: TensorFile) -> None:
    """Copy the rows of a piece, which begins at row `first` of the whole tensor, that belong to a part."""
    target = part.tensor.detach()
    if not place.shape:
        target.copy_(file.read(place))
        return
    start, stop = max(first, part.first), min(first + place.shape[0], part.first + len(target))
    for rows in row_pieces(stop - start, place.nbytes // max(place.shape[0], 1), _PIECE):
        here = slice(start - first + rows.start, start - first + rows.stop)
        target[start - part.first + rows.start : start - part.first + rows.stop].copy_(file.read(place, here))


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor's values on the host."""
    if not tensor.dim():
        yield tensor.cpu()
        return
    for rows in row_pieces(len(tensor), tensor.nbytes // max(len(tensor), 1), _PIECE):
        yield tensor[rows].cpu()
