"""Which rows of Θ a rank holds, which sub-GCNs it trains, and what ranks send each other in a round.

One process alone is the only rank. A new exchange is a subclass of `Exchange` in a file of its own, and an entry in
`gistgnn.theta.registry`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed import Ranks, World, communication
from gistgnn.distributed.ranks import error_message, raise_first
from gistgnn.errors import GistError
from gistgnn.theta.memory import InMemory
from gistgnn.theta.slices import MOMENTS, THETA, Piece, Slices, Trained, name_of, value_of, values_by_key

Losses = dict[int, float]  # sub-GCN -> mean over its steps
Item = tuple[str, Piece]  # the key of a tensor or moment, and a piece of a sub-GCN's slice of it


class Exchange:
    """Deals the sub-GCNs of a round to ranks: sub-GCN i trains on rank i mod W.

    Here every rank holds all of Θ, or shares the files of one that does, and sends its sub-GCNs to all other copies. In
    a subclass ranks hold parts of Θ.

    Every method but `members` and `communication` is called by all ranks, with the round's sub-GCNs in `place.slices`.
    """

    own = ""  # begins the names under which a place holds what this rank has trained

    def __init__(self, ranks: World) -> None:
        self.ranks = ranks
        self.keys: list[str] = []  # the moments that are cut like their parameter, on any rank
        self.counters: dict[str, float] = {}  # the largest step counts, by key

    @staticmethod
    def share(ranks: World) -> tuple[int, int]:
        """Which of how many shares of the rows a rank holds."""
        return 0, 1

    def members(self, sub_gcns: int) -> list[int]:
        """The sub-GCNs that this rank trains, of m."""
        return list(range(self.ranks.rank, sub_gcns, self.ranks.count))

    def agree(self, place: InMemory, losses: Losses, error: GistError | None, trained: Mapping[int, Trained]) -> Losses:
        """Merge the losses of all ranks' sub-GCNs, and which moments their optimisers keep.

        If a rank has an error, raise the first on all of them.
        """
        if not isinstance(self.ranks, Ranks):
            if error:
                raise error
            return losses
        values, counts = values_by_key([*trained.values()], place.slices.specs)
        own: dict[str, Any] = {"losses": losses, "error": error_message(error)}
        own["bytes"] = sum(tensor.nbytes for tensors in values.values() for tensor in tensors)
        own["keys"] = [key for key in values if key.startswith(MOMENTS)]
        every = self.ranks.gather({**own, "counters": {key: float(count) for key, count in counts.items()}})
        raise_first([each["error"] for each in every], error)
        self.ranks.traffic.rounds += 1
        self.ranks.traffic.slices += sum(each["bytes"] for each in every)
        self.keys = list(dict.fromkeys(key for each in every for key in each["keys"]))  # the same order on all ranks
        self.counters = {}
        for key, count in (item for each in every for item in each["counters"].items()):
            self.counters[key] = max(count, self.counters.get(key, count))
        return {int(i): loss for each in every for i, loss in each["losses"].items()}

    def take(self, place: InMemory) -> Iterator[tuple[int, Trained]]:
        """Yield this rank's sub-GCNs in order, each with what other ranks send of its slice; nothing: all is here."""
        return iter(())

    def give(self, place: InMemory, trained: dict[int, Trained]) -> dict[int, Trained]:
        """Exchange the trained sub-GCNs; return what this rank writes of each into what it holds of Θ."""
        if not isinstance(self.ranks, Ranks):
            return trained
        slices, own, found = place.slices, self.ranks.rank, self.kept(trained)
        for turn in self.turns(len(slices.blocks)):
            i = turn[own]
            mine = [[] if i is None else self.items(place, i, own, rank) for rank in range(len(turn))]
            given = [[piece.of(value_of(trained[i or 0], key)) for key, piece in each] for each in mine]
            theirs = [[] if j is None else self.items(place, j, rank, own) for rank, j in enumerate(turn)]
            forms = [[(piece.shape, slices.specs[name_of(key)].dtype) for key, piece in each] for each in theirs]
            arrived = self.ranks.exchange(given, forms, place.device)
            for j, each, tensors in zip(turn, theirs, arrived, strict=True):
                if j is not None and each:
                    sub = {key: value for (key, _), value in zip(each, tensors, strict=True)} | self.counts()
                    found[j] = place.hold(f"{j:05}", sub, slices.blocks[j])
        return found

    def kept(self, trained: dict[int, Trained]) -> dict[int, Trained]:
        """What this rank writes of the sub-GCNs that it has trained itself, without an exchange."""
        return {i: sub | self.counts() for i, sub in trained.items()}

    def items(self, place: InMemory, i: int, sender: int, receiver: int) -> list[Item]:
        """What a rank sends another one of sub-GCN i after training: all of it, where that writes another copy of Θ."""
        if place.homes[receiver] != receiver or place.homes[sender] == receiver:
            return []
        return items_of(place.slices, i, 0, self.keys)

    def collected(self, place: InMemory, *, best: bool) -> dict[str, Tensor] | None:
        """All of Θ, or of the best Θ, on rank 0, where ranks hold rows of it; None: the place has all of it."""
        return None

    def communication(self, place: InMemory, theta_bytes: int, local_steps: int) -> dict[str, Any] | None:
        """What the ranks have exchanged so far (see `gistgnn.distributed.communication`); None for one process."""
        if not isinstance(self.ranks, Ranks):
            return None
        copies = None if place.slices.share[1] > 1 else len({*place.homes})
        return communication(self.ranks, theta_bytes, local_steps, copies=copies)

    def turns(self, m: int) -> Iterator[list[int | None]]:
        """Yield the sub-GCNs that all ranks move at the same time, one of each; None: the rank has no more."""
        count = self.ranks.count
        for first in range(0, m, count):
            yield [i if i < m else None for i in range(first, first + count)]

    def counts(self) -> dict[str, Tensor]:
        return {key: torch.tensor(count) for key, count in self.counters.items()}


def items_of(slices: Slices, i: int, share: int, keys: Sequence[str]) -> list[Item]:
    """The pieces in a share of a sub-GCN's slice: of Θ, and of the moments under these keys."""
    names = [*(f"{THETA}{name}" for name in slices.specs), *keys]
    pieces = {name: slices.piece(name, cut, share) for name, cut in slices.cuts[i].items()}
    return [(key, pieces[name_of(key)]) for key in names]
