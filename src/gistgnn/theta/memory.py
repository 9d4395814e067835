"""Θ in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.checkpoint import Checkpoint, Part
from gistgnn.distributed import Ranks, World
from gistgnn.io.stored_model import held_model
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.theta.exchange import Exchange
from gistgnn.theta.keys import BEST, MOMENTS, THETA, check_held, keyed, moment_of, name_of
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.ranks.between_ranks import SendToAll
from gistgnn.theta.slices import gather, gather_into, merge_shared, scatter
from gistgnn.theta.store import Store
from gistgnn.theta.trained import Moments, Trained, fill, is_counter
from gistgnn.theta.whole_theta import WholeTheta


class InMemory(WholeTheta):
    """Θ as one tensor for every parameter and buffer.

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
        tensors: every parameter and buffer of the full model, by name. They are held, not copied.
        streams: a round's sub-GCNs are on the device one at a time; the trained ones wait where Θ is.
        exchange: see `Theta`.
    """

    def __init__(
        self,
        layout: Layout,
        widths: Sequence[int],
        tensors: Mapping[str, Tensor],
        *,
        streams: bool = False,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__(layout, widths, exchange)
        self._tensors = dict(tensors)
        self._moments: Moments = {}
        self.best: dict[str, Tensor] = {}
        self.streams = streams

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> InMemory:
        """Make Θ with the model's initial values, on the model's device or on the host, as the store says."""
        device = spec.device if store.place.holds == "device" else torch.device("cpu")
        tensors = {name: tensor.to(device) for name, tensor in spec.initial_tensors().items()}
        exchange = SendToAll(ranks) if isinstance(ranks, Ranks) else None
        return cls(spec.layout, spec.widths, tensors, streams=store.place.streams, exchange=exchange)

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
            key: (value if is_counter(key, value.shape, self.shapes[name]) else gather(value, cut)).clone()
            for key, value in self._moments.get(name, {}).items()
        }

    def keep(self, i: int, trained: Trained) -> None:
        """Hold a trained sub-GCN until the end of the round: a copy where its module is used again."""
        if self.streams:
            trained = trained.copy_to({name: tensor.device for name, tensor in self._tensors.items()})
        self._trained[i] = trained

    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg)."""
        self._write(self.exchange.collect(self, self._blocks, self._trained))
        self._finish_round(loss)

    def _write(self, trained: Mapping[int, Trained]) -> None:
        in_order = [trained[i] for i in range(len(self._blocks))]
        self.put(self._blocks, [sub.tensors for sub in in_order])
        if in_order[0].moments:
            self.put_moments(self._blocks, [sub.moments for sub in in_order])

    def put(self, blocks: Sequence[Blocks], trained: Sequence[Mapping[str, Tensor]]) -> None:
        """Write the sub-GCNs of one round back (subAgg): entries that several hold are averaged over them.

        Args:
            blocks: the round's blocks, one tuple for each sub-GCN.
            trained: the parameters and buffers of the sub-GCNs, in the same order.
        """
        for name, target in self._tensors.items():
            self._merge(name, target, blocks, [tensors[name] for tensors in trained])

    def put_moments(self, blocks: Sequence[Blocks], states: Sequence[Mapping[str, Mapping[str, Tensor]]]) -> None:
        """Write the optimisers' state of every parameter back, by the indices of the parameter.

        Of step counts the largest is kept. An optimiser without a state counts as one whose moments are zero.
        """
        for name in states[0]:
            store, target = self._moments.setdefault(name, {}), self._tensors[name]
            for key in dict.fromkeys(key for state in states for key in state[name]):
                found = [state[name].get(key) for state in states]
                known = [value for value in found if value is not None]
                if is_counter(key, known[0].shape, target.shape):
                    store[key] = torch.stack(known).max()
                    continue
                cuts = [self.slices.cut(name, own) for own in blocks]
                values = [
                    torch.zeros_like(gather(target, cut)) if v is None else v
                    for cut, v in zip(cuts, found, strict=True)
                ]
                self._merge(name, store.setdefault(key, torch.zeros_like(target)), blocks, values)

    def communication(self, local_steps: int) -> dict[str, Any] | None:
        """What the ranks have exchanged so far."""
        return self.exchange.communication(sum(tensor.nbytes for tensor in self._tensors.values()), local_steps)

    def keep_best(self) -> None:
        """Copy Θ as the best one."""
        self.best = self.copy()

    def copy(self) -> dict[str, Tensor]:
        """Return a copy of every parameter and buffer."""
        return {name: tensor.clone() for name, tensor in self._tensors.items()}

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model with a copy of the parameters; see `Theta.full_model`."""
        tensors = self.best if best and self.best else self._tensors
        if module is None or self.streams:
            module = spec.from_seed().to(next(iter(tensors.values())).device)
        fill(module, tensors)
        return module.eval()

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        """The full model with a copy of the parameters, or with these themselves where they are on the host."""
        if self.streams:
            return held_model(spec.on_meta(), self._tensors).to(spec.device)
        if module is None:
            return self.full_model(spec)
        self.load_into(module)
        return module

    def checkpoint(self) -> dict[str, Part]:
        """The tensors of Θ, of the best Θ and of the moments."""
        return {key: Part.whole(tensor) for key, tensor in keyed(self._tensors, self._moments, self.best).items()}

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Resume from a checkpoint."""
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
