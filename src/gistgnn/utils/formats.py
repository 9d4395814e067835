"""Numbers as text: bytes, seconds, percentages, counts. The whole code base formats them here."""

import math
import statistics
from collections.abc import Iterable

NBSP = "\N{NO-BREAK SPACE}"
_BYTE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size(count: float) -> str:
    """Format a number of bytes: 1536 as "1.5 KiB"."""
    unit, name = next(((unit, name) for unit, name in _BYTE_UNITS if count >= unit), (1, "bytes"))
    value = count / unit
    return f"{value:,.0f} {name}" if unit == 1 or value >= 100 else f"{value:.3g} {name}"


def duration(seconds: float) -> str:
    """Format seconds: "20 µs", "12 ms", "3.01 s", "2 min 5 s", "3 h 1 min"."""
    # Each limit is where the rounded number would need a fourth digit.
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} µs" if seconds else "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left} s"
    return f"{minutes // 60} h {minutes % 60} min"


def rough_duration(seconds: float) -> str:
    """Format seconds that are known roughly: "5 s", "12 min", "3 h 20 min", "2 days 4 h".

    It is 1 s at least.
    """
    seconds = max(seconds, 1.0)
    minutes = round(seconds / 60)
    if seconds < 90 or minutes < 90:
        return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min"
    hours = minutes // 60
    if hours < 36:
        return f"{hours} h {minutes % 60} min"
    return f"{plural(hours // 24, 'day')} {hours % 24} h"


def time_unit(seconds: float) -> tuple[int, str]:
    """Return the unit that suits a time on an axis, as seconds and as a name."""
    if seconds >= 2 * 3600:
        return 3600, "hours"
    return (60, "minutes") if seconds >= 600 else (1, "seconds")


def percent(fraction: float, digits: int = 2) -> str:
    """Format a fraction in [0, 1] as a percentage."""
    return f"{100 * fraction:.{digits}f}{NBSP}%"


def number(value: float) -> str:
    """Format a number with about four digits; nan becomes an empty string."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def times(factor: float) -> str:
    """Format a speed-up: "3.4×"."""
    return f"{factor:.1f}×" if factor < 99.5 else f"{factor:,.0f}×"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: "1 round", "2 rounds"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def mean_sd(values: Iterable[float | None]) -> str:
    """Format mean ± standard deviation over seeds; one value stands alone, no value is a dash."""
    finite = finite_values(values)
    if not finite:
        return "–"
    mean = f"{statistics.mean(finite):.2f}"
    return f"{mean}{NBSP}±{NBSP}{statistics.stdev(finite):.2f}" if len(finite) > 1 else mean


def finite_values(values: Iterable[float | None]) -> list[float]:
    """Return the values that are neither missing nor infinite nor nan."""
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def finite_or_nan(value: float | None) -> float:
    """Return the value, or nan where it is missing or infinite: a gap in a curve."""
    return float(value) if value is not None and math.isfinite(value) else math.nan
