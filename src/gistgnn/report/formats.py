"""Numbers as a reader wants them."""

import math
import statistics
from collections.abc import Sequence

NBSP = "\N{NO-BREAK SPACE}"
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def finite(value: float | None) -> float:
    """The value, or nan for what is missing or infinite: a gap in a curve."""
    return float(value) if value is not None and math.isfinite(value) else math.nan


def percent(fraction: float, digits: int = 2) -> str:
    """A fraction in [0, 1] as a percentage."""
    return f"{100 * fraction:.{digits}f}{NBSP}%"


def number(value: float) -> str:
    """Four digits or so; empty for nan."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Seconds, with minutes and hours where there are any."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs" if seconds else "0 s"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size_unit(size: float) -> tuple[int, str]:
    """The unit in which so many bytes read well, and its name."""
    return next(((unit, name) for unit, name in _SIZES if size >= unit), (1, "bytes"))


def size(count: float) -> str:
    """A number of bytes."""
    unit, name = size_unit(count)
    value = count / unit
    return f"{value:,.0f} {name}" if unit == 1 or value >= 100 else f"{value:.3g} {name}"


def times(factor: float) -> str:
    """A speed-up."""
    return f"{factor:.1f}×" if factor < 99.5 else f"{factor:,.0f}×"


def known(values: Sequence[float | None]) -> list[float]:
    """The values of those seeds that have one."""
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def mean_sd(values: Sequence[float | None], digits: int = 2) -> str:
    """Mean ± standard deviation over seeds, the value of one, or a dash."""
    there = known(values)
    if not there:
        return "–"
    mean = f"{statistics.mean(there):.{digits}f}"
    return f"{mean}{NBSP}±{NBSP}{statistics.stdev(there):.{digits}f}" if len(there) > 1 else mean


def plural(count: int, noun: str) -> str:
    """How many, with the noun: 1 round, 2 rounds."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def time_unit(seconds: float) -> tuple[int, str]:
    """The unit in which so long a time reads well on an axis, and its name."""
    if seconds >= 2 * 3600:
        return 3600, "hours"
    return (60, "minutes") if seconds >= 600 else (1, "seconds")
