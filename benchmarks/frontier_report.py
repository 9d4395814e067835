"""Table and plot of the runs of `benchmarks.frontier`, and what recipes win over the frontier of ordinary training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.frontier_points import KINDS, OURS, TIMES, Frontier, Gain, Point, budgets, gain, points_of
from benchmarks.tables import number, on, table

NEAR = 0.2  # points below the frontier's best score
LOOKS = {
    "ordinary": ("#c2410c", "s"),
    "narrow": ("#6b7280", "v"),
    "paper": ("#7c3aed", "^"),
    "recipe": ("#0b6bcb", "o"),
    "budget": ("#15803d", "D"),
}


def report(runs: Sequence[dict[str, Any]], plot: Path | None = None) -> str:
    """Return the report in Markdown, a section for each graph and model; draw their plots.

    Of several plots, all but the first have a number in their file's name.
    """
    if not runs:
        return "There are no runs."
    cases: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        cases.setdefault(json.dumps(run["case"], sort_keys=True), []).append(run)
    parts = []
    for place, group in enumerate(cases.values(), 1):
        points = points_of(group)
        parts += section(group, points)
        if plot:
            draw(points, title(group[0]), plot if place == 1 else plot.with_stem(f"{plot.stem}-{place}"))
    return "\n\n".join(parts)


def title(run: dict[str, Any]) -> str:
    """Return the graph and the model of a run."""
    case = run["case"]
    batches = f", {case['clusters']} clusters" if case["clusters"] else ""
    flags = "".join(f", {flag}" for flag in ("inductive", "standardise") if case[flag]).replace("ise", "ised")
    return (
        f"{case['dataset']}, {case['model']} {'×'.join(map(str, case['hidden']))}{batches}{flags}, {case['precision']}"
    )


def section(runs: Sequence[dict[str, Any]], points: Sequence[Point]) -> list[str]:
    """Return the paragraphs and tables of one graph and model."""
    machines = "; ".join(dict.fromkeys(on(run["machine"]) for run in runs))
    parts = [f"# {title(runs[0])}", f"{runs[0]['graph']}\n\n{machines}", runs_table(points)]
    parts.append(
        "Seconds are medians over seeds, scores means ± standard deviations. Test is at the best validation score, "
        "last at the end of the run. * is on the frontier."
    )
    if not Frontier.of(points, "ordinary", "train").points or all(point.kind not in OURS for point in points):
        return parts
    parts += ["## Recipes against the frontier of ordinary training", gains_table(points)]
    parts.append(
        "† Ordinary training has no run so short: points are against its shortest run. > Ordinary training does not "
        "reach the score: the time is that of its best run. < Its shortest run is better."
    )
    if any(point.kind == "budget" for point in points):
        parts += ["## Runs with a budget", kept_table(points)]
    for clock, words in TIMES.items():
        parts += [f"## At every budget, {words}", budgets_table(points, clock), targets(points, clock)]
    return parts


def runs_table(points: Sequence[Point]) -> str:
    """Return the table of all settings."""
    frontiers = {clock: Frontier.of(points, "ordinary", clock).points for clock in TIMES}
    rows = []
    for point in points:
        stars = {
            clock: " *" if point.kind == "ordinary" and (point.seconds[clock], point.test) in frontiers[clock] else ""
            for clock in TIMES
        }
        test = "diverged" if point.test is None else f"{point.test:.2f}"
        test += f" ± {point.deviation:.2f}" if point.deviation is not None else ""
        rows.append(
            [
                point.name,
                *(number(point.seconds[c]) + stars[c] for c in TIMES),
                test,
                _percent(point.last),
                str(point.seeds),
            ]
        )
    return table(["setting", *(f"s, {words}" for words in TIMES.values()), "test, %", "last, %", "seeds"], rows)


def gains_table(points: Sequence[Point]) -> str:
    """Return the table of what every recipe wins over ordinary training, and over that of a narrow model."""
    wide, narrow = ({c: Frontier.of(points, kind, c) for c in TIMES} for kind in ("ordinary", "narrow"))
    rows = []
    for point in points:
        if point.kind in OURS and point.test is not None:
            gains = [gain(wide[clock], point.seconds[clock], point.test) for clock in TIMES]
            cells = [_points(each) for each in gains] + [f"{each.bound} {each.saved:.2f}×".strip() for each in gains]
            cells += [_points(gain(narrow[c], point.seconds[c], point.test)) for c in TIMES if narrow[c].points]
            rows.append([point.name, *cells])
    whats = ["points at equal time", "time at equal score"]
    whats += ["points over narrow at equal time"] if narrow["train"].points else []
    return table(["recipe", *(f"{what}, {words}" for what in whats for words in TIMES.values())], rows)


def kept_table(points: Sequence[Point]) -> str:
    """Return the table of runs with a budget: whether they keep it, and how far they are from the best run so short."""
    rows = []
    for point in points:
        if point.kind == "budget" and point.test is not None:
            budget, used = float(point.name.split()[-2]), point.seconds["total"]
            others = [
                p.test for p in points if p.test is not None and p.kind != "budget" and p.seconds["total"] <= used
            ]
            best = max(others, default=None)
            cells = [f"{used / budget:.2f}", _percent(point.test), _percent(best), _won(best and point.test, best or 0)]
            rows.append([f"{budget:g}", number(used), *cells])
    return table(["budget, s", "used, s", "used / budget", "test, %", "best run of at most that time, %", "won"], rows)


def budgets_table(points: Sequence[Point], clock: str) -> str:
    """Return the table of the best recipes at every budget of ordinary training, and at half of it."""
    rows = []
    for seconds, score, same, half in budgets(points, clock):
        cells = [cell for other in (same, half) for cell in (_percent(other), _won(other, score))]
        rows.append([number(seconds), _percent(score), *cells])
    return table(["budget, s", "ordinary, %", "recipes, %", "won", "in half the time, %", "won"], rows)


def targets(points: Sequence[Point], clock: str) -> str:
    """Return two lines: the time to nearly the best score, and the points won at every budget and at half of it."""
    ordinary, recipes = (Frontier.of(points, kinds, clock) for kinds in ("ordinary", OURS))
    goal = ordinary.points[-1][1] - NEAR
    theirs, ours = ordinary.reaches(goal), recipes.reaches(goal)
    ratio = "recipes do not reach it" if theirs is None or ours is None else f"{theirs / ours:.2f}×"
    line = f"- Time to {goal:.2f} %, the frontier's best score − {NEAR:g}: ordinary {number(theirs)} s, recipes "
    line += f"{number(ours)} s: {ratio}"
    rows = budgets(points, clock)
    won = [
        [(seconds, score - other) for seconds, other, *ours in rows if (score := ours[place]) is not None]
        for place in (0, 1)
    ]
    return (
        f"{line}\n- Least points won at a budget: {_least(won[0])} ({len(won[0])} of {len(rows)} have a recipe so "
        f"short); in half the time: {_least(won[1])} ({len(won[1])} of {len(rows)})"
    )


def _least(won: Sequence[tuple[float, float]]) -> str:
    if not won:
        return "—"
    seconds, points = min(won, key=lambda each: each[1])
    return f"{points:+.2f} at {number(seconds)} s"


def _points(won: Gain) -> str:
    return f"{won.points:+.2f}{' †' if won.too_short else ''}"


def _percent(score: float | None) -> str:
    return "—" if score is None else f"{score:.2f}"


def _won(score: float | None, other: float) -> str:
    return "—" if score is None else f"{score - other:+.2f}"


def draw(points: Sequence[Point], heading: str, path: Path) -> None:
    """Write a plot of scores against seconds in two panels: training only, and with evaluation."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (clock, words) in zip(panels, TIMES.items(), strict=True):
        draw_panel(axes, points, clock)
        axes.set_xlabel(f"seconds, {words}")
    panels[0].set_ylabel("test score, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(KINDS))
    figure.suptitle(heading)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def draw_panel(axes: Axes, points: Sequence[Point], clock: str) -> None:
    """Draw all settings as marks, and every kind's frontier as a line. Marks far below the lines are left out."""
    lowest = []
    for kind, (colour, marker) in LOOKS.items():
        marks = [(p.seconds[clock], p.test) for p in points if p.kind == kind and p.test is not None]
        if not marks:
            continue
        line = Frontier(marks).points
        lowest.append(line[0][1])
        dash = "--" if kind == "narrow" else "-"
        axes.plot(*zip(*marks, strict=True), linestyle="", marker=marker, color=colour, alpha=0.35, markersize=5)
        axes.plot(*zip(*line, strict=True), dash, marker=marker, color=colour, label=KINDS[kind], linewidth=2)
    if lowest:
        axes.set_ylim(bottom=min(lowest) - 1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.grid(color="#d8dee4", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
