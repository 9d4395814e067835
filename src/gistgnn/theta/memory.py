"""Θ in memory."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gistgnn.distributed import Ranks, World
from gistgnn.layout.axes import Layout
from gistgnn.storage.tensors import assign
from gistgnn.theta.model_spec import ModelSpec, TensorSpec
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import Trained, fill, gather, is_counter, name_of, values_by_key
from gistgnn.theta.theta import Exchange, Theta


class InMemory(Theta):
    """Θ of which this process has every tensor; those given to it are held, not copied. See `Theta`."""

    def __init__(
        self,
        layout: Layout,
        widths: Sequence[int],
        tensors: Mapping[str, Tensor],
        *,
        streams: bool = False,
        exchange: Exchange | None = None,
    ) -> None:
        specs = {name: TensorSpec(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        super().__init__(layout, widths, specs, exchange)
        self.tensors, self.streams = dict(tensors), streams

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> "InMemory":
        """Make Θ with the model's initial values, on the model's device or on the host, as the store says."""
        device = spec.device if store.place.holds == "device" else torch.device("cpu")
        given = spec.init is not None  # by the caller, who keeps it
        tensors = {name: tensor.to(device, copy=given) for name, tensor in spec.initial_tensors().items()}
        theta = cls(spec.layout, spec.widths, tensors, streams=store.place.streams)
        if isinstance(ranks, Ranks):
            from gistgnn.theta.between_ranks import SendToAll

            theta.exchange = SendToAll(ranks, theta.slices, theta.specs, device)
        return theta

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name; a view where that is a whole tensor."""
        return {name: gather(tensor, self._cuts[i][name]) for name, tensor in self.tensors.items()}

    def moments_of(self, i: int) -> dict[str, Tensor]:
        found = {}
        for key, value in self.moments.items():
            name = name_of(key)
            own = value if is_counter(key, value, self.specs[name].shape) else gather(value, self._cuts[i][name])
            found[key] = own.clone()
        return found

    def keep(self, i: int, trained: Trained) -> None:
        """Hold a trained sub-GCN until the end of the round: a copy where its module is used again."""
        if self.streams:
            super().keep(i, trained)
        else:
            self.trained[i] = trained

    def commit(self, loss: float) -> None:
        self._write(self.exchange.collect(self._blocks, self.trained))
        self.round, self.loss, self.trained = self.number + 1, loss, {}

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
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

    def _write(self, trained: Mapping[int, Trained]) -> None:
        """Write the sub-GCNs and their moments into Θ."""
        values, counts = values_by_key([trained[i] for i in range(len(self._blocks))], self.specs)
        self.moments |= counts
        for key, own in values.items():
            self.slices.merge(name_of(key), self._blocks, self._target(key), self._cuts, own)
