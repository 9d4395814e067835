"""What the paper says of Table 2 (section 5.2), judged by rows: those of our runs, or the paper's own."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gistgnn.compare.comparison import Row, score_of, seconds_to
from gistgnn.paper.claims import COMPARABLE, DIVERGED, by_m, faster, if_trained, lost, not_shown, points_lost, speedups
from gistgnn.paper.experiment import GroupKey, Verdict
from gistgnn.paper.groups import RunGroup
from gistgnn.utils.formats import duration

SIGNIFICANT, LARGEST = 1.32, 7.90  # "significantly accelerates GCN training (i.e., a 1.32x to 7.90x speedup)"
WIDE_LARGEST = 7.12  # "a more significant speedup (i.e., up to 7.12x)"
NEARLY_LINEAR = 0.8  # of m; the paper's GAT is at 0.84 m or more
SOONER = 2.5  # 10,000 s over 4,000 s
NARROW, WIDE = 400, 4096

Groups = Mapping[GroupKey, RunGroup]  # by data set, model, width and L


def reddit(groups: Groups) -> list[Verdict]:
    """Judge the claims on Reddit."""
    verdicts: list[Verdict] = []
    for key, group in groups.items():
        verdicts += [_trains_faster(key, group), _is_comparable(key, group), *_best_m(key, group)]
        if key[1] == "gat":
            verdicts.append(_nearly_linear(key, group))
        verdicts += _in_phases(key, group)
    return [*verdicts, *_gat_gains_more(groups), *_span_of_speedups(groups)]


def amazon2m(groups: Groups) -> list[Verdict]:
    """Judge the claims on Amazon2M. The narrow model is the least width of these runs, the wide one the greatest."""
    widths = {key[2] for key in groups}
    narrow = min(widths) if len(widths) > 1 or min(widths) <= NARROW else None
    wide = max(widths) if len(widths) > 1 or max(widths) > NARROW else None
    verdicts: list[Verdict] = []
    for key, group in groups.items():
        dataset, model, width, layers = key
        verdicts.append(_trains_faster(key, group))
        if width == narrow:
            verdicts += _narrow(key, group)
        elif width == wide:
            verdicts.append(_is_comparable(key, group))
            if narrow is not None:
                verdicts += _wide_against_narrow(key, group, narrow, groups[dataset, model, narrow, layers])
            if layers == 2:
                verdicts.append(_same_score_sooner(key, group))
        verdicts += _in_phases(key, group)
    return [*verdicts, _up_to(groups, "the wide model's largest speed-up", WIDE_LARGEST, ("graphsage", WIDE, 3))]


def _where(key: GroupKey) -> str:
    return "{}, {} {}, L = {}".format(*key)


def _trains_faster(key: GroupKey, group: RunGroup) -> Verdict:
    """Judge "Models trained with GIST train more quickly" (caption)."""
    base, others = group.gist
    holds = if_trained(all(faster(row) > 1 for row in others), [base, *others])
    return Verdict(f"{_where(key)}: GIST trains faster than one device, with every m", holds, speedups(base, others))


def _is_comparable(key: GroupKey, group: RunGroup) -> Verdict:
    """Judge "and achieve comparable F1 score" (caption), "tends to achieve comparable F1 score" (wide models)."""
    base, others = group.gist
    cheap = any(faster(row) > 1 and not row.costs_too_much(base) for row in others)
    claim = f"{_where(key)}: some m trains faster at a cost of {COMPARABLE}"
    return Verdict(claim, if_trained(cheap, [base, *others]), points_lost(base, others))


def _best_m(key: GroupKey, group: RunGroup) -> Iterator[Verdict]:
    """Judge "performs best in terms of F1 score with m = 2 (i.e., m = 4 yields further speedups but F1 decreases)"."""
    _, others = group.gist
    rows = by_m(others)
    scores = ", ".join(f"m = {m}: {row.mean:.2f}" for m, row in rows.items())
    best = max(rows.values(), key=lambda row: row.mean)
    yield Verdict(f"{_where(key)}: GIST has its highest F1 with m = 2", best is rows[2], scores)
    holds = if_trained(faster(rows[4]) > faster(rows[2]) and rows[4].mean < rows[2].mean, [rows[2], rows[4]])
    both = f"{faster(rows[2]):.2f}x and {rows[2].mean:.2f}, {faster(rows[4]):.2f}x and {rows[4].mean:.2f}"
    yield Verdict(f"{_where(key)}: m = 4 is faster than m = 2 and has a lower F1", holds, both)


def _nearly_linear(key: GroupKey, group: RunGroup) -> Verdict:
    """Judge "the GAT architecture ... achieve[s] a near-linear speedup with respect to m"."""
    base, others = group.gist
    holds = if_trained(all(faster(row) >= NEARLY_LINEAR * row.sub_gcns for row in others), [base, *others])
    claim = f"{_where(key)}: the speed-up is nearly linear in m ({NEARLY_LINEAR:g} m or more)"
    return Verdict(claim, holds, speedups(base, others))


def _in_phases(key: GroupKey, group: RunGroup) -> Iterator[Verdict]:
    """Judge our own recipe, which is no claim of the paper."""
    base, ours = group.rows[0], group.ours
    if ours:
        cheap = all(faster(row) > 1 and not row.costs_too_much(base) for row in ours)
        claim = f"{_where(key)}, ours, in phases: every m trains faster at a cost of {COMPARABLE}"
        yield Verdict(claim, if_trained(cheap, [base, *ours]), points_lost(base, ours))


def _gat_gains_more(groups: Groups) -> Iterator[Verdict]:
    """Judge "the speedup ... is more significant for models ... with larger compute requirements. For example, GAT"."""
    for (dataset, model, width, layers), gat in groups.items():
        if model == "gat":
            claim = f"{dataset}, L = {layers}: GAT gains more speed than GraphSAGE, with every m"
            sage = groups.get((dataset, "graphsage", width, layers))
            yield _gains_more(claim, gat, sage) if sage else not_shown(claim, "GraphSAGE was not run")


def _gains_more(claim: str, heavy: RunGroup, light: RunGroup) -> Verdict:
    """Judge whether every m speeds up the heavier model by more than the lighter one."""
    (_, others), (_, lighter) = heavy.gist, light.gist
    other = by_m(lighter)
    pairs = [(row, other[row.sub_gcns]) for row in others]
    holds = if_trained(all(faster(row) > faster(less) for row, less in pairs), [*others, *lighter])
    each = ", ".join(f"m = {row.sub_gcns}: {faster(row):.2f}x against {faster(less):.2f}x" for row, less in pairs)
    return Verdict(claim, holds, each)


def _span_of_speedups(groups: Groups) -> Iterator[Verdict]:
    """Judge "GIST significantly accelerates GCN training (i.e., a 1.32x to 7.90x speedup)"."""
    for dataset in dict.fromkeys(key[0] for key in groups):
        rows = [row for key, group in groups.items() if key[0] == dataset for row in group.gist[1]]
        least = min(map(faster, rows))
        holds = if_trained(least >= SIGNIFICANT, rows)
        yield Verdict(f"{dataset}: every speed-up is at least {SIGNIFICANT:.2f}x", holds, f"the least is {least:.2f}x")
    yield _up_to(groups, "the largest speed-up", LARGEST, ("gat", 256, 4))


def _up_to(groups: Groups, what: str, paper: float, needed: tuple[str, int, int]) -> Verdict:
    """Judge a largest speed-up. `needed` are the model, width and L at which the paper has it."""
    claim = f"{what} reaches {paper:.2f}x"
    rows = [row for key, group in groups.items() if key[1:3] == needed[:2] for row in group.gist[1]]
    if needed not in {key[1:] for key in groups}:
        return not_shown(claim, "the paper has it with {} {}, L = {}, which was not run".format(*needed))
    largest = max(map(faster, rows))
    return Verdict(claim, largest >= paper, f"the largest is {largest:.2f}x")


def _narrow(key: GroupKey, group: RunGroup) -> Iterator[Verdict]:
    """Judge "Narrow models trained with GIST have a lower F1 score ..., but training time is significantly reduced"."""
    base, others = group.gist
    holds = if_trained(all(faster(row) >= SIGNIFICANT for row in others), [base, *others])
    lower = all(row.mean < base.mean for row in others)
    yield Verdict(f"{_where(key)} (narrow): GIST has a lower F1, with every m", lower, points_lost(base, others))
    claim = f"{_where(key)} (narrow): every m reduces training time significantly ({SIGNIFICANT:.2f}x or more)"
    yield Verdict(claim, holds, speedups(base, others))


def _wide_against_narrow(key: GroupKey, wide: RunGroup, narrow: int, group: RunGroup) -> Iterator[Verdict]:
    """Judge "for wider models, GIST provides a more significant speedup ... GIST works best with wider models"."""
    dataset, model, width, layers = key
    where = f"{dataset}, {model}, L = {layers}"
    (base, others), (narrow_base, narrow_others) = wide.gist, group.gist
    yield _gains_more(f"{where}: d = {width} gains more speed than d = {narrow}, with every m", wide, group)
    other = by_m(narrow_others)
    pairs = [(row.sub_gcns, lost(base, row), lost(narrow_base, other[row.sub_gcns])) for row in others]
    yield Verdict(
        f"{where}: d = {width} loses less F1 than d = {narrow}, with every m",
        all(loss < more for _, loss, more in pairs),
        ", ".join(f"m = {m}: {loss:.2f} against {more:.2f} points" for m, loss, more in pairs),
    )
    yield _at_equal_time(f"{where}: GIST trains d = {width}", f"d = {narrow}", narrow_base, others)


def _at_equal_time(who: str, rival: str, narrow: Row, wide: Sequence[Row]) -> Verdict:
    """Judge, from the times of Table 2, whether a wide model is better than a narrow one after equal time."""
    claim = f"{who} to a higher F1 than one device trains {rival}, in no more time"
    if if_trained(True, [narrow, *wide]) is None:
        return not_shown(claim, DIVERGED)
    base = f"{rival}: {narrow.mean:.2f} in {duration(narrow.time)}"
    in_time = [row for row in wide if row.time <= narrow.time]
    if not in_time:
        return Verdict(claim, False, f"{base}; no m takes so little")
    best = max(in_time, key=lambda row: row.mean)
    measured = f"{base}; m = {best.sub_gcns}: {best.mean:.2f} in {duration(best.time)}"
    return Verdict(claim, best.mean > narrow.mean, measured)


def _same_score_sooner(key: GroupKey, group: RunGroup, m: int = 8) -> Verdict:
    """Judge "(m = 8) reaches ... 88.86 in ~4,000 seconds, while ... standard methodology take[s] ~10,000 seconds"."""
    claim = f"{_where(key)}: one device takes {SOONER:g} times as long to the F1 that m = {m} reaches"
    place = next((i for i, row in enumerate(group.rows) if (row.method, row.sub_gcns) == ("gist", m)), None)
    if place is None or not group.records:
        return not_shown(claim, f"m = {m} was not run")
    if if_trained(True, [group.rows[0], group.rows[place]]) is None:
        return not_shown(claim, DIVERGED)
    goals = list(map(score_of, group.records[place]))
    ours = list(map(seconds_to, group.records[place], goals))
    theirs = list(map(seconds_to, group.records[0], goals))
    reached = f"{statistics.fmean(goals):.2f} with m = {m} {_mean_time(ours)}, on one device {_mean_time(theirs)}"
    if None in theirs:
        return Verdict(claim, True, reached)
    return Verdict(claim, _total(theirs) >= SOONER * _total(ours), reached)


def _total(seconds: Iterable[float | None]) -> float:
    return sum(filter(None, seconds))


def _mean_time(seconds: Sequence[float | None]) -> str:
    return "never" if None in seconds else f"in {duration(_total(seconds) / len(seconds))}"
