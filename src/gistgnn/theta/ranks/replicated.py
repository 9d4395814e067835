"""Θ that every rank of a run has all of: for models that are small beside the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed import Ranks, communication
from gistgnn.distributed.packing import Form, pack, packed_bytes, unpack
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.theta.local import TakesLocally
from gistgnn.theta.memory import InMemory
from gistgnn.theta.ranks.agreement import DealtPending, OnRanks, full_moments
from gistgnn.theta.theta import Trained


class Replicated(OnRanks, InMemory):
    """Θ in the memory of every rank: after a round each rank sends what its sub-GCNs have become to all others.

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
        tensors: every parameter and buffer of the full model, by name. They are held, not copied.
        ranks: the processes of the run.
    """

    def __init__(self, layout: Layout, widths: Sequence[int], tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
        super().__init__(layout, widths, tensors)
        self.ranks = ranks
        self.shard = 0 if ranks.leads else None

    def begin(self, number: int, blocks: Sequence[Blocks]) -> PendingReplicated:  # type: ignore[override]
        """Begin round t."""
        return PendingReplicated(self, number, blocks)

    def communication(self, local_steps: int) -> dict[str, Any]:
        """What the ranks have exchanged so far."""
        size = sum(tensor.nbytes for tensor in self.tensors.values())
        return communication(self.ranks, size, local_steps, sharded=False)


class PendingReplicated(TakesLocally, DealtPending):
    """One round: slices are taken here, and trained ones go to all."""

    _theta: Replicated

    def __init__(self, theta: Replicated, number: int, blocks: Sequence[Blocks]) -> None:
        super().__init__(theta, theta.ranks, number, blocks)
        self._theta = theta

    def commit(self, loss: float) -> None:
        """Exchange the trained slices, and write all of them into Θ (subAgg)."""
        theta, ranks = self._theta, self._ranks
        device = next(iter(theta.tensors.values())).device
        own = pack([tensor for i in self.members for tensor in self._flat(i)], device)
        nothing = own[:0]
        parts = [nothing if rank == ranks.rank else own for rank in range(ranks.count)]
        whose = [self.members_of(rank) if rank != ranks.rank else [] for rank in range(ranks.count)]
        forms = [[form for i in each for form in self._forms(i)] for each in whose]
        arrived = ranks.exchange(parts, [packed_bytes(each) for each in forms])
        trained = {i: self._kept[i].tensors for i in self.members}
        moments = {i: full_moments(trained[i], self._keys, self._kept[i]) for i in self.members}
        for buffer, each, form in zip(arrived, whose, forms, strict=True):
            tensors = iter(unpack(buffer, form))
            for i in each:
                trained[i] = {name: next(tensors) for name in theta.tensors}
                moments[i] = {name: {key: next(tensors) for key in keys} for name, keys in self._keys.items()}
        everyone = range(len(self.blocks))
        theta.put(self.blocks, [trained[i] for i in everyone])
        if self._keys or self._counters:
            theta.put_moments(self.blocks, [self._counted(moments[i]) for i in everyone])
        theta.round, theta.loss = self.number + 1, loss
        self._kept.clear()

    def _flat(self, i: int) -> list[Tensor]:
        """What a sub-GCN has become, in the order in which it is sent."""
        trained: Trained = self._kept[i]
        moments = full_moments(trained.tensors, self._keys, trained)
        tensors = [trained.tensors[name] for name in self._theta.tensors]
        return tensors + [moments[name][key] for name, keys in self._keys.items() for key in keys]

    def _forms(self, i: int) -> list[Form]:
        """The shapes and types of that."""
        of = {
            name: (self._theta.slices.shape(name, tensor.shape, self.blocks[i]), tensor.dtype)
            for name, tensor in self._theta.tensors.items()
        }
        return [*of.values(), *(of[name] for name, keys in self._keys.items() for _ in keys)]

    def _counted(self, moments: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
        """The moments with the largest counters of all sub-GCNs."""
        names = dict.fromkeys([*moments, *self._counters])
        counted = {name: {key: torch.tensor(n) for key, n in self._counters.get(name, {}).items()} for name in names}
        return {name: counted[name] | moments.get(name, {}) for name in names}
