"""Draws the docs' picture of `benchmarks.transfer`: score against learning rate, a line per width.

Each graph has a row: plain rates on the left, rates scaled by width on the right. A large dot is
the rate that validation chooses for its width. The numbers are written beside the picture as JSON,
from which `python -m benchmarks.transfer --picture SVG`, without files, draws it again.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.transfer import Run, chosen_rate, grid_of, title_of

TITLES = {"none": "one rate for all tensors", "mup": "rates scaled by width (muP)"}
NAMES = {
    "amazon-computers": "Amazon Computers",
    "coauthor-physics": "Coauthor Physics",
    "places": "Places",
    "hops": "Places by hops",
    "names": "Names of variables",
    "names_small_hops": "Names of variables",
}
# From the narrowest width to the widest. Placeholders become variables of the style below.
RAMP = ("#040401", "#040402", "#040403", "#040404", "#040405", "#040406", "#040407")
COLOURS = {"#010101": "ink", "#020202": "grid", "#030303": "card"}
COLOURS |= {colour: f"width-{index}" for index, colour in enumerate(RAMP, 1)}
INK, GRID, CARD = list(COLOURS)[:3]
STYLE = """<style>
svg { --ink: #24292f; --grid: #d8dee4; --card: #ffffff;
      --width-1: #e8a33d; --width-2: #e07b39; --width-3: #cf5246; --width-4: #b03060;
      --width-5: #86267a; --width-6: #5a2a86; --width-7: #1f2a6b;
      font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", Helvetica, Arial,
      sans-serif }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --grid: #30363d; --card: #0d1117;
        --width-1: #5b6bd6; --width-2: #8a5fd6; --width-3: #b557c4; --width-4: #d95a9c;
        --width-5: #f0746f; --width-6: #f79b4c; --width-7: #f7cf5e } }
</style>"""
SHOWN = 3.0  # how far below the best score the axis goes, in distances from the best to the median


def draw_runs(runs: Sequence[Run], picture: Path) -> None:
    """Write the numbers of finished runs beside the picture, if there are runs, and draw it."""
    numbers = picture.with_suffix(".json")
    if runs:
        numbers.parent.mkdir(parents=True, exist_ok=True)
        numbers.write_text(json.dumps(dots_of(runs), indent=1) + "\n", encoding="utf-8")
    draw(json.loads(numbers.read_text(encoding="utf-8")), picture)


def dots_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the mean test score, in percent, of every graph, scaling, width and rate."""
    dots = []
    for graph in dict.fromkeys(run["graph"] for run in runs):
        experiments = {title_of(run) for run in runs if run["graph"] == graph}
        if len(experiments) > 1:
            sys.exit(f"one picture shows one experiment on {graph}, not all of {experiments}")
        for scaling in TITLES:
            members = [run for run in runs if (run["graph"], run["scaling"]) == (graph, scaling)]
            for width, cells in grid_of(members).items():
                best = chosen_rate(cells)
                dots += [
                    {
                        "graph": Path(graph).stem if graph.endswith(".npz") else graph,
                        "scaling": scaling,
                        "width": width,
                        "lr": lr,
                        "test": round(cell.test, 3),
                        "chosen": lr == best,
                    }
                    for lr, cell in cells.items()
                    if cell.test is not None
                ]
    return dots


def draw(dots: Sequence[dict[str, Any]], picture: Path) -> None:
    """Write the picture as SVG with colours for light and dark pages."""
    os.environ.setdefault("MPLBACKEND", "svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gistgnn", "font.size": 12})
    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    plt.rcParams.update(dict.fromkeys(ink, INK))
    graphs = list(dict.fromkeys(dot["graph"] for dot in dots))
    colours = colours_of({dot["width"] for dot in dots})
    size = (9, 0.8 + 3.1 * len(graphs))
    shared: dict[str, Any] = {"sharex": True, "sharey": "row", "squeeze": False}
    figure, panels = plt.subplots(len(graphs), 2, **shared, figsize=size, facecolor=CARD)
    for row, graph in zip(panels, graphs, strict=True):
        members = [dot for dot in dots if dot["graph"] == graph]
        for axes, scaling in zip(row, TITLES, strict=True):
            shown = [dot for dot in members if dot["scaling"] == scaling]
            draw_panel(axes, shown, colours)
        row[0].set_ylim(*limits([dot["test"] for dot in members]))
        row[0].set_ylabel(f"{NAMES.get(graph, graph)}: test, %")
    for axes, title in zip(panels[0], TITLES.values(), strict=True):
        axes.set_title(title, fontsize=12, loc="left")
    rates = sorted({dot["lr"] for dot in dots})
    for axes in panels[-1]:
        axes.set_xscale("log")
        axes.set_xticks(rates, [f"{lr:g}" for lr in rates])
        axes.minorticks_off()
        axes.set_xlabel("learning rate")
    lines = panels[0, 0].get_legend_handles_labels()
    legend: dict[str, Any] = {"loc": "lower center", "ncols": len(colours) + 1, "frameon": False}
    figure.legend(*lines, **legend, fontsize=11, columnspacing=1.4, handlelength=1.4)
    figure.tight_layout(rect=(0, 0.4 / size[1], 1, 1))
    figure.savefig(picture, format="svg", facecolor=CARD, metadata={"Date": None})
    plt.close(figure)
    text = picture.read_text(encoding="utf-8")
    for placeholder, variable in COLOURS.items():
        text = text.replace(placeholder, f"var(--{variable})")
    text = text.replace("<defs>", f"{STYLE}\n <defs>", 1)
    lines_of_text = [line.rstrip() for line in text.splitlines()]
    picture.write_text("\n".join(lines_of_text) + "\n", encoding="utf-8")


def draw_panel(axes: Any, dots: Sequence[dict[str, Any]], colours: dict[int, str]) -> None:
    """Draw the lines of one graph and one scaling."""
    axes.set_facecolor(CARD)
    for width, colour in colours.items():
        line = sorted((dot["lr"], dot["test"]) for dot in dots if dot["width"] == width)
        rates = [lr for lr, _ in line]
        scores = [test for _, test in line]
        label = f"width {width:,}" if width == min(colours) else f"{width:,}"
        axes.plot(rates, scores, marker=".", markersize=4, linewidth=1.8, color=colour, label=label)
        best = [dot for dot in dots if dot["width"] == width and dot["chosen"]]
        rates = [dot["lr"] for dot in best]
        scores = [dot["test"] for dot in best]
        axes.scatter(rates, scores, s=64, color=colour, zorder=3)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def colours_of(widths: set[int]) -> dict[int, str]:
    """Return a colour for each width, narrow to wide, spread over the ramp."""
    last = max(len(widths) - 1, 1)
    places = [round(index * (len(RAMP) - 1) / last) for index in range(len(widths))]
    return {width: RAMP[index] for width, index in zip(sorted(widths), places, strict=True)}


def limits(scores: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis. Failed runs may lie far below: their lines leave the picture."""
    ordered = sorted(scores)
    best = ordered[-1]
    median = ordered[len(ordered) // 2]
    lowest = max(ordered[0], best - SHOWN * (best - median))
    margin = 0.05 * (best - lowest) or 1.0
    return lowest - margin, best + margin
