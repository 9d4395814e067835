"""Quartiles, and tables in Markdown."""

import platform
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from gistgnn.utils.machine import processor


def quartiles(samples: Sequence[float]) -> dict[str, Any]:
    """Return the median, the quartiles and the samples, as "median", "q1", "q3" and "samples"."""
    values = sorted(samples)
    q1, median, q3 = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    )
    return {"median": median, "q1": q1, "q3": q3, "samples": list(samples)}


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with this many significant digits and no exponent."""
    if value is None:
        return "—"
    places = max(0, digits - len(str(int(abs(value))))) if abs(value) >= 1 else digits
    return f"{value:,.{places}f}"


def spread(value: dict[str, Any] | None) -> str:
    """Format as: median (lower quartile–upper quartile)."""
    if value is None:
        return "—"
    return f"{number(value['median'])} ({number(value['q1'])}–{number(value['q3'])})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def describe_machine(threads: int, device: str) -> dict[str, Any]:
    """Return the facts of the machine."""
    import torch

    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else None
    return {
        "cpu": processor(),
        "gpu": gpu,
        "threads": threads,
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def on(machine: dict[str, Any]) -> str:
    """Describe the machine in one line."""
    gpu = f"{machine['gpu']}, host " if machine["gpu"] else ""
    versions = f"torch {machine['torch']}, Python {machine['python']}"
    return f"{gpu}{machine['cpu']}, {machine['threads']} threads, {versions}"
