"""How ranks exchange the sub-GCNs of a round."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gistgnn.distributed import Ranks, communication
from gistgnn.distributed.ranks import error_message, raise_first
from gistgnn.errors import GistError
from gistgnn.partition import Blocks
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.slices import MOMENTS, THETA, Slices, Trained, is_counter, name_of, shape_of, value_of
from gistgnn.theta.theta import Exchange, Losses


# `keys` are the moments that are cut like their parameter, on any rank; `counters` the largest step counts, by key.
class BetweenRanks(Exchange):
    """Deals the sub-GCNs of a round to ranks: sub-GCN i trains on rank i mod W."""

    ranks: Ranks

    def __init__(self, ranks: Ranks, *, sharded: bool = False) -> None:
        super().__init__(ranks)
        self._sharded = sharded
        self.keys: list[str] = []
        self.counters: dict[str, float] = {}

    def members(self, sub_gcns: int) -> list[int]:
        return self.members_of(self.ranks.rank, sub_gcns)

    def members_of(self, rank: int, sub_gcns: int) -> list[int]:
        """The sub-GCNs that a rank trains."""
        return list(range(rank, sub_gcns, self.ranks.count))

    def agree(self, losses: Losses, error: GistError | None, trained: Mapping[int, Trained]) -> Losses:
        """Gather the losses and errors of all ranks, and which moments their optimisers keep."""
        size, keys, counters = 0, dict[str, None](), dict[str, float]()
        for sub in trained.values():
            for key, value in sub.items():
                if is_counter(key, value, sub[f"{THETA}{name_of(key)}"].shape):
                    counters[key] = max(float(value), counters.get(key, float(value)))
                    continue
                size += value.nbytes
                if key.startswith(MOMENTS):
                    keys[key] = None
        own = {"losses": losses, "error": error_message(error), "bytes": size}
        every = self.ranks.gather({**own, "keys": list(keys), "counters": counters})
        raise_first([each["error"] for each in every], error)
        self.ranks.traffic.rounds += 1
        self.ranks.traffic.slices += sum(each["bytes"] for each in every)
        self.keys = list(dict.fromkeys(key for each in every for key in each["keys"]))  # the same order on all ranks
        self.counters = {}
        for key, count in (item for each in every for item in each["counters"].items()):
            self.counters[key] = max(count, self.counters.get(key, count))
        return {int(i): loss for each in every for i, loss in each["losses"].items()}

    def counts(self) -> dict[str, Tensor]:
        return {key: torch.tensor(count) for key, count in self.counters.items()}

    def communication(self, theta_bytes: int, local_steps: int) -> dict[str, Any]:
        return communication(self.ranks, theta_bytes, local_steps, sharded=self._sharded)


class SendToAll(BetweenRanks):
    """Every rank has all of Θ on its device: it sends its trained sub-GCNs to all other ranks."""

    def __init__(self, ranks: Ranks, slices: Slices, specs: Mapping[str, TensorSpec], device: torch.device) -> None:
        super().__init__(ranks)
        self._slices, self._specs, self._device = slices, specs, device

    def collect(self, blocks: Sequence[Blocks], trained: dict[int, Trained]) -> dict[int, Trained]:
        """Exchange the trained sub-GCNs: every rank returns all of them."""
        own, count = self.ranks.rank, self.ranks.count
        keys = [*(f"{THETA}{name}" for name in self._specs), *self.keys]  # in this order they are sent
        found = {i: {key: value_of(sub, key) for key in keys} for i, sub in trained.items()}
        mine = [found[i][key] for i in sorted(found) for key in keys]
        senders = [[] if rank == own else self.members_of(rank, len(blocks)) for rank in range(count)]
        arrived = self.ranks.exchange(
            [[] if rank == own else mine for rank in range(count)],
            [[form for i in subs for form in self._forms(keys, blocks[i])] for subs in senders],
            self._device,
        )
        for subs, tensors in zip(senders, arrived, strict=True):
            values = iter(tensors)
            found |= {i: {key: next(values) for key in keys} for i in subs}
        return {i: sub | self.counts() for i, sub in found.items()}

    def _forms(self, keys: Sequence[str], blocks: Blocks) -> list[TensorSpec]:
        """The shapes and types of the tensors of a sub-GCN."""
        cuts, specs = self._slices.cuts(blocks), [(name, self._specs[name]) for name in map(name_of, keys)]
        return [TensorSpec(shape_of(spec.shape, cuts[name]), spec.dtype) for name, spec in specs]
