"""What a run, or a phase of it, takes with one m and one store of Θ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gistgnn.planning.rates import Rates
from gistgnn.planning.rehearsal import Rehearsal
from gistgnn.runs.config import RunConfig


@dataclass(frozen=True)
class Option:
    """What a run with one m and one store takes; sizes in bytes."""

    sub_gcns: int
    store: str
    parameters: int  # of the largest sub-GCN, a number
    slice: int  # the largest sub-GCN's parameters and buffers
    training: int  # the same with gradients and the optimiser's state
    activations: int  # what a step takes beyond what it leaves (of all sub-GCNs at once, where they are fused)
    evaluation: int  # what an evaluation takes beyond what is there
    method: str  # how the model is evaluated: "whole", "layers" or "parts"
    moved: int  # from and to Θ in a round, by the sub-GCN that moves most
    moved_by_all: int  # the same, by all sub-GCNs
    data_parallel: int  # what m processes that train all of Θ send in as many steps: 2 (m - 1) |Θ| for a step
    peaks: dict[str, int]  # the most that each place ("cpu", "cuda", "disk") holds
    phase: str  # the stage of the run in which the device holds most
    lacking: tuple[str, ...]  # the places that have too little
    seconds: dict[str, float] | None = None  # of a step, a round, an epoch, an evaluation

    @classmethod
    def of(
        cls, config: RunConfig, store: str, found: Rehearsal, limits: Mapping[str, int], rates: Rates | None, **more: Any
    ) -> Self:
        """Return what a rehearsal found; `limits` are the bytes that each place has."""


    @property
    def fits(self) -> bool:
        """Whether every place has enough."""
        return not self.lacking
