"""Θ of an ensemble: every sub-GCN has its own parameters, which are never merged."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.distributed import Ranks, World
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.theta.memory import InMemory
from gistgnn.theta.ranks.between_ranks import BetweenRanks, full_moments
from gistgnn.theta.trained import Trained, fill, give_moments


class Members(InMemory):
    """The parameters and buffers of m sub-GCNs, their moments, and each sub-GCN at its best.

    They are named as in an `EnsembleModel`: members.I.NAME.

    Args:
        layout: the layout of the full model.
        widths: its full widths.
        members: every sub-GCN's parameters and buffers.
        ranks: the processes of the run. Sub-GCN i trains on rank i mod W; rank 0 has a copy of all, to score and save.
    """

    def __init__(
        self, layout: Layout, widths: Sequence[int], members: Sequence[Mapping[str, Tensor]], ranks: World
    ) -> None:
        tensors = {_named(i, name): tensor for i, own in enumerate(members) for name, tensor in own.items()}
        exchange = SendToLeader(ranks, members) if isinstance(ranks, Ranks) else None
        super().__init__(layout, widths, tensors, exchange=exchange)
        self.names = list(members[0])

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The parameters and buffers of sub-GCN i, by name."""
        return {name: self.tensors[_named(i, name)] for name in self.names}

    def load(self, i: int, sub: nn.Module) -> None:
        """Copy the parameters of sub-GCN i into its module."""
        fill(sub, self.slice_of(i))

    def load_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i its moments."""
        moments = {name: self.moments.get(_named(i, name), {}) for name in self.names}
        copies = {name: {key: value.clone() for key, value in own.items()} for name, own in moments.items()}
        give_moments(sub, optimizer, copies)

    def keep_best(self) -> None:
        """Do nothing: every member has its own best round; see `keep_best_of`."""

    def keep_best_of(self, i: int) -> None:
        """Keep a copy of sub-GCN i as its best."""
        self.best |= {_named(i, name): tensor.clone() for name, tensor in self.slice_of(i).items()}

    def _write(self, trained: Mapping[int, Trained]) -> None:
        for i, sub in trained.items():
            for name, value in sub.tensors.items():
                self.tensors[_named(i, name)].copy_(value)
            for name, own in sub.moments.items():
                self.moments[_named(i, name)] = {key: value.clone() for key, value in own.items()}


class SendToLeader(BetweenRanks):
    """Sends every trained member to rank 0, which knows from `members` what shapes to expect."""

    def __init__(self, ranks: Ranks, members: Sequence[Mapping[str, Tensor]]) -> None:
        super().__init__(ranks)
        self._members = [{name: torch.empty_like(t, device="meta") for name, t in own.items()} for own in members]

    def collect(self, blocks: Sequence[Blocks], trained: dict[int, Trained]) -> dict[int, Trained]:
        """Return this rank's members; rank 0 returns all."""
        found = dict(trained)
        for i in range(len(blocks)):
            sender = i % self.ranks.count
            if sender and self.ranks.rank == sender:
                for tensor in self._flat(trained[i]):
                    self.ranks.send(tensor.cpu().contiguous())
            elif sender and self.ranks.leads:
                found[i] = self._receive(i, sender)
        return found

    def _flat(self, trained: Trained) -> list[Tensor]:
        """A member's tensors, moments and counters, in the order in which they are sent."""
        moments = full_moments(trained, self.keys)
        counters = [
            trained.moments.setdefault(name, {}).setdefault(key, torch.tensor(0.0))
            for name, counts in self.counters.items()
            for key in counts
        ]
        return [*trained.tensors.values(), *(t for own in moments.values() for t in own.values()), *counters]

    def _receive(self, i: int, rank: int) -> Trained:
        """Receive a member from another rank."""
        trained = Trained({name: torch.empty_like(t, device="cpu") for name, t in self._members[i].items()})
        trained.moments = {
            name: {key: torch.empty_like(trained.tensors[name]) for key in keys} for name, keys in self.keys.items()
        }
        for tensor in self._flat(trained):
            self.ranks.receive(tensor, rank)
        return trained


def _named(i: int, name: str) -> str:
    return f"members.{i}.{name}"
