"""Θ by rows over the ranks: each has 1/W of the rows of every tensor, and nobody all of it."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gistgnn.distributed import Ranks, World
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.theta.exchange import Exchange
from gistgnn.theta.memory import InMemory
from gistgnn.theta.slices import (
    THETA,
    Piece,
    Share,
    Slices,
    Trained,
    as_rows,
    gather,
    name_of,
    shape_of,
    value_of,
)
from gistgnn.utils.tensors import TensorSpec

Item = tuple[str, Piece]  # the key of a tensor or moment, and a piece of a sub-GCN's slice of it


class Rows(Exchange):
    """Every rank owns 1/W of the rows of every tensor of Θ, and nobody holds all of it.

    The owners send each rank the slices of its sub-GCNs, and get them back after the round.
    """

    file_prefix = "own-"
    ranks: Ranks

    @staticmethod
    def share(ranks: World) -> Share:
        return Share(ranks.rank, ranks.count)

    def receive_slices(self, place: InMemory) -> Iterator[tuple[int, Trained]]:
        """Send the slices that other ranks train, and yield those that this rank trains.

        A slice comes with its moments. What is sent are this rank's rows.
        """
        slices = place.slices
        keys = [key for key, value in place.moments.items() if value.dim()]
        this_rank = self.ranks.rank
        for turn in self.turns(len(slices.blocks)):
            i = turn[this_rank]
            outgoing = [[] if j is None else _list_pieces(slices, j, this_rank, keys) for j in turn]
            incoming = [
                [] if i is None else _list_pieces(slices, i, owner, keys)
                for owner in range(len(turn))
            ]
            arrived = self.ranks.exchange(
                [
                    [gather(place.target(key), piece.cut) for key, piece in pieces]
                    for pieces in outgoing
                ],
                [
                    [TensorSpec(piece.shape, place.target(key).dtype) for key, piece in pieces]
                    for pieces in incoming
                ],
                place.device,
            )
            if i is not None:
                slice_tensors = {}
                for (key, _), parts in zip(incoming[0], zip(*arrived, strict=True), strict=True):
                    name = name_of(key)
                    rows = torch.cat(parts) if len(parts) > 1 else parts[0]
                    shape = shape_of(slices.specs[name].shape, slices.cuts[i][name])
                    slice_tensors[key] = rows.view(shape)
                yield i, place.buffer(f"take-{i:05}", slice_tensors)

    def send_trained(self, place: InMemory, trained: dict[int, Trained]) -> dict[int, Trained]:
        """Send the trained slices to the ranks that own their rows.

        Returns what arrives here for this rank's rows.
        """
        slices = place.slices
        this_rank = self.ranks.rank
        received = dict[int, Trained]()
        for turn in self.turns(len(slices.blocks)):
            i = turn[this_rank]
            outgoing = [
                [] if i is None else self._cut_for_owner(slices, i, owner, trained[i])
                for owner in range(len(turn))
            ]
            incoming = [
                [] if j is None else _list_pieces(slices, j, this_rank, self.keys) for j in turn
            ]
            specs = [
                [TensorSpec(piece.shape, slices.specs[name_of(key)].dtype) for key, piece in pieces]
                for pieces in incoming
            ]
            arrived = self.ranks.exchange(outgoing, specs, place.device)
            for j, pieces, tensors in zip(turn, incoming, arrived, strict=True):
                if j is not None:
                    keys = [key for key, _ in pieces]
                    sub = dict(zip(keys, tensors, strict=True)) | self.counts()
                    received[j] = place.buffer(f"{j:05}", sub, slices.blocks[j])
        return received

    def _cut_for_owner(self, slices: Slices, i: int, owner: int, trained: Trained) -> list[Tensor]:
        """The rows of trained sub-GCN i that a rank owns: of each tensor, and of its moments."""
        rows = []
        for key, piece in _list_pieces(slices, i, owner, self.keys):
            rows.append(as_rows(value_of(trained, key))[piece.rows])
        return rows

    def collect_theta(self, place: InMemory, *, best: bool) -> dict[str, Tensor]:
        """All of the tensors of which the ranks have rows, in a temporary file on rank 0.

        On other ranks it is empty.
        """
        ranks = self.ranks
        slices = place.slices
        rows = place.values(best=best)
        if not ranks.leads:
            for tensor in rows.values():
                if tensor.numel():
                    ranks.send(tensor.contiguous().cpu())
            return {}
        types = {name: tensor.dtype for name, tensor in rows.items()}
        full_tensors = temporary_tensors(
            {name: TensorSpec(spec.shape, types[name]) for name, spec in slices.specs.items()}
        )
        for name in rows:
            target = as_rows(full_tensors[name])
            for rank in range(ranks.count):
                rank_rows = slices.rows_in_share(name, rank)
                part = target[rank_rows.start : rank_rows.stop]
                if part.numel() and rank == ranks.rank:
                    part.copy_(rows[name].view_as(part))
                elif part.numel():
                    ranks.receive(part, rank)
        return full_tensors


def _list_pieces(slices: Slices, i: int, share: int, keys: Sequence[str]) -> list[Item]:
    """The pieces in a share of a sub-GCN's slice: of Θ, and of the moments under these keys."""
    names = [*(f"{THETA}{name}" for name in slices.specs), *keys]
    pieces = {name: slices.piece(name, cut, share) for name, cut in slices.cuts[i].items()}
    return [(key, pieces[name_of(key)]) for key in names]
