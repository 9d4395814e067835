"""Milliseconds on a GPU or a CPU, and what a profiler sees."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Times = dict[str, Any]


class Clock:
    """Marks moments in the work of a device, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def mark(self) -> Any:
        """Return a moment: an event in the GPU's queue, or the time of the CPU."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self, first: Any, last: Any) -> float:
        """Return the time between two moments; waits for a GPU to reach the last one."""
        if not self._cuda:
            return 1e3 * (last - first)
        last.synchronize()
        return float(first.elapsed_time(last))


def median_of(samples: list[list[float]]) -> Times:
    """Return the median of all samples, and those of each turn.

    The distance of the turns' medians says how exact the first one is.
    """
    return {
        "ms": statistics.median(value for turn in samples for value in turn),
        "turns": [statistics.median(turn) for turn in samples],
    }


def measure_in_turn(
    contenders: dict[str, Callable[[], float]],
    *,
    samples: int,
    turns: int = 2,
    failed: dict[str, str],
) -> dict[str, Times]:
    """Call each contender several times in every turn, after one call that is not counted.

    Args:
        contenders: functions that do their work and return its milliseconds.
        samples: calls in a turn that count.
        turns: how often all contenders are measured, one after another.
        failed: gets the error of each contender that fails; it has no times.
    """
    samples_by_name: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, call in contenders.items():
            if name in failed:
                continue
            try:
                call()
                samples_by_name[name].append([call() for _ in range(samples)])
            except Exception as error:
                # There may be too little memory, or a layer may refuse a type.
                failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return {name: median_of(times) for name, times in samples_by_name.items() if name not in failed}


def profile(call: Callable[[], Any], steps: int, device: torch.device) -> dict[str, Any]:
    """Return what a profiler sees of a call that takes some steps.

    It is the number of kernels of a step, the GPU's busy share, and the longest kernels. The share
    is the time of all kernels divided by the time of the same call without the profiler, which
    slows the host down. On a CPU there are operations in place of kernels.
    """
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    call()
    clock = Clock(device)
    begun = clock.mark()
    call()
    duration = clock.milliseconds(begun, clock.mark())
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profiler(activities=activities) as seen:
        call()
        if cuda:
            torch.cuda.synchronize()
    kernels: dict[str, tuple[int, float]] = {}
    for event in seen.events():
        on_gpu = event.device_type.name == "CUDA"
        if on_gpu != cuda:
            continue
        count, busy = kernels.get(event.name, (0, 0.0))
        microseconds = event.time_range.elapsed_us() if cuda else event.self_cpu_time_total
        kernels[event.name] = count + 1, busy + microseconds / 1e3
    longest = sorted(kernels.items(), key=lambda item: -item[1][1])[:10]
    return {
        "kernels_per_step": sum(count for count, _ in kernels.values()) / steps,
        "busy_share": sum(busy for _, busy in kernels.values()) / duration,
        "ms_per_step": duration / steps,
        "longest": [
            {"name": name[:90], "count": count, "ms": busy} for name, (count, busy) in longest
        ],
    }
