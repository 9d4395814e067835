"""Batches of output nodes, whose features are summed over nodes that are sampled layer by layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch

from gistgnn.errors import InputError
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.drawn import Array, DrawnBatches, check_count
from gistgnn.sampling.structure import Structure


class LayeredBatches(DrawnBatches):
    """Batches whose layers have edges of their own, from input nodes to output nodes, the first of the input nodes.

    An epoch is a random permutation of the training nodes, cut into groups of ``batch_size``: the last layer's output
    nodes, on which the loss is. Every layer's input nodes are the output nodes of the layer below.

    Args:
        structure: the graph.
        batch_size: output nodes of a batch.
        seed: of the batches.
        independent: see `DrawnBatches`.
    """

    refuses: ClassVar[str | None] = None  # see `SampledAdjacency`

    def __init__(self, structure: Structure, batch_size: int, seed: int = 0, *, independent: bool = False) -> None:
        super().__init__(seed, independent=independent)
        self.structure, self._batch_size = structure, batch_size
        self.degrees = structure.degrees
        self.steps_per_epoch = -(-len(structure.train) // batch_size)

    @abstractmethod
    def _layers(self, outputs: Array, rng: np.random.Generator) -> tuple[Array, list[SampledAdjacency]]:
        """The input nodes of the first layer, and the edges of every layer, the first layer's first."""

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


def each_layer(name: str, given: int | tuple[int, ...], layers: int | None) -> tuple[int, ...]:
    """Return one number for each layer of a model: those that are given, or the same for all.

    Args:
        name: of the setting.
        given: what the user said of it.
        layers: of the model; None: not known.

    Raises:
        InputError: they are not as many, or it is not known how many.
    """
    if isinstance(given, int):
        if layers is None:
            raise InputError(
                f"{name} is {given}, but how many layers the model has is not known (it has no num_layers): give one "
                f"number for each, such as ({given}, {given})"
            )
        return (given,) * layers
    if layers not in (None, len(given)):
        raise InputError(f"{name} has {len(given)} numbers, the model {layers} layers: give one for all, or {layers}")
    return given


def checked(name: str, given: int | Sequence[int], also: int | None = None) -> int | tuple[int, ...]:
    """Return a number, or a tuple of some, all of them integers >= 1 (or ``also``), or raise InputError."""
    numbers = (given,) if isinstance(given, int) else tuple(given)  # a list, as result.json gives it back
    if not numbers:
        raise InputError(f"{name} is (), expected at least one number")
    for number in numbers:
        if number != also:
            check_count(name, number)
    return given if isinstance(given, int) else numbers
