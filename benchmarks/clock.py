"""Durations, by the host's clock on the CPU and by CUDA events on the GPU."""

import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch

from gistgnn.sampling import Batch, Sampler


class Clock:
    """Adds up the milliseconds spent in named spans, which may nest.

    On a GPU a span lasts from the time when its first kernel could start until its last kernel ends. Events are
    recorded in the stream and read later, so measuring does not make the host wait.
    """

    def __init__(self, device: str | torch.device) -> None:
        self._cuda = torch.device(device).type == "cuda"
        self._spans: dict[str, list[tuple[Any, Any]]] = defaultdict(list)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time the block."""
        start = self._now()
        yield
        self._spans[name].append((start, self._now()))

    def read(self) -> dict[str, float]:
        """Return the milliseconds of every name since the last call, and reset them."""
        if self._cuda:
            torch.cuda.synchronize()
        spans, self._spans = self._spans, defaultdict(list)
        if self._cuda:
            return {name: sum(start.elapsed_time(end) for start, end in pairs) for name, pairs in spans.items()}
        return {name: 1e3 * sum(end - start for start, end in pairs) for name, pairs in spans.items()}

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class TimedSampler:
    """A sampler that times the waiting for its batches, as "batches"."""

    def __init__(self, sampler: Sampler, clock: Clock) -> None:
        self._sampler, self._clock = sampler, clock
        self.steps_per_epoch = sampler.steps_per_epoch

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        with closing(self._sampler.batches(first_step, steps)) as made:
            for _ in range(steps):
                with self._clock.span("batches"):
                    batch = next(made)
                yield batch

    def select_columns(self, columns: torch.Tensor) -> "TimedSampler":
        return TimedSampler(self._sampler.select_columns(columns), self._clock)

    def for_sub_gcn(self, i: int) -> "TimedSampler":
        return self
