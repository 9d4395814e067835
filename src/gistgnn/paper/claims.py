"""What the verdicts on the paper's claims share. A claim that cannot be judged says why in place of its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gistgnn.compare.comparison import Row
from gistgnn.compare.tables import speedup
from gistgnn.paper.experiment import Verdict
from gistgnn.report.names import COSTLY

COMPARABLE = f"at most {COSTLY:g} point of F1"  # "Parenthesis are placed around speedups ... at a cost of >1" (Table 2)
DIVERGED = "training diverged"


def not_shown(claim: str, reason: str) -> Verdict:
    """Return the verdict on a claim that these runs cannot tell."""
    return Verdict(claim, None, reason)


def if_trained(holds: bool, rows: Iterable[Row]) -> bool | None:
    """Return whether a claim about times holds; None if a run of these rows diverged."""
    return None if any(row.speedup is None for row in rows) else holds


def faster(row: Row) -> float:
    """Return a row's speed-up with the two digits that the paper prints; 0 if there is none."""
    return round(row.speedup or 0.0, 2)


def lost(base: Row, row: Row) -> float:
    """Return how many points of the baseline's score a row loses, with the two digits that the paper prints."""
    return round(base.mean - row.mean, 2)


def points_lost(base: Row, rows: Sequence[Row]) -> str:
    """Say how many points of the baseline's score each row loses."""
    return "points lost: " + ", ".join(f"m = {row.sub_gcns}: {lost(base, row):.2f}" for row in rows)


def speedups(base: Row, rows: Sequence[Row]) -> str:
    """Say how much faster than the baseline each row is."""
    return ", ".join(f"m = {row.sub_gcns}: {speedup(row, base)}" for row in rows)


def by_m(rows: Iterable[Row]) -> dict[int, Row]:
    """Return rows by their m."""
    return {row.sub_gcns: row for row in rows}
