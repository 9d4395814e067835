"""The exchanges: who holds which rows of Θ, who trains which sub-GCNs, and what ranks send.

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
from gistgnn.theta.slices import (
    ALL_ROWS,
    MOMENTS,
    THETA,
    Share,
    Slices,
    Trained,
    is_counter,
    name_of,
    shape_of,
    value_of,
)
from gistgnn.utils.tensors import TensorSpec

# What each sub-GCN measured, by name; see `gistgnn.runners.registry`.
Numbers = dict[int, dict[str, float]]


class Exchange:
    """Deals the sub-GCNs of a round to ranks: sub-GCN i trains on rank i mod W.

    Here every rank holds all of Θ, or shares the files of one that does, and sends its sub-GCNs to
    all other copies. In a subclass ranks hold parts of Θ.

    Every method but `members` and `communication` is called by all ranks, with the round's sub-GCNs
    in `place.slices`.
    """

    # Begins the names under which a place buffers what this rank has trained. It is empty where
    # the place writes just that into Θ.
    file_prefix = ""

    def __init__(self, ranks: World) -> None:
        self.ranks = ranks
        self.keys: list[str] = []  # the moments that are cut like their parameter, on any rank
        self.counters: dict[str, float] = {}  # the largest step counts, by key

    @staticmethod
    def share(ranks: World) -> Share:
        """The share of the rows that a rank holds."""
        return ALL_ROWS

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
                if is_counter(key, value.shape, sub[f"{THETA}{name_of(key)}"].shape):
                    counters[key] = max(float(value), counters.get(key, float(value)))
                    continue
                size += value.nbytes
                if key.startswith(MOMENTS):
                    keys[key] = None
        rank_report = {
            "numbers": numbers,
            "error": error_message(error),
            "bytes": size,
            "keys": list(keys),
            "counters": counters,
        }
        reports = self.ranks.gather(rank_report)
        raise_first([report["error"] for report in reports], error)
        self.ranks.traffic.rounds += 1
        self.ranks.traffic.slices += sum(report["bytes"] for report in reports)
        # All ranks have the same reports, and so the same order.
        self.keys = list(dict.fromkeys(key for report in reports for key in report["keys"]))
        self.counters = {}
        for report in reports:
            for key, count in report["counters"].items():
                self.counters[key] = max(count, self.counters.get(key, count))
        return {int(i): values for report in reports for i, values in report["numbers"].items()}

    def receive_slices(self, place: InMemory) -> Iterator[tuple[int, Trained]]:
        """Yield this rank's sub-GCNs in order, each with what others send of its slice.

        Yields nothing where this rank has all of Θ.
        """
        return iter(())

    def send_trained(self, place: InMemory, trained: dict[int, Trained]) -> dict[int, Trained]:
        """Exchange the trained sub-GCNs.

        Returns what this rank writes of each into what it holds of Θ.
        """
        if not isinstance(self.ranks, Ranks):
            return trained
        slices = place.slices
        writer_of = place.writer_of
        # The tensors are sent in the order of these keys.
        keys = [*(f"{THETA}{name}" for name in slices.specs), *self.keys]
        this_rank = self.ranks.rank
        all_ranks = range(self.ranks.count)
        counts = self.counts()
        to_write = {i: sub | counts for i, sub in trained.items()}
        for turn in self.turns(len(slices.blocks)):
            i = turn[this_rank]
            outgoing = [] if i is None else [value_of(trained[i], key) for key in keys]
            arrived = self.ranks.exchange(
                [outgoing if _sends(writer_of, this_rank, rank) else [] for rank in all_ranks],
                [
                    []
                    if j is None or not _sends(writer_of, rank, this_rank)
                    else _list_specs(slices, keys, j)
                    for rank, j in enumerate(turn)
                ],
                place.device,
            )
            for j, tensors in zip(turn, arrived, strict=True):
                if j is not None and tensors:
                    sub = dict(zip(keys, tensors, strict=True)) | counts
                    to_write[j] = place.buffer(f"{j:05}", sub, slices.blocks[j])
        return to_write

    def collect_theta(self, place: InMemory, *, best: bool) -> dict[str, Tensor] | None:
        """All of Θ, or of the best Θ, on rank 0, where ranks hold rows of it.

        Returns None where the place has all of it.
        """
        return None

    def communication(
        self, place: InMemory, theta_bytes: int, local_steps: int
    ) -> dict[str, Any] | None:
        """What the ranks have exchanged so far; None for one process.

        See `gistgnn.distributed.communication`.
        """
        if not isinstance(self.ranks, Ranks):
            return None
        copies = None if place.slices.share.total > 1 else len({*place.writer_of})
        return communication(self.ranks, theta_bytes, local_steps, copies=copies)

    def turns(self, m: int) -> Iterator[list[int | None]]:
        """Yield the sub-GCNs that all ranks move at the same time, one of each rank.

        Of a rank that has no more it is None.
        """
        count = self.ranks.count
        for first in range(0, m, count):
            yield [i if i < m else None for i in range(first, first + count)]

    def counts(self) -> dict[str, Tensor]:
        """The step counts on which the ranks have agreed, as tensors."""
        return {key: torch.tensor(count) for key, count in self.counters.items()}


def _sends(writer_of: Sequence[int], rank: int, other: int) -> bool:
    """Whether a rank sends its sub-GCNs to another one, which writes another copy of Θ."""
    return writer_of[other] == other and writer_of[rank] != other


def _list_specs(slices: Slices, keys: Sequence[str], i: int) -> list[TensorSpec]:
    """The shapes and types of the tensors of a sub-GCN."""
    specs = [(name, slices.specs[name]) for name in map(name_of, keys)]
    return [
        TensorSpec(shape_of(spec.shape, slices.cuts[i][name]), spec.dtype) for name, spec in specs
    ]
