"""Θ of sub-GCNs that are never merged: each has parameters of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.distributed import Ranks, communication
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.theta import DealtPending, InMemory, OnRanks, Pending, Trained, fill
from gistgnn.theta.ranks.agreement import full_moments


class Apart(InMemory):
    """The parameters and buffers of m sub-GCNs, their moments, and each at its best.

    They are named as in an `EnsembleModel`: members.I.NAME.

    Args:
        layout: of the full model.
        widths: its full widths.
        members: every sub-GCN's parameters and buffers.
    """

    def __init__(self, layout: Layout, widths: Sequence[int], members: Sequence[Mapping[str, Tensor]]) -> None:
        tensors = {_named(i, name): tensor for i, own in enumerate(members) for name, tensor in own.items()}
        super().__init__(layout, widths, tensors)
        self.names = list(members[0])

    def begin(self, number: int, blocks: Sequence[Blocks]) -> Pending:  # type: ignore[override]
        """Begin round t: each goes on where it was."""
        return PendingApart(self, number, blocks)

    def keep_best(self) -> None:
        """Do nothing: each has its own best, see `keep_best_of`."""

    def keep_best_of(self, i: int) -> None:
        """Keep sub-GCN i as it stands as its best."""
        self.best |= {_named(i, name): tensor.clone() for name, tensor in self.member(i).items()}

    def member(self, i: int) -> dict[str, Tensor]:
        """The parameters and buffers of sub-GCN i, by name."""
        return {name: self.tensors[_named(i, name)] for name in self.names}

    def moments_of(self, i: int) -> dict[str, dict[str, Tensor]]:
        """The moments of sub-GCN i, copied."""
        found = {name: self.moments.get(_named(i, name), {}) for name in self.names}
        return {name: {key: value.clone() for key, value in own.items()} for name, own in found.items()}

    def write(self, i: int, trained: Trained) -> None:
        """Write what sub-GCN i has become."""
        for name, value in trained.tensors.items():
            self.tensors[_named(i, name)].copy_(value.detach())
        for name, own in trained.moments.items():
            self.moments[_named(i, name)] = {key: value.clone() for key, value in own.items()}

    def counts(self, name: str, key: str, state: Tensor) -> bool:
        """Say whether an optimiser's state of a sub-GCN's parameter is one number for all of it."""
        return super().counts(_named(0, name), key, state)


class _TakesOwn:
    """Of a round: its sub-GCNs take what is theirs."""

    _theta: Apart

    def take(self, i: int, sub: nn.Module) -> None:
        """Copy the parameters of sub-GCN i into its module."""
        fill(sub, self._theta.member(i))

    def slices(self, i: int) -> dict[str, Tensor]:
        """The parameters and buffers of sub-GCN i, by name."""
        return self._theta.member(i)

    def take_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i its moments."""
        self._theta.give_moments(sub, optimizer, self._theta.moments_of(i))


class PendingApart(_TakesOwn, Pending):
    """A stretch of steps of one process that trains all sub-GCNs."""

    def __init__(self, theta: Apart, number: int, blocks: Sequence[Blocks]) -> None:
        super().__init__(number, blocks)
        self._theta, self._kept = theta, dict[int, Trained]()

    def set_aside(self, i: int, trained: Trained) -> None:
        """Keep what sub-GCN i has become."""
        self._kept[i] = trained

    def commit(self, loss: float) -> None:
        """Write each to its own place."""
        for i, trained in self._kept.items():
            self._theta.write(i, trained)
        self._theta.round, self._theta.loss = self.number + 1, loss
        self._kept.clear()


class ApartOnRanks(OnRanks, Apart):
    """The same with sub-GCN i on rank i mod W; rank 0 has a copy of all, to score and to save them."""

    def __init__(
        self, layout: Layout, widths: Sequence[int], members: Sequence[Mapping[str, Tensor]], ranks: Ranks
    ) -> None:
        super().__init__(layout, widths, members)
        self.ranks, self.shard = ranks, 0 if ranks.leads else None

    def begin(self, number: int, blocks: Sequence[Blocks]) -> Pending:  # type: ignore[override]
        """Begin round t."""
        return PendingApartOnRanks(self, number, blocks)

    def communication(self, local_steps: int) -> dict[str, Any]:
        """What the ranks have exchanged: nothing but what rank 0 reads to score and save."""
        size = sum(tensor.nbytes for tensor in self.tensors.values())
        return communication(self.ranks, size, local_steps, sharded=False)


class PendingApartOnRanks(_TakesOwn, DealtPending):
    """A stretch of steps of the sub-GCNs of one rank."""

    def __init__(self, theta: ApartOnRanks, number: int, blocks: Sequence[Blocks]) -> None:
        super().__init__(theta, theta.ranks, number, blocks)
        self._theta = theta
        self._shapes = {name: tensor.shape for name, tensor in theta.member(0).items()}

    def commit(self, loss: float) -> None:
        """Write each to its own place, and copy those of other ranks to rank 0."""
        theta, ranks = self._theta, self._ranks
        for i in self.members:
            theta.write(i, self._kept[i])
        for i in range(len(self.blocks)):
            rank = i % ranks.count
            if rank and ranks.rank == rank:
                for tensor in self._flat(i, self._kept[i]):
                    ranks.send(tensor.detach().cpu().contiguous())
            elif rank and ranks.leads:
                theta.write(i, self._received(i, rank))
        theta.round, theta.loss = self.number + 1, loss
        self._kept.clear()

    def _flat(self, i: int, trained: Trained) -> list[Tensor]:
        """What a sub-GCN has become, in the order in which it is sent."""
        like = self._theta.member(i)
        moments = full_moments(like, self._keys, trained)
        counters = [
            trained.moments.setdefault(name, {}).setdefault(key, torch.tensor(0.0))
            for name, counts in self._counters.items()
            for key in counts
        ]
        return [
            *(trained.tensors[name] for name in like),
            *(t for own in moments.values() for t in own.values()),
            *counters,
        ]

    def _received(self, i: int, rank: int) -> Trained:
        """What a sub-GCN of another rank has become."""
        trained = Trained({name: torch.empty_like(t, device="cpu") for name, t in self._theta.member(i).items()})
        trained.moments = {
            name: {key: torch.empty_like(trained.tensors[name]) for key in keys} for name, keys in self._keys.items()
        }
        for tensor in self._flat(i, trained):
            self._ranks.receive(tensor, rank)
        return trained


def _named(i: int, name: str) -> str:
    return f"members.{i}.{name}"
