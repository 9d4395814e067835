"""What the paper says of Table 3 (section 5.3), judged by rows: those of our runs, or the paper's own."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from gistgnn.compare.comparison import Row
from gistgnn.paper.claims import DIVERGED, if_trained, not_shown
from gistgnn.paper.experiment import Verdict
from gistgnn.utils.formats import duration

FACTOR = 8  # "widths as high as 32K (i.e., 8x beyond the capacity of a single GPU)"
DOUBLE_M, SOONER = 2, 1.86  # "With GIST (m = 2), ... (i.e., a 1.86x speedup) using d = 8192"
SIMILAR = 0.1  # points of F1; "Similar patterns are observed for deeper models": the paper's L = 3 is 0.08 lower
TIE = 0.05  # points of F1; a fall of at most this much is no fall: the paper's are 0.03 and 0.01

Rows = Mapping[tuple[int, int], Row]  # of one data set and L, by m and d; a run that did not fit is missing


def judge(where: str, layers: int, rows: Rows, widths: Collection[int], sub_gcns: Collection[int]) -> list[Verdict]:
    """Judge the claims for one data set and L, from all widths and every m that were asked for."""
    several = sorted(m for m in sub_gcns if m > 1)
    rises = [_rises_with_width(where, m, rows) for m in several]
    if 1 not in sub_gcns or not several:
        return rises
    return [*_against_one_device(where, layers, rows, sorted(widths), several), *rises]


def fits_as_in_the_paper(
    where: str, fitting: Collection[tuple[int, int]], paper: Mapping[tuple[int, int], bool]
) -> Verdict:
    """Judge "OOM marks experiments that cause out-of-memory errors" (caption).

    Args:
        where: data set and L.
        fitting: m and d of the runs that fit by the plan.
        paper: whether the paper's runs fit, by m and d; {}: they are not comparable.
    """
    claim = f"{where}: the same runs as in the paper fit in the memory of a device, by the plan"
    if not paper:
        return not_shown(claim, "another graph or another memory than in the paper")
    differing = sorted((d, m) for (m, d), fits in paper.items() if fits != ((m, d) in fitting))
    ours = {True: "fits", False: "does not fit"}
    each = [f"d = {d}, m = {m} {ours[(m, d) in fitting]}" for d, m in differing]
    return Verdict(claim, not differing, "; ".join(each) or f"all {len(paper)} agree")


def _against_one_device(
    where: str, layers: int, rows: Rows, widths: list[int], several: list[int]
) -> Iterator[Verdict]:
    alone = max((d for m, d in rows if m == 1), default=0)
    beyond = [d for d in widths if d > alone]
    widest = max((d for m, d in rows if m > 1), default=0)
    if not beyond:
        yield not_shown(f"{where}: GIST trains widths that one device cannot", "every width fits on one device")
        return
    both = f"one device: up to d = {alone}, GIST: up to d = {widest}"
    yield Verdict(f"{where}: GIST trains widths that one device cannot", widest > alone, both)
    if layers == 2:
        claim = f"{where}: GIST trains a width {FACTOR} times one device's widest"
        tried = bool(alone) and widths[-1] >= FACTOR * alone
        yield Verdict(claim, widest >= FACTOR * alone, both) if tried else not_shown(claim, "no such width was tried")
    if alone:
        yield _best_is_beyond(where, rows, alone)
        yield _double_width(where, layers, rows, alone, widths, several)


def _best_is_beyond(where: str, rows: Rows, alone: int) -> Verdict:
    """Judge "GIST enables training of higher-performing, ultra-wide models" (caption)."""
    claim = f"{where}: the best model that only GIST can train beats the best one of one device"
    beyond = {cell: row for cell, row in rows.items() if cell[1] > alone}
    if not beyond:
        return not_shown(claim, f"no model wider than d = {alone} fits")
    best = max(row.mean for (m, _), row in rows.items() if m == 1)
    (m, d), wide = max(beyond.items(), key=lambda item: item[1].mean)
    return Verdict(claim, wide.mean > best, f"d = {d}, m = {m}: {wide.mean:.2f}; one device: {best:.2f}")


def _double_width(where: str, layers: int, rows: Rows, alone: int, widths: list[int], several: list[int]) -> Verdict:
    """Judge "With GIST (m = 2), we achieve a higher F1 score ... (i.e., a 1.86x speedup) using d = 8192".

    "Similar patterns are observed for deeper models."
    """
    score = "a higher F1" if layers == 2 else f"a similar F1 (at most {SIMILAR:g} points lower)"
    claim = f"{where}: GIST trains twice one device's best width, m = {DOUBLE_M}, {SOONER:g}x faster to {score}"
    (_, d), base = max(((cell, row) for cell, row in rows.items() if cell[0] == 1), key=lambda item: item[1].mean)
    if d != alone:
        return not_shown(claim, f"one device's best width, d = {d}, is not its widest, d = {alone}")
    if DOUBLE_M not in several or 2 * d not in widths:
        return not_shown(claim, f"needs m = {DOUBLE_M} with d = {2 * d}")
    double = rows.get((DOUBLE_M, 2 * d))
    if double is None:
        return Verdict(claim, False, f"d = {2 * d} does not fit with m = {DOUBLE_M}")
    if if_trained(True, [base, double]) is None:
        return not_shown(claim, DIVERGED)
    higher = double.mean > base.mean if layers == 2 else round(base.mean - double.mean, 2) <= SIMILAR
    sooner = round(base.time / double.time, 2)
    cells = ((2 * d, double), (d, base))
    measured = "; ".join(f"d = {width}: {row.mean:.2f} in {duration(row.time)}" for width, row in cells)
    return Verdict(claim, higher and sooner >= SOONER, f"{measured}; {sooner:.2f}x")


def _rises_with_width(where: str, m: int, rows: Rows) -> Verdict:
    """Judge "utilizing larger hidden dimensions yields further performance improvements"."""
    claim = f"{where}: with m = {m}, F1 rises with the width (a fall of {TIE:g} points counts as none)"
    scores = {d: row.mean for (parts, d), row in sorted(rows.items()) if parts == m}
    if len(scores) < 2:
        return not_shown(claim, "fewer than two widths fit")
    values = list(scores.values())
    falls = [round(before - after, 2) for before, after in itertools.pairwise(values)]
    rises = max(falls) <= TIE and values[-1] > values[0]
    return Verdict(claim, rises, ", ".join(f"d = {d}: {score:.2f}" for d, score in scores.items()))
