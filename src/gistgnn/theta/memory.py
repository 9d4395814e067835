"""Θ in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gistgnn.distributed import Ranks, World
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.storage.tensors import assign
from gistgnn.theta.model_spec import ModelSpec, TensorSpec
from gistgnn.theta.ranks.between_ranks import SendToAll, full_moments
from gistgnn.theta.slices import gather, gather_into
from gistgnn.theta.store import Store
from gistgnn.theta.theta import Exchange, WholeTheta
from gistgnn.theta.trained import (
    BEST,
    MOMENTS,
    THETA,
    Moments,
    Trained,
    check_held,
    fill,
    is_counter,
    keyed,
    moment_of,
    name_of,
)


class InMemory(WholeTheta):
    """Θ as one tensor for every parameter and buffer.

    Args:
        tensors: every parameter and buffer of the full model, by name. They are held, not copied.
        streams: a round's sub-GCNs are on the device one at a time; the trained ones wait where Θ is.

    Attributes:
        moments: the moments that are carried.
        best: the tensors of the best Θ; empty before there is one.
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
        self.tensors = dict(tensors)
        specs = {name: TensorSpec(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        super().__init__(layout, widths, specs, exchange)
        self.moments: Moments = {}
        self.best: dict[str, Tensor] = {}
        self.streams = streams

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> InMemory:
        """Make Θ with the model's initial values, on the model's device or on the host, as the store says."""
        device = spec.device if store.place.holds == "device" else torch.device("cpu")
        given = spec.init is not None  # by the caller, who keeps it
        tensors = {name: tensor.to(device, copy=given) for name, tensor in spec.initial_tensors().items()}
        theta = cls(spec.layout, spec.widths, tensors, streams=store.place.streams)
        if isinstance(ranks, Ranks):
            theta.exchange = SendToAll(ranks, theta.slices, theta.specs, device)
        return theta

    def slice(self, name: str, blocks: Blocks) -> Tensor:
        """The entries of a tensor in the blocks; a view where that is all of them."""
        return gather(self.tensors[name], self.slices.cut(name, blocks))

    def slice_into(self, target: Tensor, name: str, blocks: Blocks) -> None:
        """Copy the entries of a tensor in the blocks into another of their shape."""
        gather_into(target.detach(), self.tensors[name], self.slices.cut(name, blocks))

    def slice_moments(self, name: str, blocks: Blocks) -> dict[str, Tensor]:
        """The entries of a parameter's moments in the blocks, copied; a step count as it is."""
        cut, shape = self.slices.cut(name, blocks), self.specs[name].shape
        return {
            key: (value if is_counter(key, value.shape, shape) else gather(value, cut)).clone()
            for key, value in self.moments.get(name, {}).items()
        }

    def forget_moments(self) -> None:
        """Drop all moments."""
        self.moments = {}

    def keep(self, i: int, trained: Trained) -> None:
        """Hold a trained sub-GCN until the end of the round: a copy where its module is used again."""
        if self.streams:
            trained = trained.copy_to({name: tensor.device for name, tensor in self.tensors.items()})
        self._trained[i] = trained

    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg)."""
        self._write(self.exchange.collect(self._blocks, self._trained))
        self._finish_round(loss)

    def _write(self, trained: Mapping[int, Trained]) -> None:
        """Write the sub-GCNs and their moments into Θ. Of step counts the largest is kept.

        An optimiser without a state counts as one whose moments are zero.
        """
        subs = [trained[i] for i in range(len(self._blocks))]
        for name, target in self.tensors.items():
            cuts = [self.slices.cut(name, blocks) for blocks in self._blocks]
            self.slices.merge(name, self._blocks, target, cuts, [sub.tensors[name] for sub in subs])
            for key in dict.fromkeys(key for sub in subs for key in sub.moments.get(name, {})):
                moments = self.moments.setdefault(name, {})
                known = [sub.moments[name][key] for sub in subs if key in sub.moments[name]]
                if is_counter(key, known[0].shape, target.shape):
                    moments[key] = torch.stack(known).max()
                    continue
                values = [full_moments(sub, {name: [key]})[name][key] for sub in subs]
                if key not in moments:
                    moments[key] = torch.zeros_like(target)
                self.slices.merge(name, self._blocks, moments[key], cuts, values)

    def keep_best(self) -> None:
        """Copy Θ as the best one."""
        self.best = self.copy()

    def copy(self) -> dict[str, Tensor]:
        """Return a copy of every parameter and buffer."""
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def load_into(self, module: nn.Module) -> None:
        """Copy all of Θ into a module of the full widths."""
        fill(module, self.tensors)

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model with a copy of the parameters; see `Theta.full_model`."""
        tensors = self.best if best and self.best else self.tensors
        if module is None or self.streams:
            module = spec.from_seed().to(next(iter(tensors.values())).device)
        fill(module, tensors)
        return module.eval()

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        """The full model with a copy of the parameters, or with large ones themselves where they are on the host."""
        if not self.exchange.ranks.leads:
            return spec.on_meta()
        if self.streams:
            return assign(spec.on_meta(), self.tensors, "Θ").to(spec.device)
        return self.full_model(spec, module=module)

    def checkpoint(self) -> dict[str, Part]:
        """The tensors of Θ, of the best Θ and of the moments."""
        return {key: Part.whole(tensor) for key, tensor in keyed(self.tensors, self.moments, self.best).items()}

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Resume from a checkpoint."""
        check_held(saved, self.shapes)
        self.round = rounds
        for name, tensor in self.tensors.items():
            tensor.copy_(saved.tensor(f"{THETA}{name}"))
        for key in saved.shapes:
            name, device = name_of(key), self.tensors[name_of(key)].device
            if key.startswith(BEST):
                self.best[name] = saved.tensor(key).to(device, copy=True)
            elif key.startswith(MOMENTS):  # torch's optimisers count their steps on the host
                moment = moment_of(key)
                where = "cpu" if moment == "step" else device
                self.moments.setdefault(name, {})[moment] = saved.tensor(key).to(where, copy=True)
