"""Θ by rows over the ranks: each owns 1/W of the rows of every tensor, and nobody holds all of
it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gistgnn.distributed import Ranks, World
from gistgnn.storage.tensors import temporary_tensors
from gistgnn.theta.exchange import Exchange
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import THETA, Piece, Slices, Trained, gather, name_of, shape_of, value_of

Item = tuple[str, Piece]  # the key of a tensor or moment, and a piece of a sub-GCN's slice of it


# The owners send each rank the slices of its sub-GCNs, and get them back after the round.
class Rows(Exchange):
    """Every rank owns 1/W of the rows of every tensor of Θ, and nobody holds all of it."""

    own = "own-"
    ranks: Ranks

    @staticmethod
    def share(ranks: World) -> tuple[int, int]:
        return ranks.rank, ranks.count

    def take(self, place: InMemory) -> Iterator[tuple[int, Trained]]:
        """Send of this rank's rows what others' sub-GCNs take, and yield the slices and moments of
        its own.
        """
        slices = place.slices
        keys = [key for key, value in place.moments.items() if value.dim()]
        own = self.ranks.rank
        for turn in self.turns(len(slices.blocks)):
            i = turn[own]
            given = [[] if j is None else _items(slices, j, own, keys) for j in turn]
            items = [
                [] if i is None else _items(slices, i, owner, keys) for owner in range(len(turn))
            ]
            arrived = self.ranks.exchange(
                [[gather(place.target(key), piece.cut) for key, piece in each] for each in given],
                [[(piece.shape, place.target(key).dtype) for key, piece in each] for each in items],
                place.device,
            )
            if i is not None:
                names = [key for key, _ in items[0]]
                shapes = (
                    shape_of(slices.specs[name_of(key)].shape, slices.cuts[i][name_of(key)])
                    for key in names
                )
                joined = (
                    torch.cat(each) if len(each) > 1 else each[0]
                    for each in zip(*arrived, strict=True)
                )
                slice_by_key = {
                    key: rows.view(shape)
                    for key, rows, shape in zip(names, joined, shapes, strict=True)
                }
                yield i, place.hold(f"take-{i:05}", slice_by_key)

    def give(self, place: InMemory, trained: dict[int, Trained]) -> dict[int, Trained]:
        """Send the trained slices to their owners, and return what arrives here for this rank's
        rows.
        """
        slices = place.slices
        own = self.ranks.rank
        found = dict[int, Trained]()
        for turn in self.turns(len(slices.blocks)):
            i = turn[own]
            given = list[list[Tensor]]()
            for owner in range(len(turn)):
                pieces = [] if i is None else _items(slices, i, owner, self.keys)
                values = ((value_of(trained[i or 0], key), piece.rows) for key, piece in pieces)
                given.append([value.reshape(-1, *value.shape[1:])[rows] for value, rows in values])
            items = [[] if j is None else _items(slices, j, own, self.keys) for j in turn]
            forms = [
                [(piece.shape, slices.specs[name_of(key)].dtype) for key, piece in each]
                for each in items
            ]
            for j, each, tensors in zip(
                turn, items, self.ranks.exchange(given, forms, place.device), strict=True
            ):
                if j is not None:
                    sub = {
                        key: value for (key, _), value in zip(each, tensors, strict=True)
                    } | self.counts()
                    found[j] = place.hold(f"{j:05}", sub, slices.blocks[j])
        return found

    def collected(self, place: InMemory, *, best: bool) -> dict[str, Tensor]:
        """All of the tensors of which the ranks have rows, on rank 0 and in a temporary file;
        elsewhere nothing.
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
        tensors = temporary_tensors(
            {name: TensorSpec(spec.shape, types[name]) for name, spec in slices.specs.items()}
        )
        for name in rows:
            target = tensors[name].view(-1, *slices.specs[name].shape[1:])
            for rank in range(ranks.count):
                own = slices.owned(name, rank)
                part = target[own.start : own.stop]
                if part.numel() and rank == ranks.rank:
                    part.copy_(rows[name].view_as(part))
                elif part.numel():
                    ranks.receive(part, rank)
        return tensors


def _items(slices: Slices, i: int, share: int, keys: Sequence[str]) -> list[Item]:
    """The pieces in a share of a sub-GCN's slice: of Θ, and of the moments under these keys."""
    names = [*(f"{THETA}{name}" for name in slices.specs), *keys]
    pieces = {name: slices.piece(name, cut, share) for name, cut in slices.cuts[i].items()}
    return [(key, pieces[name_of(key)]) for key in names]
