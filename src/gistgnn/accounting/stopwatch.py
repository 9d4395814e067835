"""Where the time of a run goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the seconds of every activity of a run.

        with seconds("train"):
            ...

    The activities are "prepare" (clusters, first batch), "take" (subGCNs), "train" (subTrain with its batches), "merge"
    (subAgg), "evaluate" (scores) and "save" (checkpoints).

    Args:
        seconds: of every activity before a run was resumed; None: it begins.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = {} if seconds is None else seconds

    @contextmanager
    def __call__(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity, also where the block raises an error."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] = self.seconds.get(activity, 0.0) + time.perf_counter() - begun
