"""Batches whose nodes are sampled layer by layer, from the output nodes down."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.sampler import Array, RandomBatches, Sampling, check_draws
from gistgnn.sampling.structure import Structure
from gistgnn.utils.checks import check_count, check_kind
from gistgnn.utils.transfer import to_device

Layers = tuple[Array, list[SampledAdjacency], dict[str, Tensor]]


class LayeredSampling(Sampling):
    """Settings of a sampler that draws the edges of every layer.

    One setting, named by `per_layer`, is a number for each layer of the model, or one for all.
    """

    per_layer: ClassVar[str]
    also: ClassVar[int | None] = None  # a value of that setting below 1, which means all there are; so do large ones
    refuses: ClassVar[str | None] = None  # see `SampledAdjacency`

    batch_size: int  # a field of the subclasses

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        value: Any = getattr(self, self.per_layer)
        check_kind(self.per_layer, value, (int, list, tuple), "an integer, or one for each layer")
        numbers = (value,) if isinstance(value, int) else tuple(value)  # result.json gives a list
        if not numbers:
            raise InputError(f"{self.per_layer} is (), expected at least one number")
        for number in numbers:
            if number != self.also:
                check_count(self.per_layer, number)
        object.__setattr__(self, self.per_layer, value if isinstance(value, int) else numbers)

    def numbers(self, layers: int | None) -> tuple[int, ...]:
        """Return the setting's number for each layer of a model; None: how many it has is not known."""
        name, value = self.per_layer, getattr(self, self.per_layer)
        if isinstance(value, int):
            if layers is None:
                raise InputError(
                    f"{name} is {value}, but how many layers the model has is not known (it has no num_layers): give "
                    f"one number for each, such as ({value}, {value})"
                )
            return (value,) * layers
        if layers not in (None, len(value)):
            raise InputError(
                f"{name} has {len(value)} numbers, the model {layers} layers: give one for all, or {layers}"
            )
        return value

    def sampler(self, whole: Batch, seed: int, share: Share = unshared, layers: int | None = None) -> LayeredBatches:
        """Return the sampler; see `Sampling.sampler`."""
        numbers = self.numbers(layers)
        for number in numbers if self.also is None else ():
            check_draws(self.per_layer, number, whole.x.shape[0])
        return LayeredBatches(Structure(whole, share), self, numbers, seed)

    @abstractmethod
    def draw_layers(
        self, structure: Structure, outputs: Array, numbers: tuple[int, ...], rng: np.random.Generator
    ) -> Layers:
        """Draw the edges of a batch for the output nodes of the last layer.

        ``numbers`` has the setting `per_layer` of each layer. Return the first layer's input nodes, every layer's
        edges, and edge data where layers share their edges.
        """


class LayeredBatches(RandomBatches):
    """Batches in which every layer has its own edges, from its input nodes to its output nodes.

    An epoch is a random permutation of the training nodes, cut into groups of `batch_size`. A group is the output
    nodes of the last layer, on which the loss is. A layer's input nodes are the output nodes of the layer below; its
    own output nodes are the first of them.
    """

    def __init__(self, structure: Structure, settings: LayeredSampling, numbers: tuple[int, ...], seed: int) -> None:
        super().__init__(seed, independent=settings.independent)
        self._structure, self._settings, self._numbers = structure, settings, numbers
        self.steps_per_epoch = -(-len(structure.train) // settings.batch_size)

    def _drawn(self, first_step: int, steps: int) -> Iterator[tuple[int, Array]]:
        return self._shuffled(len(self._structure.train), self._settings.batch_size, first_step, steps)

    def make(self, drawn: tuple[int, Array]) -> Batch:
        """Return the batch of a group of training nodes."""
        structure, (step, places) = self._structure, drawn
        outputs, rng = structure.train[places], self._generator("layers", step)
        nodes, layers, edge_data = self._settings.draw_layers(structure, outputs, self._numbers, rng)
        first, *above = layers
        adj = SampledAdjacency(first.pattern, first.degrees, first.weight, above=above, refuses=self._settings.refuses)
        y = structure.y
        return Batch(
            structure.features(torch.from_numpy(nodes)),
            adj.to(y.device),
            y.index_select(0, to_device(torch.from_numpy(outputs), y.device)),
            torch.arange(len(outputs), device=y.device),
            sparse=structure.sparse,
            edge_data=edge_data,
        )
