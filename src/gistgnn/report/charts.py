"""Line charts, drawn by matplotlib: on a page, in its colours, or as a figure in a notebook."""

import io
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

from gistgnn.utils.formats import finite_or_nan, number

PALETTE = ("#1f5fa8", "#b4540a", "#2b7a3b", "#7b3fa0", "#b0235f", "#0f7480", "#7a6410", "#5b5b57")
"""The colours of lines in a notebook, and on a light page: `--series-0`, ... of style.css."""

_POINTS = 1000  # of one line: as many as a run has numbers of rounds
_MARKED = 24  # lines of at most so many points have markers
_LEGEND = 44  # characters of labels in one line of a legend
_TEXT = "#595955"
_GRID = "#dcdcd8"
# A page has every colour twice, for light and for dark: charts on it name the variable.
_VARIABLES = {
    **{colour: f"--series-{number}" for number, colour in enumerate(PALETTE)},
    _TEXT: "--muted",
    _GRID: "--line",
}

_STYLE: Any = {  # every matplotlib release types it differently
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "text.parse_math": False,
    "font.size": 11,
    # Matplotlib measures text by this font; an image has text, not outlines of letters.
    "font.sans-serif": "DejaVu Sans",
    "svg.fonttype": "none",
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _TEXT
    ),
}
# What is of no use within a page: the origin, a style of all elements, names of groups and of
# spaces, and a size that does not follow the page.
_SURPLUS = re.compile(
    r'<metadata>.*?</metadata>|<style.*?</style>|(?<=<g) id="[^"]*"| xmlns(:\w+)?="[^"]*"'
    r'| (?:width|height)="[\d.]+pt"',
    re.DOTALL,
)


@dataclass(frozen=True)
class Series:
    """A line of a chart, from left to right; None is a gap. Its colour is an index of `PALETTE`."""

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    colour: int = 0
    dashed: bool = False

    def points(self, most: int) -> list[tuple[float, float]]:
        """Return at most `most` of the points, evenly spaced, with the first and the last.

        Gaps are nan.
        """
        points = [(finite_or_nan(x), finite_or_nan(y)) for x, y in zip(self.x, self.y, strict=True)]
        if len(points) <= most:
            return points
        return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


@dataclass(frozen=True)
class Chart:
    """Lines over common axes.

    Args:
        title: what the chart is of.
        xlabel: the label of the lower axis.
        ylabel: the label of the axis at the left.
        series: the lines.
        log_x: whether x has a logarithmic axis.
        log_y: whether y has a logarithmic axis.
        mark: where x has a dotted line. Defaults to nowhere.
        top_label: the label of the axis along the upper edge.
        top_x: what the points of the first line have on that axis. Defaults to no such axis.
    """

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    mark: float | None = None
    top_label: str = ""
    top_x: Sequence[float | None] = ()

    def has_a_curve(self) -> bool:
        """Whether one of the lines has two points: a dot shows no more than its number."""
        return any(
            sum(not math.isnan(x + y) for x, y in line.points(_POINTS)) > 1 for line in self.series
        )

    def svg(self) -> str:
        """Draw the chart, without its title, and return it as an element of a page.

        Its colours are the variables of style.css, so it is dark on a dark page.
        """
        columns = max(1, _LEGEND // (6 + max((len(line.label) for line in self.series), default=0)))
        legend = math.ceil(len(self.series) / columns) if len(self.series) > 1 else 0
        # The same chart is the same text, and two charts of a page share no id.
        with matplotlib.rc_context({**_STYLE, "svg.hashsalt": self.title}):
            figure = Figure(figsize=(5, 3 + 0.25 * legend), layout="constrained")
            _draw(figure.subplots(), self)
            if legend:
                figure.legend(loc="outside lower center", ncols=columns, frameon=False)
            buffer = io.StringIO()
            no_origin = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(buffer, format="svg", metadata=no_origin, transparent=True)
        text = buffer.getvalue()
        element = _SURPLUS.sub("", text[text.index("<svg") :])
        return re.sub(
            '#[0-9a-f]{6}(?=[;"])', lambda colour: f"var({_VARIABLES[colour[0]]})", element
        )


def draw_charts(charts: Sequence[Chart], title: str) -> Figure:
    """Draw charts side by side, with titles and legends."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5 * len(charts), 4), layout="constrained")
        FigureCanvasAgg(figure)  # for a notebook
        for axes, chart in zip(
            figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True
        ):
            _draw(axes, chart)
            axes.set_title(chart.title)
            axes.legend()
        figure.suptitle(title)
        return figure


def _draw(axes: Axes, chart: Chart) -> None:
    for line in chart.series:
        points = line.points(_POINTS)
        style: dict[str, Any] = {"color": PALETTE[line.colour % len(PALETTE)], "label": line.label}
        x, y = zip(*points, strict=True) if points else ((), ())
        marker = "o" if len(points) <= _MARKED else None
        axes.plot(
            x, y, linestyle="--" if line.dashed else "-", marker=marker, markersize=3.5, **style
        )
    if chart.mark is not None:
        axes.axvline(chart.mark, color=_TEXT, linestyle=":", linewidth=1.2)
    axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
    _set_ticks(axes, chart)
    if chart.top_x:
        _add_top_axis(axes, chart)


def _add_top_axis(axes: Axes, chart: Chart) -> None:
    """Mark round values of the upper axis where the first line has them.

    Between two points they are interpolated. Without two points there is no such axis.
    """
    pairs = zip(chart.series[0].x, chart.top_x, strict=True)
    pairs_of_numbers = [(finite_or_nan(x), finite_or_nan(top)) for x, top in pairs]
    points = np.array([pair for pair in pairs_of_numbers if not math.isnan(sum(pair))])
    if len(points) < 2 or (np.diff(points, axis=0) <= 0).any():
        return
    low, high = points[[0, -1], 1]
    values = [value for value in MaxNLocator(5).tick_values(low, high) if low <= value <= high]
    upper = axes.secondary_xaxis("top")
    upper.spines["top"].set_visible(True)
    upper.set_xlabel(chart.top_label)
    upper.set_xticks(
        np.interp(values, points[:, 1], points[:, 0]), [number(value) for value in values]
    )


def _set_ticks(axes: Axes, chart: Chart) -> None:
    """Set the scales and the ticks: on a logarithmic axis of few values of x, at these values."""
    points = [point for line in chart.series for point in line.points(_POINTS)]
    x = sorted({x for x, _ in points if not math.isnan(x)})
    y = [y for _, y in points if y > 0]
    if chart.log_y and y:
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_locator(
            LogLocator(subs=(1,) if max(y) > 100 * min(y) else (1, 2, 5), numticks=7)
        )
    if chart.log_x and x and x[0] > 0:
        axes.set_xscale("log")
        has_room = len(x) <= 8 and all(high >= 1.3 * low for low, high in itertools.pairwise(x))
        axes.xaxis.set_major_locator(FixedLocator(x) if has_room else LogLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
