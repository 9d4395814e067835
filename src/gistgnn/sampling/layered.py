"""Batches whose nodes are sampled layer by layer, from the output nodes down."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch

from gistgnn.errors import InputError
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.sampler import Array, RandomBatches, check_count
from gistgnn.sampling.structure import Structure


class LayeredBatches(RandomBatches):
    """Batches in which every layer has its own edges, from its input nodes to its output nodes.

    An epoch is a random permutation of the training nodes, cut into groups of ``batch_size``. A group is the output
    nodes of the last layer, on which the loss is. A layer's input nodes are the output nodes of the layer below; its
    own output nodes are the first of them.

    Args:
        structure: the graph.
        batch_size: output nodes of a batch.
        seed: of the batches.
        independent: see `RandomBatches`.
    """

    refuses: ClassVar[str | None] = None  # see `SampledAdjacency`

    def __init__(self, structure: Structure, batch_size: int, seed: int = 0, *, independent: bool = False) -> None:
        super().__init__(seed, independent=independent)
        self.structure, self._batch_size = structure, batch_size
        self.degrees = structure.degrees
        self.steps_per_epoch = -(-len(structure.train) // batch_size)

    @abstractmethod
    def _layers(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, list[SampledAdjacency]]:
        """Return the input nodes of the first layer, and the edges of every layer, the first layer's first."""

    def _drawn(self, first_step: int, steps: int) -> Iterator[tuple[int, Array]]:
        return self._shuffled(len(self.structure.train), self._batch_size, first_step, steps)

    def _make(self, drawn: tuple[int, Array]) -> Batch:
        step, places = drawn
        outputs = self.structure.train[places]
        nodes, (first, *above) = self._layers(outputs, self._generator("layers", step))
        adj = SampledAdjacency(first.pattern, first.degrees, first.weight, above=above, refuses=self.refuses)
        y = self.structure.y
        return Batch(
            self.structure.features(torch.from_numpy(nodes)),
            adj.to(y.device),
            y.index_select(0, torch.from_numpy(outputs).to(y.device)),
            torch.arange(len(outputs), device=y.device),
            sparse=self.structure.sparse,
        )


def each_layer(name: str, value: int | tuple[int, ...], layers: int | None) -> tuple[int, ...]:
    """Return one number for each layer of a model.

    Args:
        name: of the setting.
        value: its value: a number for each layer, or one for all.
        layers: of the model; None: not known.

    Raises:
        InputError: there are more or fewer numbers than layers, or one number and ``layers`` is not known.
    """
    if isinstance(value, int):
        if layers is None:
            raise InputError(
                f"{name} is {value}, but how many layers the model has is not known (it has no num_layers): give one "
                f"number for each, such as ({value}, {value})"
            )
        return (value,) * layers
    if layers not in (None, len(value)):
        raise InputError(f"{name} has {len(value)} numbers, the model {layers} layers: give one for all, or {layers}")
    return value


def check_counts(name: str, value: int | Sequence[int], also: int | None = None) -> int | tuple[int, ...]:
    """Return a setting as a number or a tuple; raise InputError unless all are integers >= 1, or ``also``."""
    numbers = (value,) if isinstance(value, int) else tuple(value)  # result.json gives a list
    if not numbers:
        raise InputError(f"{name} is (), expected at least one number")
    for number in numbers:
        if number != also:
            check_count(name, number)
    return value if isinstance(value, int) else numbers
