"""Line charts, drawn by matplotlib: as images on a page, or as a figure in a notebook."""

import io
import itertools
import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gistgnn.utils.formats import finite_or_nan, number

PALETTE = ("#1f5fa8", "#b4540a", "#2b7a3b", "#7b3fa0", "#b0235f", "#0f7480", "#7a6410", "#5b5b57")

_POINTS = 300  # of one line: readers cannot see more, and the file grows
_MARKED = 24  # lines of at most so many points have markers
_NUMBERS = 40  # rows of the numbers under a chart
_LEGEND = 44  # characters of labels in one line of a legend
_GREY = "#595955"

_STYLE: Any = {  # every matplotlib release types it differently
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dcdcd8",
    "text.parse_math": False,
    "font.size": 11,
    # matplotlib measures text by it; an image has text, not outlines of letters
    "font.sans-serif": "DejaVu Sans",
    "svg.fonttype": "none",
    "svg.hashsalt": "gistgnn",  # the same chart is the same file
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _GREY
    ),
}


@dataclass(frozen=True)
class Series:
    """A line of a chart, from left to right; None is a gap. Its colour is an index of `PALETTE`."""

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    colour: int = 0
    dashed: bool = False

    def points(self, most: int) -> list[tuple[float, float]]:
        """Return at most so many of the points, evenly spaced, with the first and the last, and nan
        for gaps.
        """
        points = [(finite_or_nan(x), finite_or_nan(y)) for x, y in zip(self.x, self.y, strict=True)]
        if len(points) <= most:
            return points
        return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


@dataclass(frozen=True)
class Chart:
    """Lines over common axes; a dotted line at `mark`."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    mark: float | None = None

    def image(self) -> str:
        """Draw the chart, without its title, and return it as the address of an image, with all of
        its data.
        """
        columns = max(1, _LEGEND // (6 + max((len(line.label) for line in self.series), default=0)))
        legend = math.ceil(len(self.series) / columns) if len(self.series) > 1 else 0
        with matplotlib.rc_context(_STYLE):
            figure = Figure(figsize=(5, 3 + 0.25 * legend), layout="constrained")
            _draw(figure.subplots(), self)
            if legend:
                figure.legend(loc="outside lower center", ncols=columns, frameon=False)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        return f"data:image/svg+xml;base64,{b64encode(buffer.getvalue()).decode()}"

    def numbers(self) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows of its numbers: some points of every line."""
        most = max(2, _NUMBERS // len(self.series))
        points = [(line.label, point) for line in self.series for point in line.points(most)]
        return ["", self.xlabel, self.ylabel], [
            [label, *map(number, point)] for label, point in points
        ]


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
        axes.axvline(chart.mark, color=_GREY, linestyle=":", linewidth=1.2)
    axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
    _set_ticks(axes, chart)


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
        is_legible = len(x) <= 8 and all(high >= 1.3 * low for low, high in itertools.pairwise(x))
        axes.xaxis.set_major_locator(FixedLocator(x) if is_legible else LogLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
