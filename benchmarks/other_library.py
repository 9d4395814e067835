"""A model of another library on the same batches, trained as its examples do."""

from abc import ABC, abstractmethod
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import DROPOUT, LR, Case
from benchmarks.clock import Clock
from gistgnn.sampling import Batch


class StackOfLayers(nn.Module):
    """A stack of layers. Every hidden layer is followed by norm, ReLU and dropout; the last one by nothing."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        features = case.features
        for width in case.hidden:
            self.convs.append(self.make_layer(case, features, width, last=False))
            features = width * (case.heads if case.model == "gat" else 1)
            self.norms.append(nn.LayerNorm(features, elementwise_affine=False))
        self.convs.append(self.make_layer(case, features, case.classes, last=True))

    def make_layer(self, case: Case, features: int, width: int, *, last: bool) -> nn.Module:
        """Build the library's layer for the model's name."""
        raise NotImplementedError

    def call(self, layer: nn.Module, x: Tensor, structure: Any, *, last: bool) -> Tensor:
        """Return a layer's output: [N, width]."""
        out: Tensor = layer(x, structure)
        return out

    def forward(self, x: Tensor, structure: Any) -> Tensor:
        """Return the scores of every node: [N, C]."""
        *hidden, last = self.convs
        for layer, norm in zip(hidden, self.norms, strict=True):
            x = F.dropout(F.relu(norm(self.call(layer, x, structure, last=False))), DROPOUT, self.training)
        return self.call(last, x, structure, last=True)


class OtherLibrary(ABC):
    """A library's model with torch's default Adam.

    Args:
        case: the shared settings.
        model: the library's model.
    """

    steps_per_pass = sub_gcns = 1

    def __init__(self, case: Case, model: type[StackOfLayers]) -> None:
        self._case = case
        self.sampler = case.sampler()
        torch.manual_seed(0)
        self._model = model(case).to(case.device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=LR)
        self._position = 0

    @abstractmethod
    def structure(self, batch: Batch) -> Any:
        """Return the batch's edges as the library's layers take them."""

    def prepare(self, batch: Batch) -> Any:
        """Convert the batch for the library. This is not part of a step's time."""
        return batch.x, self.structure(batch), batch.y, batch.loss_nodes

    def logits(self, prepared: Any) -> Tensor:
        """Return the model's output."""
        out: Tensor = self._model(*prepared[:2])
        return out

    def step(self, prepared: Any, clock: Clock) -> None:
        """Run one training step as in the library's examples."""
        y, loss_nodes = prepared[2:]
        with clock.span("forward"):
            self._optimizer.zero_grad()
            with torch.autocast(self._case.device, torch.bfloat16, enabled=self._case.precision == "bf16"):
                loss = F.cross_entropy(self.logits(prepared)[loss_nodes].float(), y[loss_nodes])
        with clock.span("backward"):
            loss.backward()
        with clock.span("optimiser"):
            self._optimizer.step()

    def stretch(self, passes: int, clock: Clock) -> None:
        """Run steps on our sampler's batches, made in the background: PyG's sampler needs an extension for METIS."""
        with clock.span("total"), closing(self.sampler.batches(self._position, passes)) as batches:
            for _ in range(passes):
                with clock.span("batches"):
                    prepared = self.prepare(next(batches))
                self.step(prepared, Clock(self._case.device))
        self._position += passes
