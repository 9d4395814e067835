"""How rank 0 reads Θ from the ranks that own it, a block of rows at a time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor, nn

from gistgnn.distributed import Ranks
from gistgnn.io.stored_model import stored_model
from gistgnn.io.tensors import Place, Readable
from gistgnn.theta.ranks.shares import Shares

T = TypeVar("T")

_DONE, _READ = 0, 1
_NUMBERS = 7  # in a request: what to do, tensor, whether of the best Θ, first and last row, first and last column


class Reader:
    """Asks for rows on rank 0; sends them on the other ranks, which wait in `serve` until rank 0 is done.

    Args:
        ranks: the processes of the run.
        shares: which rows each rank owns.
        rows: returns this rank's rows of Θ, or with True of the best Θ, by name.
    """

    def __init__(self, ranks: Ranks, shares: Shares, rows: Callable[[bool], Mapping[str, Tensor]]) -> None:
        self._ranks, self._shares, self._rows = ranks, shares, rows
        self._one_at_a_time = Lock()  # a thread prefetches blocks

    def closing(self, work: Callable[[], T]) -> Callable[[], T]:
        """Wrap some work, so that the other ranks return from `serve` when it is done."""

        def done() -> T:
            try:
                return work()
            finally:
                self._ranks.broadcast(torch.tensor([_DONE] * _NUMBERS))

        return done

    def serve(self) -> None:
        """Send rank 0 the rows that it asks for, until it is done."""
        request = torch.zeros(_NUMBERS, dtype=torch.long)
        names = list(self._shares.specs)
        while True:
            self._ranks.broadcast(request)
            what, which, best, *bounds = request.tolist()
            if what == _DONE:
                return
            rows = self._own(names[which], self._ranks.rank, bounds[0], bounds[1])
            if len(rows):
                self._ranks.send(self._cut(names[which], bool(best), rows, slice(*bounds[2:])).contiguous().cpu())

    def give(self, module: nn.Module, *, best: bool) -> None:
        """Give a module on the meta device the parameters of Θ, or of the best Θ."""
        specs = self._shares.specs
        files: dict[Path, Readable] = {Path(name): _Rows(self, name, best) for name in specs}
        places = {name: Place(Path(name), 0, tuple(spec.shape), spec.dtype) for name, spec in specs.items()}
        stored_model(module, places, files=files)

    def read(self, name: str, best: bool, rows: slice, columns: slice) -> Tensor:
        """Read rows and columns of a tensor to the host; a single number counts as a row."""
        spec = self._shares.specs[name]
        rest = spec.shape[1:]
        width = () if not rest else (columns.stop - columns.start, *rest[1:])
        found = torch.empty(rows.stop - rows.start, *width, dtype=spec.dtype)
        which = list(self._shares.specs).index(name)
        with self._one_at_a_time:
            self._ranks.broadcast(
                torch.tensor([_READ, which, int(best), rows.start, rows.stop, columns.start, columns.stop])
            )
            for rank in range(self._ranks.count):
                own = self._own(name, rank, rows.start, rows.stop)
                part = found[own.start - rows.start : own.stop - rows.start]
                if not len(own):
                    continue
                if rank == 0:
                    part.copy_(self._cut(name, best, own, columns))
                else:
                    self._ranks.receive(part, rank)
        return found

    def _own(self, name: str, rank: int, first: int, last: int) -> range:
        """The rows from `first` to `last` that a rank owns."""
        own = self._shares.rows(name, rank)
        return range(max(own.start, first), max(min(own.stop, last), own.start, first))

    def _cut(self, name: str, best: bool, rows: range, columns: slice) -> Tensor:
        """Rows that this rank owns, and some of their columns where the tensor has columns."""
        start = self._shares.rows(name, self._ranks.rank).start
        own = self._rows(best)[name][rows.start - start : rows.stop - start]
        return own[:, columns] if own.dim() > 1 else own


class _Rows:
    """One tensor of Θ, read like a file."""

    def __init__(self, reader: Reader, name: str, best: bool) -> None:
        self._reader, self._name, self._best = reader, name, best

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """Read the tensor, or some rows and columns of it."""
        shape = (*place.shape, 1)
        width = place.shape[1] if len(place.shape) > 1 else 1
        found = self._reader.read(self._name, self._best, rows or slice(0, shape[0]), columns or slice(0, width))
        return found.view(()) if not place.shape else found
