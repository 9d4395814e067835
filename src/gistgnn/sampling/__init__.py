"""Batches: what a sub-GCN sees in one step of subTrain."""

from collections.abc import Generator
from typing import Protocol

from torch import Tensor

from gistgnn.sampling.batch import Batch, Share, arguments, check_fits, forward, training_subgraph, whole_graph
from gistgnn.sampling.choices import SAMPLINGS, describe, described
from gistgnn.sampling.clusters import ClusterBatches, ClusterSampling
from gistgnn.sampling.drawn import DrawnBatches, Sampling
from gistgnn.sampling.fastgcn import FastGCNSampling
from gistgnn.sampling.full import FullGraph
from gistgnn.sampling.ladies import LadiesSampling
from gistgnn.sampling.neighbor import NeighborSampling
from gistgnn.sampling.saint import SaintEdgeSampling, SaintNodeSampling, SaintWalkSampling


class Sampler(Protocol):
    """Where batches come from. A new sampler is a new file here with a subclass of `DrawnBatches`, which has them."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every training node is seen about once."""

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield the batches of the steps first_step, ..., first_step + steps - 1; they follow from the step alone.

        Whoever leaves early closes the generator: it may have a thread at work.
        """

    def select_columns(self, columns: Tensor) -> "Sampler":
        """Return the same sampler with the input features `columns` alone (d_0 partitioned)."""

    def for_sub_gcn(self, i: int) -> "Sampler":
        """Return the sampler of sub-GCN i: this one, or one with other batches where the sub-GCNs' are independent."""


__all__ = [
    "SAMPLINGS",
    "Batch",
    "ClusterBatches",
    "ClusterSampling",
    "DrawnBatches",
    "FastGCNSampling",
    "FullGraph",
    "LadiesSampling",
    "NeighborSampling",
    "SaintEdgeSampling",
    "SaintNodeSampling",
    "SaintWalkSampling",
    "Sampler",
    "Sampling",
    "Share",
    "arguments",
    "check_fits",
    "describe",
    "described",
    "forward",
    "training_subgraph",
    "whole_graph",
]
