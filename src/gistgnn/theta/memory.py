"""Θ in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gistgnn.checkpoint import Checkpoint, Part
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.theta.keys import BEST, MOMENTS, THETA, check_held, keyed, moment_of, name_of
from gistgnn.theta.local import LocalPending, LocalTheta
from gistgnn.theta.slices import Cut, gather, gather_into, index_of, scatter
from gistgnn.theta.theta import Moments, Trained


class InMemory(LocalTheta):
    """Θ as one tensor for every parameter and buffer.

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
        tensors: every parameter and buffer of the full model, by name. They are held, not copied.
        streams: a round's sub-GCNs are on the device one at a time; what they have become waits beside Θ.
    """

    def __init__(
        self, layout: Layout, widths: Sequence[int], tensors: Mapping[str, Tensor], *, streams: bool = False
    ) -> None:
        super().__init__(layout, widths)
        self._tensors = dict(tensors)
        self._moments: Moments = {}
        self.best: dict[str, Tensor] = {}
        self.streams = streams

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every parameter and buffer of the full model, by name."""
        return self._tensors

    @property
    def moments(self) -> Moments:
        """The moments that are carried."""
        return self._moments

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """The shape of every parameter and buffer."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def slice(self, name: str, blocks: Blocks) -> Tensor:
        """The entries of a tensor in the blocks; a view where that is all of them."""
        return gather(self._tensors[name], self.slices.cut(name, blocks))

    def slice_into(self, target: Tensor, name: str, blocks: Blocks) -> None:
        """Copy the entries of a tensor in the blocks into another of their shape."""
        gather_into(target.detach(), self._tensors[name], self.slices.cut(name, blocks))

    def slice_moments(self, name: str, blocks: Blocks) -> dict[str, Tensor]:
        """The entries of a parameter's moments in the blocks, copied; a step count as it is."""
        cut = self.slices.cut(name, blocks)
        return {
            key: (value if self.counts(name, key, value) else gather(value, cut)).clone()
            for key, value in self._moments.get(name, {}).items()
        }

    def begin(self, number: int, blocks: Sequence[Blocks]) -> PendingInMemory:
        """Begin round t."""
        return PendingInMemory(self, number, blocks)

    def put(self, blocks: Sequence[Blocks], trained: Sequence[Mapping[str, Tensor]]) -> None:
        """Write the sub-GCNs of one round back (subAgg): entries that several hold are averaged over them.

        Args:
            blocks: the round's blocks, one tuple for each sub-GCN.
            trained: the sub-GCNs' parameters and buffers, in the same order.
        """
        for name, target in self._tensors.items():
            self._merge(name, target, blocks, [tensors[name] for tensors in trained])

    def put_moments(self, blocks: Sequence[Blocks], states: Sequence[Mapping[str, Mapping[str, Tensor]]]) -> None:
        """Write the optimisers' per-parameter state back, by the indices of the parameters.

        Step counts are merged by maximum; an optimiser that has no state yet counts as one whose moments are zero.
        """
        for name in states[0]:
            store, target = self._moments.setdefault(name, {}), self._tensors[name]
            for key in dict.fromkeys(key for state in states for key in state[name]):
                found = [state[name].get(key) for state in states]
                known = [value for value in found if value is not None]
                if self.counts(name, key, known[0]):
                    store[key] = torch.stack(known).max()
                    continue
                cuts = [self.slices.cut(name, own) for own in blocks]
                values = [
                    torch.zeros_like(gather(target, cut)) if v is None else v
                    for cut, v in zip(cuts, found, strict=True)
                ]
                self._merge(name, store.setdefault(key, torch.zeros_like(target)), blocks, values)

    def keep_best(self) -> None:
        """Copy Θ as the best one."""
        self.best = self.copy()

    def copy(self) -> dict[str, Tensor]:
        """Return a copy of every parameter and buffer."""
        return {name: tensor.clone() for name, tensor in self._tensors.items()}

    def checkpoint(self) -> dict[str, Part]:
        """Θ, the best Θ and the moments."""
        return {key: Part.whole(tensor) for key, tensor in keyed(self._tensors, self._moments, self.best).items()}

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Go on from a checkpoint."""
        check_held(saved, self.shapes)
        self.round = rounds
        saved.read({f"{THETA}{name}": Part.whole(tensor) for name, tensor in self._tensors.items()})
        for key in saved.tensors:
            name, device = name_of(key), self._tensors[name_of(key)].device
            if key.startswith(BEST):
                self.best[name] = saved.read_whole(key, device)
            elif key.startswith(MOMENTS):  # torch's optimisers count their steps on the host
                moment = moment_of(key)
                where = "cpu" if moment == "step" else device
                self._moments.setdefault(name, {})[moment] = saved.read_whole(key, where)

    def _merge(self, name: str, target: Tensor, blocks: Sequence[Blocks], values: Sequence[Tensor]) -> None:
        cuts = [self.slices.cut(name, own) for own in blocks]
        if self.slices.disjoint(name, blocks) and target.dtype != torch.bool:
            for cut, value in zip(cuts, values, strict=True):
                scatter(target, cut, value.detach())
        else:
            merge_shared(target, cuts, values)


class PendingInMemory(LocalPending):
    """Keeps what the sub-GCNs have become: their own tensors, or copies where their modules are used again."""

    _theta: InMemory

    def __init__(self, theta: InMemory, number: int, blocks: Sequence[Blocks]) -> None:
        super().__init__(theta, number, blocks)
        self._kept: dict[int, Trained] = {}

    def set_aside(self, i: int, trained: Trained) -> None:
        """Keep what sub-GCN i has become until the round's end."""
        if self._theta.streams:
            devices = {name: tensor.device for name, tensor in self._theta.tensors.items()}
            tensors = {n: t.detach().to(devices[n], copy=True) for n, t in trained.tensors.items()}
            moments = {n: {k: v.to(devices[n]) for k, v in m.items()} for n, m in trained.moments.items()}
            trained = Trained(tensors, moments)
        self._kept[i] = trained

    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg)."""
        kept = [self._kept[i] for i in range(len(self.blocks))]
        self._theta.put(self.blocks, [trained.tensors for trained in kept])
        if kept[0].moments:
            self._theta.put_moments(self.blocks, [trained.moments for trained in kept])
        self._theta.round, self._theta.loss = self.number + 1, loss
        self._kept.clear()


def merge_shared(target: Tensor, cuts: Sequence[Cut], values: Sequence[Tensor]) -> None:
    """Move each entry of a tensor by the mean change of those who hold it, in place; a flag takes the first's value.

    Averaging the changes rather than the values leaves entries that nobody changed as they are, bit for bit; an entry
    that one alone holds takes its value.
    """
    indices = [index_of(target, cut) for cut in cuts]
    values = [value.detach().to(target.device) for value in values]
    if target.dtype == torch.bool:  # a flag has no average, and training does not change it
        target[indices[0]] = values[0]
        return
    change = torch.zeros_like(target)
    holders = torch.zeros_like(target, dtype=torch.long)
    for index, value in zip(indices, values, strict=True):
        change[index] += value - target[index]
        holders[index] += 1
    alone = holders == 1
    holders.clamp_(min=1)
    target += change / holders if target.is_floating_point() else change // holders
    for index, value in zip(indices, values, strict=True):  # t + (v - t) is v but for rounding
        target[index] = torch.where(alone[index], value.to(target.dtype), target[index])
