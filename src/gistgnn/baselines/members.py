"""Θ of an ensemble: every sub-GCN has its own parameters, which are never merged."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gistgnn.distributed import Ranks, World
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.theta.between_ranks import BetweenRanks
from gistgnn.theta.memory import InMemory
from gistgnn.theta.slices import MOMENTS, THETA, Trained, fill, name_of, value_of


class Members(InMemory):
    """The tensors of m sub-GCNs, their moments and bests, named members.I.NAME as in an `EnsembleModel`.

    `layout` and `widths` are the full model's. Sub-GCN i trains on rank i mod W; rank 0 has all, to score and save.
    """

    def __init__(
        self, layout: Layout, widths: Sequence[int], members: Sequence[Mapping[str, Tensor]], ranks: World
    ) -> None:
        tensors = {_named(i, name): tensor for i, own in enumerate(members) for name, tensor in own.items()}
        exchange = SendToLeader(ranks, members) if isinstance(ranks, Ranks) else None
        super().__init__(layout, widths, tensors, exchange=exchange)
        self.names = list(members[0])

    def slice_of(self, i: int) -> dict[str, Tensor]:
        return {name: self.tensors[_named(i, name)] for name in self.names}

    def load(self, i: int, sub: nn.Module) -> None:
        fill(sub, self.slice_of(i))

    def moments_of(self, i: int) -> dict[str, Tensor]:
        own = f"{MOMENTS}{_named(i, '')}"
        return {
            f"{MOMENTS}{key.removeprefix(own)}": value.clone()
            for key, value in self.moments.items()
            if key.startswith(own)
        }

    def keep_best(self) -> None:
        """Do nothing: every member has its own best round; see `keep_best_of`."""

    def keep_best_of(self, i: int) -> None:
        """Keep a copy of sub-GCN i as its best."""
        self.best |= {_named(i, name): tensor.clone() for name, tensor in self.slice_of(i).items()}

    def _write(self, trained: Mapping[int, Trained]) -> None:
        for i, sub in trained.items():
            for key, value in sub.items():
                if key.startswith(THETA):
                    self.tensors[_named(i, name_of(key))].copy_(value)
                else:
                    self.moments[f"{MOMENTS}{_named(i, key.removeprefix(MOMENTS))}"] = value.clone()


class SendToLeader(BetweenRanks):
    """Sends every trained member to rank 0, which knows from `members` what shapes to expect."""

    def __init__(self, ranks: Ranks, members: Sequence[Mapping[str, Tensor]]) -> None:
        super().__init__(ranks)
        self._members = [
            {f"{THETA}{name}": torch.empty_like(t, device="meta") for name, t in own.items()} for own in members
        ]

    def collect(self, blocks: Sequence[Blocks], trained: dict[int, Trained]) -> dict[int, Trained]:
        """Return this rank's members; rank 0 returns all."""
        found = dict(trained)
        for i, shapes in enumerate(self._members):
            sender = i % self.ranks.count
            if sender and self.ranks.rank == sender:
                for key in self._keys(i):
                    value = (
                        trained[i].get(key, torch.tensor(0.0)) if key in self.counters else value_of(trained[i], key)
                    )
                    self.ranks.send(value.cpu().contiguous())
            elif sender and self.ranks.leads:
                found[i] = {
                    key: torch.tensor(0.0)
                    if key in self.counters
                    else torch.empty_like(shapes[f"{THETA}{name_of(key)}"], device="cpu")
                    for key in self._keys(i)
                }
                for tensor in found[i].values():
                    self.ranks.receive(tensor, sender)
        return found

    def _keys(self, i: int) -> list[str]:
        """The keys of a member's tensors, moments and step counts, in the order in which they are sent."""
        return [*self._members[i], *self.keys, *self.counters]


def _named(i: int, name: str) -> str:
    return f"members.{i}.{name}"
