"""Which share of Θ has been trained how often."""

from typing import Any

from gistgnn.report.blocks import Bar, Bars, Block, Side, Text
from gistgnn.report.formats import number, percent, plural

_BARS = 20


def coverage_blocks(coverage: dict[str, Any]) -> list[Block]:
    """Return it in words and as bars.

    Args:
        coverage: "rounds" and "parameters"; "counts", the share of the parameters trained in so many rounds.
    """
    shares = {int(times): float(share) for times, share in coverage["counts"].items()}
    if not shares:
        return []
    bins = _binned(shares)
    longest = max(share for _, share in bins) or 1
    bars = [Bar(label, share / longest, _percent(share), 2) for label, share in bins]
    return [Text(_words(coverage, shares)), Side([Bars(bars, "Share of Θ by rounds trained")])]


def median(shares: dict[int, float]) -> int:
    """The number of rounds that at least half of the parameters were trained in at most."""
    half, so_far = sum(shares.values()) / 2, 0.0
    for times in sorted(shares):
        so_far += shares[times]
        if so_far >= half - 1e-12:
            return times
    return max(shares)


def _words(coverage: dict[str, Any], shares: dict[int, float]) -> str:
    never, rounds = shares.get(0, 0.0), coverage["rounds"]
    mean = sum(times * share for times, share in shares.items()) / (sum(shares.values()) or 1)
    untrained = f"{_percent(never)} were never trained" if never else "All of them were trained"
    return (
        f"Θ has {plural(coverage['parameters'], 'parameter')}. {untrained}; the median one was trained in "
        f"{median(shares):,} of {plural(rounds, 'round')}, the average one in {number(mean)}."
    )


def _percent(share: float) -> str:
    return "< 0.01 %" if 0 < share < 5e-5 else percent(share)


def _binned(shares: dict[int, float]) -> list[tuple[str, float]]:
    """At most `_BARS` bars of equally many rounds each; none at all stands alone."""
    first, last = min((times for times in shares if times), default=1), max(shares)
    width = -(-(last - first + 1) // (_BARS - 1)) if last else 1
    bins = [("never", shares[0])] if 0 in shares else []
    for low in range(first, last + 1, width):
        high = min(low + width - 1, last)
        label = f"{low:,} to {high:,} rounds" if high > low else plural(low, "round")
        bins.append((label, sum(share for times, share in shares.items() if low <= times <= high)))
    return bins
