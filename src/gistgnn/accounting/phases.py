"""Where the time of a run goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

PHASES = ("prepare", "take", "train", "merge", "evaluate", "save")
"""Clusters and what is prepared once; subGCNs; subTrain with its batches; subAgg; scores; checkpoints."""


class Phases:
    """Adds up the seconds that a run spends in each of its phases.

    Args:
        seconds: of every phase so far, which go on to be counted there.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = {} if seconds is None else seconds

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count the block to a phase, however it ends."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun
