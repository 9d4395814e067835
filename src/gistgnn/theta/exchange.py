"""Which rows of Θ a rank holds, which sub-GCNs it trains, and what ranks send each other in a
round.

One process alone is the only rank. A new exchange is a subclass of `Exchange` in a file of its own,
and an entry in `gistgnn.theta.registry`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed import Ranks, World, communication
from gistgnn.distributed.ranks import error_message, raise_first
from gistgnn.errors import GistError
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import (
    MOMENTS,
    THETA,
    Slices,
    Trained,
    is_counter,
    name_of,
    shape_of,
    value_of,
)

# what each sub-GCN measured, by name; see `gistgnn.runners.registry`
Numbers = dict[int, dict[str, float]]


class Exchange:
    """Deals the sub-GCNs of a round to ranks: sub-GCN i trains on rank i mod W.

    Here every rank holds all of Θ, or shares the files of one that does, and sends its sub-GCNs to
    all other copies. In a subclass ranks hold parts of Θ.

    Every method but `members` and `communication` is called by all ranks, with the round's sub-GCNs
    in `place.slices`.
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

    def agree(
        self, numbers: Numbers, error: GistError | None, trained: Mapping[int, Trained]
    ) -> Numbers:
        """Merge the numbers of all ranks' sub-GCNs, and which moments their optimisers keep.

        If a rank has an error, raise the first on all of them.
        """
        if not isinstance(self.ranks, Ranks):
            if error:
                raise error
            return numbers
        size = 0
        keys = dict[str, None]()
        counters = dict[str, float]()
        for sub in trained.values():
            for key, value in sub.items():
                if is_counter(key, value, sub[f"{THETA}{name_of(key)}"].shape):
                    counters[key] = max(float(value), counters.get(key, float(value)))
                    continue
                size += value.nbytes
                if key.startswith(MOMENTS):
                    keys[key] = None
        of_this_rank = {"numbers": numbers, "error": error_message(error), "bytes": size}
        of_all_ranks = self.ranks.gather({**of_this_rank, "keys": list(keys), "counters": counters})
        raise_first([each["error"] for each in of_all_ranks], error)
        self.ranks.traffic.rounds += 1
        self.ranks.traffic.slices += sum(each["bytes"] for each in of_all_ranks)
        # the same order on all ranks
        self.keys = list(dict.fromkeys(key for each in of_all_ranks for key in each["keys"]))
        self.counters = {}
        for key, count in (item for each in of_all_ranks for item in each["counters"].items()):
            self.counters[key] = max(count, self.counters.get(key, count))
        return {int(i): values for each in of_all_ranks for i, values in each["numbers"].items()}

    def take(self, place: InMemory) -> Iterator[tuple[int, Trained]]:
        """Yield this rank's sub-GCNs in order, each with what other ranks send of its slice;
        nothing: all is here.
        """
        return iter(())

    def give(self, place: InMemory, trained: dict[int, Trained]) -> dict[int, Trained]:
        """Exchange the trained sub-GCNs; return what this rank writes of each into what it holds of
        Θ.
        """
        if not isinstance(self.ranks, Ranks):
            return trained
        slices = place.slices
        homes = place.homes
        # in this order they are sent
        keys = [*(f"{THETA}{name}" for name in slices.specs), *self.keys]
        own = self.ranks.rank
        every = range(self.ranks.count)
        found = {i: sub | self.counts() for i, sub in trained.items()}
        for turn in self.turns(len(slices.blocks)):
            i = turn[own]
            mine = [] if i is None else [value_of(trained[i], key) for key in keys]
            arrived = self.ranks.exchange(
                [mine if _sends(homes, own, rank) else [] for rank in every],
                [
                    [] if j is None or not _sends(homes, rank, own) else _forms(slices, keys, j)
                    for rank, j in enumerate(turn)
                ],
                place.device,
            )
            for j, tensors in zip(turn, arrived, strict=True):
                if j is not None and tensors:
                    sub = dict(zip(keys, tensors, strict=True)) | self.counts()
                    found[j] = place.hold(f"{j:05}", sub, slices.blocks[j])
        return found

    def collected(self, place: InMemory, *, best: bool) -> dict[str, Tensor] | None:
        """All of Θ, or of the best Θ, on rank 0, where ranks hold rows of it; None: the place has
        all of it.
        """
        return None

    def communication(
        self, place: InMemory, theta_bytes: int, local_steps: int
    ) -> dict[str, Any] | None:
        """What the ranks have exchanged so far (see `gistgnn.distributed.communication`); None for
        one process.
        """
        if not isinstance(self.ranks, Ranks):
            return None
        copies = None if place.slices.share[1] > 1 else len({*place.homes})
        return communication(self.ranks, theta_bytes, local_steps, copies=copies)

    def turns(self, m: int) -> Iterator[list[int | None]]:
        """Yield the sub-GCNs that all ranks move at the same time, one of each; None: the rank has
        no more.
        """
        count = self.ranks.count
        for first in range(0, m, count):
            yield [i if i < m else None for i in range(first, first + count)]

    def counts(self) -> dict[str, Tensor]:
        return {key: torch.tensor(count) for key, count in self.counters.items()}


def _sends(homes: Sequence[int], rank: int, other: int) -> bool:
    """Whether a rank sends its sub-GCNs to another one, which writes another copy of Θ."""
    return homes[other] == other and homes[rank] != other


def _forms(slices: Slices, keys: Sequence[str], i: int) -> list[TensorSpec]:
    """The shapes and types of the tensors of a sub-GCN."""
    specs = [(name, slices.specs[name]) for name in map(name_of, keys)]
    return [
        TensorSpec(shape_of(spec.shape, slices.cuts[i][name]), spec.dtype) for name, spec in specs
    ]
