"""What the ranks of a run tell each other when a round ends, and the round of a process that trains some of m."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from gistgnn.distributed import Ranks
from gistgnn.distributed.agreement import lead, raise_first, together, words_of
from gistgnn.partition import Blocks
from gistgnn.theta.theta import Moments, Pending, Said, Theta, Trained, is_counter

T = TypeVar("T")


class OnRanks:
    """Of a Θ: what its ranks do together."""

    ranks: Ranks

    def led(self, work: Callable[[], T]) -> T:
        """Do some work on rank 0, and give all ranks what it returns."""
        return lead(self.ranks, work)

    def together(self, work: Callable[[], T]) -> T:
        """Do some work on every rank; what fails on any of them is raised on all."""
        return together(self.ranks, work)

    def any_of(self, flag: bool) -> bool:
        """Whether a flag is set on some rank."""
        return any(self.ranks.gather(flag))


class DealtPending(Pending):
    """A round whose sub-GCNs are dealt to ranks: i trains on rank i mod W.

    What a sub-GCN has become is kept on the host's or device's memory until all ranks are done; then the ranks agree on
    losses, errors and moments, and exchange in `commit`.
    """

    def __init__(self, theta: Theta, ranks: Ranks, number: int, blocks: Sequence[Blocks]) -> None:
        super().__init__(number, blocks)
        self._ranks, self._shapes = ranks, theta.shapes
        self.members = self.members_of(ranks.rank)
        self._kept: dict[int, Trained] = {}
        self._keys: dict[str, list[str]] = {}  # of the moments that are cut as their parameter
        self._counters: dict[str, dict[str, float]] = {}

    def members_of(self, rank: int) -> list[int]:
        """The sub-GCNs that a rank trains."""
        return list(range(rank, len(self.blocks), self._ranks.count))

    def set_aside(self, i: int, trained: Trained) -> None:
        """Keep a copy of what sub-GCN i has become."""
        tensors = {name: tensor.detach().clone() for name, tensor in trained.tensors.items()}
        self._kept[i] = Trained(tensors, {n: {k: v.clone() for k, v in m.items()} for n, m in trained.moments.items()})

    def agree(self, said: Said) -> Said:
        """Gather what all ranks have to say; the error of the first rank that has one is raised in all."""
        cut, counters = self._moments()
        own = {"losses": said.losses, "error": words_of(said.error), "cut": cut, "counters": counters}
        every = self._ranks.gather({**own, "bytes": self._bytes()})
        raise_first([words["error"] for words in every], said.error)
        self._ranks.traffic.rounds += 1
        self._ranks.traffic.slices += sum(words["bytes"] for words in every)
        for words in every:
            for name, keys in words["cut"].items():
                known = self._keys.setdefault(name, [])
                known += [key for key in keys if key not in known]
            for name, counts in words["counters"].items():
                most = self._counters.setdefault(name, {})
                most |= {key: max(value, most.get(key, value)) for key, value in counts.items()}
        return Said({int(i): loss for words in every for i, loss in words["losses"].items()})

    @abstractmethod
    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg)."""

    def _bytes(self) -> int:
        """What this rank's sub-GCNs have become, counters left out."""
        total = 0
        for trained in self._kept.values():
            total += sum(tensor.nbytes for tensor in trained.tensors.values())
            for name, moments in trained.moments.items():
                own = (value for key, value in moments.items() if not is_counter(key, value.shape, self._shapes[name]))
                total += sum(value.nbytes for value in own)
        return total

    def _moments(self) -> tuple[dict[str, list[str]], dict[str, dict[str, float]]]:
        """The keys of the moments that are cut, and the largest counters, of this rank's sub-GCNs."""
        cut: dict[str, list[str]] = {}
        counters: dict[str, dict[str, float]] = {}
        for trained in self._kept.values():
            for name, moments in trained.moments.items():
                for key, value in moments.items():
                    if is_counter(key, value.shape, self._shapes[name]):
                        most = counters.setdefault(name, {})
                        most[key] = max(float(value), most.get(key, float(value)))
                    elif key not in cut.setdefault(name, []):
                        cut[name].append(key)
        return cut, counters


def full_moments(like: Mapping[str, Tensor], keys: Mapping[str, Sequence[str]], trained: Trained) -> Moments:
    """The moments of a sub-GCN that are cut; where its optimiser has no state yet they are zero."""

    def of(name: str, key: str) -> Tensor:
        found = trained.moments.get(name, {}).get(key)
        return torch.zeros_like(like[name]) if found is None else found

    return {name: {key: of(name, key) for key in own} for name, own in keys.items()}
