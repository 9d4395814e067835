"""What samplers have in common whose batches are drawn at random: an order of their own, made in the background."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.sampling.batch import Batch, Share, alone
from gistgnn.sampling.expected import Expected, Sizes
from gistgnn.utils.prefetch import ahead
from gistgnn.utils.random_streams import generator

Array = npt.NDArray[Any]

BATCHES = ("shared", "independent")


@dataclass(frozen=True, kw_only=True)
class Sampling(ABC):
    """How `GIST.fit` makes the batches of its steps. A new way is a subclass in a file of its own.

    Args:
        batches: "shared": all sub-GCNs see the same batches in the same order, as in the authors' experiments;
            "independent": each draws its own.

    Attributes:
        name: what `--sampler` and result.json call it.

    Raises:
        InputError: a value out of its range.
    """

    name: ClassVar[str]

    batches: str = "shared"

    def __post_init__(self) -> None:
        """Check every value."""
        if self.batches not in BATCHES:
            raise InputError(f"batches is '{self.batches}', expected one of {', '.join(BATCHES)}")

    @abstractmethod
    def sampler(self, whole: Batch, seed: int, share: Share = alone, layers: int | None = None) -> DrawnBatches:
        """Return the sampler for a graph.

        Args:
            whole: what training sees of the graph, on the device where the models run.
            seed: of the batches.
            share: gives what is made of the graph, once on a machine.
            layers: of the model, the output layer included; None: not known.

        Raises:
            InputError: a value that does not fit the graph or the model.
        """

    def expected(self, graph: Sizes, layers: int) -> Expected:
        """Return about how large batches will be, for plans; a subclass that can tell less than the whole graph does.

        Args:
            graph: the sizes of what training sees.
            layers: of the model, the output layer included.
        """
        return Expected.whole(graph)


class DrawnBatches(ABC):
    """Batches that each follow from (seed, step) alone, made in a thread that works two batches ahead.

    Args:
        seed: of the batches.
        independent: every sub-GCN draws its own; otherwise all see the same.
    """

    steps_per_epoch: int

    def __init__(self, seed: int, *, independent: bool = False) -> None:
        self._seed, self._independent = seed, independent
        self._stream: tuple[int, ...] = ()
        self._columns: Tensor | None = None

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield the batches of the steps first_step, first_step + 1, ..., which are made in the background."""
        return ahead(map(self._prepared, self._drawn(first_step, steps)))

    def select_columns(self, columns: Tensor) -> Self:
        """Return the same sampler with the input features `columns` alone."""
        return self._changed(_columns=columns)

    def for_sub_gcn(self, i: int) -> Self:
        """Return the sampler of sub-GCN i: this one, or one that draws its own batches where they are independent."""
        return self._changed(_stream=(i,)) if self._independent else self

    @abstractmethod
    def _drawn(self, first_step: int, steps: int) -> Iterator[Any]:
        """What the batches of some steps are made of."""

    @abstractmethod
    def _make(self, drawn: Any) -> Batch:
        """The batch that is made of it."""

    def _generator(self, purpose: str, *key: int) -> np.random.Generator:
        """The random numbers for a purpose at one place of the run."""
        return generator(self._seed, purpose, *key, *self._stream)

    def _shuffled(self, count: int, per_batch: int, first_step: int, steps: int) -> Iterator[tuple[int, Array]]:
        """Every step with its share of 0, ..., count - 1: an epoch is a random permutation, cut into groups."""
        per_epoch, drawn, order = -(-count // per_batch), -1, np.empty(0, np.int64)
        for step in range(first_step, first_step + steps):
            epoch, group = divmod(step, per_epoch)
            if epoch != drawn:
                drawn, order = epoch, self._generator("batches", epoch).permutation(count)
            yield step, order[group * per_batch : (group + 1) * per_batch]

    def _prepared(self, drawn: Any) -> Batch:
        batch = self._make(drawn)
        return batch if self._columns is None else batch.select_columns(self._columns)

    def _changed(self, **attributes: Any) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, **attributes)
        return other


def check_count(name: str, value: Any) -> None:
    """Raise InputError unless a value is an integer >= 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {value!r}, expected an integer >= 1")
