"""Which rows of every tensor of Θ a rank owns, which of them a slice takes, and how rank 0 collects all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gistgnn.distributed import Ranks
from gistgnn.partition import Blocks
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import Cut, Slices


@dataclass(frozen=True)
class Piece:
    """The part of a sub-GCN's slice of a tensor that one rank owns."""

    name: str  # of the tensor
    rows: slice  # of the sub-GCN's slice
    cut: Cut  # the same entries as a cut of the rank's rows
    spec: TensorSpec  # of the piece


class Shares:
    """Deals the rows of every tensor of Θ to W ranks, as `torch.chunk` does; a single number is a row of rank 0."""

    def __init__(self, slices: Slices, specs: Mapping[str, TensorSpec], ranks: int) -> None:
        self._slices, self.specs, self._ranks = slices, specs, ranks

    def rows(self, name: str, rank: int) -> range:
        """The rows that a rank owns."""
        rows = (*self.specs[name].shape, 1)[0]
        each = -(-rows // self._ranks)
        return range(min(rank * each, rows), min((rank + 1) * each, rows))

    def shape(self, name: str, rank: int) -> torch.Size:
        """The shape of a rank's rows."""
        return torch.Size((len(self.rows(name, rank)), *self.specs[name].shape[1:]))

    def pieces(self, blocks: Blocks, rank: int) -> Iterator[Piece]:
        """Yield the pieces of a sub-GCN's slice that a rank owns, one for a tensor, without empty ones."""
        for name, spec in self.specs.items():
            own = self.rows(name, rank)
            chosen, *columns = self._slices.cut(name, blocks) or (None,)
            if chosen is None:
                rows, places = slice(own.start, own.stop), None
            else:
                ends = torch.tensor([own.start, own.stop], device=chosen.device)
                first, last = torch.searchsorted(chosen, ends).tolist()
                rows, places = slice(first, last), chosen[first:last] - own.start
            others = (n if p is None else len(p) for n, p in zip(spec.shape[1:], columns, strict=True))
            shape = torch.Size((rows.stop - rows.start, *others))
            if shape.numel():
                yield Piece(name, rows, (places, *columns), TensorSpec(shape, spec.dtype))


def collect(ranks: Ranks, shares: Shares, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return every tensor on rank 0, on the pages of a temporary file; nothing on the other ranks. All call this.

    Args:
        ranks: the processes of the run.
        shares: which rows each rank owns.
        rows: those of this rank, by name.
    """
    if not ranks.leads:
        for tensor in rows.values():
            if tensor.numel():
                ranks.send(tensor.contiguous().cpu())
        return {}
    whole = temporary_tensors(shares.specs)
    for name in rows:
        target = whole[name].view(-1, *shares.specs[name].shape[1:])
        for rank in range(ranks.count):
            own = shares.rows(name, rank)
            part = target[own.start : own.stop]
            if not part.numel():
                continue
            if rank == ranks.rank:
                part.copy_(rows[name].view_as(part))
            else:
                ranks.receive(part, rank)
    return whole
