"""Rank 0 reads Θ from the ranks that own it, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from gistgnn.io.stored_model import stored_model
from gistgnn.io.tensors import Place, Readable

if TYPE_CHECKING:
    from gistgnn.theta.ranks.sharded import Sharded

T = TypeVar("T")

_DONE, _READ = 0, 1
_WORDS = 7  # of a request: what to do, tensor, whether of the best Θ, first and last row, first and last column


class Reader:
    """Asks for rows on rank 0; gives them on the others, which wait in `serve` until rank 0 is done.

    Args:
        theta: whose rows.
    """

    def __init__(self, theta: Sharded) -> None:
        self._theta = theta
        self._one_at_a_time = Lock()  # blocks are read ahead in a thread

    def closing(self, work: Callable[[], T]) -> Callable[[], T]:
        """Work that lets the other ranks go when it is done."""

        def done() -> T:
            try:
                return work()
            finally:
                self._theta.ranks.tell(torch.tensor([_DONE] * _WORDS))

        return done

    def serve(self) -> None:
        """Send rank 0 the rows that it asks for, until it is done."""
        theta, request = self._theta, torch.zeros(_WORDS, dtype=torch.long)
        names = list(theta.shares.specs)
        while True:
            theta.ranks.tell(request)
            what, which, best, *bounds = request.tolist()
            if what == _DONE:
                return
            rows = self._own(names[which], theta.ranks.rank, bounds[0], bounds[1])
            if len(rows):
                theta.ranks.send(self._cut(names[which], bool(best), rows, slice(*bounds[2:])).contiguous().cpu())

    def model(self, module: nn.Module, *, best: bool) -> nn.Module:
        """Give a module on the meta device the parameters of Θ, or of the best Θ."""
        specs = self._theta.shares.specs
        files: dict[Path, Readable] = {Path(name): _Rows(self, name, best) for name in specs}
        places = {name: Place(Path(name), 0, tuple(spec.shape), spec.dtype) for name, spec in specs.items()}
        return stored_model(module, places, files=files)

    def read(self, name: str, best: bool, rows: slice, columns: slice) -> Tensor:
        """Rows and columns of a tensor, on the host; a single number is a row."""
        theta = self._theta
        rest = theta.shares.specs[name].shape[1:]
        width = () if not rest else (columns.stop - columns.start, *rest[1:])
        found = torch.empty(rows.stop - rows.start, *width, dtype=theta.shares.specs[name].dtype)
        which = list(theta.shares.specs).index(name)
        with self._one_at_a_time:
            theta.ranks.tell(
                torch.tensor([_READ, which, int(best), rows.start, rows.stop, columns.start, columns.stop])
            )
            for rank in range(theta.ranks.count):
                own = self._own(name, rank, rows.start, rows.stop)
                part = found[own.start - rows.start : own.stop - rows.start]
                if not len(own):
                    continue
                if rank == 0:
                    part.copy_(self._cut(name, best, own, columns))
                else:
                    theta.ranks.receive(part, rank)
        return found

    def _own(self, name: str, rank: int, first: int, last: int) -> range:
        """Those of some rows that a rank owns."""
        own = self._theta.shares.rows(name, rank)
        return range(max(own.start, first), max(min(own.stop, last), own.start, first))

    def _cut(self, name: str, best: bool, rows: range, columns: slice) -> Tensor:
        """Some of this rank's rows, and columns where there are any."""
        theta = self._theta
        start = theta.shares.rows(name, theta.ranks.rank).start
        own = (theta.best if best else theta.rows)[name][rows.start - start : rows.stop - start]
        return own[:, columns] if own.dim() > 1 else own


class _Rows:
    """One tensor of Θ, read as a file is."""

    def __init__(self, reader: Reader, name: str, best: bool) -> None:
        self._reader, self._name, self._best = reader, name, best

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """The tensor, or some rows and columns of it."""
        shape = (*place.shape, 1)
        width = place.shape[1] if len(place.shape) > 1 else 1
        found = self._reader.read(self._name, self._best, rows or slice(0, shape[0]), columns or slice(0, width))
        return found.view(()) if not place.shape else found
