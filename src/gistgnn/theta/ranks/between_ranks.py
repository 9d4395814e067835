"""How ranks exchange the sub-GCNs of a round."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed import Ranks, communication
from gistgnn.distributed.packing import pack, packed_bytes, unpack
from gistgnn.distributed.world import error_message, raise_first
from gistgnn.partition import Blocks
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import Slices
from gistgnn.theta.theta import Exchange
from gistgnn.theta.trained import Moments, RoundReport, Trained, is_counter


class BetweenRanks(Exchange):
    """Deals the sub-GCNs of a round to ranks: sub-GCN i trains on rank i mod W.

    Attributes:
        keys: the names of the moments that are cut like their parameter, on any rank in this round.
        counters: the largest step count of every parameter, over all ranks.
    """

    ranks: Ranks

    def __init__(self, ranks: Ranks, *, sharded: bool = False) -> None:
        super().__init__(ranks)
        self._sharded = sharded
        self.keys: dict[str, list[str]] = {}
        self.counters: dict[str, dict[str, float]] = {}

    def members(self, sub_gcns: int) -> list[int]:
        """The sub-GCNs that this rank trains."""
        return self.members_of(self.ranks.rank, sub_gcns)

    def members_of(self, rank: int, sub_gcns: int) -> list[int]:
        """The sub-GCNs that a rank trains."""
        return list(range(rank, sub_gcns, self.ranks.count))

    def agree(self, report: RoundReport, trained: Mapping[int, Trained]) -> RoundReport:
        """Gather the losses and errors of all ranks, and which moments their optimisers keep."""
        self.keys, self.counters = {}, {}
        size = 0
        for sub in trained.values():
            size += sum(tensor.nbytes for tensor in sub.tensors.values())
            for name, key, value in ((name, *state) for name, own in sub.moments.items() for state in own.items()):
                if is_counter(key, value.shape, sub.tensors[name].shape):
                    self._count(name, key, float(value))
                else:
                    size += value.nbytes
                    self._know(name, key)
        own = {"losses": report.losses, "error": error_message(report.error), "bytes": size}
        every = self.ranks.gather({**own, "keys": self.keys, "counters": self.counters})
        raise_first([each["error"] for each in every], report.error)
        self.ranks.traffic.rounds += 1
        self.ranks.traffic.slices += sum(each["bytes"] for each in every)
        self.keys = {}  # in the order of the ranks, the same on all of them
        for each in every:
            for name, keys in each["keys"].items():
                for key in keys:
                    self._know(name, key)
            for name, counts in each["counters"].items():
                for key, count in counts.items():
                    self._count(name, key, count)
        return RoundReport({int(i): loss for each in every for i, loss in each["losses"].items()})

    def communication(self, theta_bytes: int, local_steps: int) -> dict[str, Any]:
        """What the ranks have exchanged so far."""
        return communication(self.ranks, theta_bytes, local_steps, sharded=self._sharded)

    def _know(self, name: str, key: str) -> None:
        if key not in (known := self.keys.setdefault(name, [])):
            known.append(key)

    def _count(self, name: str, key: str, count: float) -> None:
        most = self.counters.setdefault(name, {})
        most[key] = max(count, most.get(key, count))


class SendToAll(BetweenRanks):
    """Every rank has all of Θ on its device: it sends its trained sub-GCNs to all other ranks."""

    def __init__(self, ranks: Ranks, slices: Slices, specs: Mapping[str, TensorSpec], device: torch.device) -> None:
        super().__init__(ranks)
        self._slices, self._specs, self._device = slices, specs, device

    def collect(self, blocks: Sequence[Blocks], trained: dict[int, Trained]) -> dict[int, Trained]:
        """Exchange the trained sub-GCNs: every rank returns all of them."""
        ranks = self.ranks
        own = pack([tensor for i in sorted(trained) for tensor in self._flat(trained[i])], self._device)
        parts = [own[:0] if rank == ranks.rank else own for rank in range(ranks.count)]
        senders = [[] if rank == ranks.rank else self.members_of(rank, len(blocks)) for rank in range(ranks.count)]
        forms = [[form for i in subs for form in self._forms(blocks[i])] for subs in senders]
        buffers = ranks.exchange(parts, [packed_bytes(each) for each in forms])
        found = {i: Trained(sub.tensors, full_moments(sub, self.keys)) for i, sub in trained.items()}
        for buffer, subs, form in zip(buffers, senders, forms, strict=True):
            values = iter(unpack(buffer, form))
            for i in subs:
                received = {name: next(values) for name in self._specs}
                moments = {name: {key: next(values) for key in keys} for name, keys in self.keys.items()}
                found[i] = Trained(received, moments)
        for sub in found.values():
            for name, counts in self.counters.items():
                sub.moments.setdefault(name, {}).update({key: torch.tensor(n) for key, n in counts.items()})
        return found

    def _flat(self, trained: Trained) -> list[Tensor]:
        """A sub-GCN's tensors and moments, in the order in which they are sent."""
        moments = full_moments(trained, self.keys).values()
        return [*(trained.tensors[name] for name in self._specs), *(t for own in moments for t in own.values())]

    def _forms(self, blocks: Blocks) -> list[TensorSpec]:
        """The shapes and types of these."""
        of = {
            name: TensorSpec(self._slices.shape(name, spec.shape, blocks), spec.dtype)
            for name, spec in self._specs.items()
        }
        return [*of.values(), *(of[name] for name, keys in self.keys.items() for _ in keys)]


def full_moments(trained: Trained, keys: Mapping[str, Sequence[str]]) -> Moments:
    """A sub-GCN's moments under all keys; those that its optimiser does not have yet are zero."""

    def of(name: str, key: str) -> Tensor:
        found = trained.moments.get(name, {}).get(key)
        return torch.zeros_like(trained.tensors[name]) if found is None else found

    return {name: {key: of(name, key) for key in keys} for name, keys in keys.items()}
