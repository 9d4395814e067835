"""How rank 0 collects Θ from the ranks that own its rows."""

from collections.abc import Mapping

from torch import Tensor

from gistgnn.distributed import Ranks
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.theta.ranks.shares import Shares


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
