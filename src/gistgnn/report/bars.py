"""Horizontal bars: their labels, lengths and values."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gistgnn.utils.formats import NBSP, percent, plural

_MOST = 20  # bars of the coverage
_HIDDEN = 5e-5  # a share that prints as 0.00 %


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its value as text, its length in [0, 1], and the index of a colour of style.css."""

    label: str
    value: str
    length: float
    colour: int = 0


def share_bars(parts: Mapping[str, float], total: float, text: Callable[[float], str], colour: int) -> list[Bar]:
    """Return a bar for every part above 0, with its value and its share of a total."""
    shares = {label: value / (total or 1) for label, value in parts.items() if value > 0}
    rounded = {label: f"< 1{NBSP}%" if share < 0.005 else percent(share, 0) for label, share in shares.items()}
    return [Bar(label, f"{text(parts[label])} · {rounded[label]}", share, colour) for label, share in shares.items()]


def coverage_summary(coverage: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of the coverage in result.json: "never", "median", "mean" and "bars"."""
    shares = {int(n): float(share) for n, share in coverage["counts"].items()}
    bins = _bins(shares, coverage["rounds"])
    longest = max(share for _, share in bins) or 1
    return {
        "never": share_text(shares[0]) if shares.get(0) else None,
        "median": median(shares),
        "mean": sum(n * share for n, share in shares.items()) / (sum(shares.values()) or 1),
        "bars": [Bar(label, share_text(share), share / longest, 2) for label, share in bins],
    }


def median(shares: Mapping[int, float]) -> int:
    """Return the smallest number of rounds that covers at least half of the parameters."""
    rounds = sorted(shares)
    covered = itertools.accumulate(shares[n] for n in rounds)
    half = sum(shares.values()) / 2 - 1e-12
    return next((n for n, share in zip(rounds, covered, strict=True) if share >= half), rounds[-1])


def share_text(share: float) -> str:
    """Format a share of the parameters."""
    return f"< 0.01{NBSP}%" if 0 < share < _HIDDEN else percent(share)


def _bins(shares: Mapping[int, float], rounds: int) -> list[tuple[str, float]]:
    """Group the shares into at most `_MOST` bars: never, equally wide stretches of rounds, all rounds."""
    between = _without_tails([(n, share) for n, share in sorted(shares.items()) if 0 < n < rounds])
    bins = [("never", shares[0])] if shares.get(0) else []
    if between:
        first, last = between[0][0], between[-1][0]
        width = -(-(last - first + 1) // (_MOST - 2))
        for low in range(first, last + 1, width):
            high = min(low + width - 1, last)
            label = f"{low:,} to {high:,} rounds" if high > low else plural(low, "round")
            bins.append((label, sum(share for n, share in between if low <= n <= high)))
    if rounds and shares.get(rounds):
        bins.append((f"all {plural(rounds, 'round')}" if rounds > 1 else "1 round", shares[rounds]))
    return bins


def _without_tails(shares: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Leave out the first and the last shares as far as both sums print as 0.00 %."""
    kept = list(shares)
    for end in (0, -1):
        lost = 0.0
        while kept and (lost := lost + kept[end][1]) < _HIDDEN:
            kept.pop(end)
    return kept
