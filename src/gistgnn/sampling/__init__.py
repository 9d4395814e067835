"""Batches: what a sub-GCN sees in one step of subTrain."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from gistgnn.sampling.batch import Batch, check_fits, forward, whole_graph
from gistgnn.sampling.full import FullGraph


class Sampler(Protocol):
    """Where batches come from. A new sampler is a new file here with these three members."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every training node is seen about once."""

    def batches(self, first_step: int, steps: int) -> Iterator[Batch]:
        """Yield the batches of the steps first_step, ..., first_step + steps - 1; they follow from the step alone."""

    def select_columns(self, columns: Tensor) -> "Sampler":
        """Return the same sampler with the input features `columns` alone (d_0 partitioned)."""


__all__ = ["Batch", "FullGraph", "Sampler", "check_fits", "forward", "whole_graph"]
