"""Line charts, drawn by matplotlib: as SVG that takes its colours from a page, and as PNG."""

import io
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gistgnn.utils.formats import finite_or_nan, number

DASHES = ("", "6 3", "2 2.5", "8 3 2 3", "12 4")  # in points, for a line of width 1
PALETTE = ("#1f5fa8", "#b4540a", "#2b7a3b", "#7b3fa0", "#b0235f", "#0f7480", "#7a6410", "#5b5b57")
COLOURS = len(PALETTE)

_POINTS = 600  # of one line: readers cannot see more, and the file grows
_MARKED = 24  # lines of at most so many points have markers
_NUMBERS = 40  # rows of the numbers under a chart

_TEXT, _GRID = "#595955", "#dcdcd8"
_CSS = {_TEXT: "--muted", _GRID: "--line"} | {colour: f"--series-{i}" for i, colour in enumerate(PALETTE)}
"""The colours of the light page, as pictures have them, and their names in style.css."""

_STYLE: Any = {  # every matplotlib release types it differently
    "axes.spines.right": False,
    "axes.spines.top": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # matplotlib measures text by it: it is wider than the page's font, so labels fit
    "font.size": 11,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _TEXT),
    "grid.color": _GRID,
}


@dataclass(frozen=True)
class Series:
    """A line of a chart, from left to right; None is a gap. Its colour is an index of `PALETTE`."""

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    colour: int = 0
    dash: str = DASHES[0]

    @property
    def points(self) -> list[tuple[float, float]]:
        """The points, with nan for gaps."""
        return [(finite_or_nan(x), finite_or_nan(y)) for x, y in zip(self.x, self.y, strict=True)]


@dataclass(frozen=True)
class Chart:
    """Lines over common axes, or stems from 0; a dotted line at `mark`; the vertical axis begins at `floor`."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    mark: float | None = None
    floor: float | None = None
    stems: bool = False

    def svg(self, key: str) -> Markup:
        """Draw the chart for a page; the ids in the drawing follow from the key."""
        with matplotlib.rc_context(_STYLE | {"svg.hashsalt": key}):
            figure = Figure(figsize=(5, 3))  # constrained layout would draw twice
            _draw(figure.subplots(gridspec_kw={"left": 0.16, "right": 0.96, "bottom": 0.17, "top": 0.96}), self)
            buffer = io.StringIO()
            metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
        return Markup(_inlined(buffer.getvalue()))

    def numbers(self) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows of its numbers: some points of every line."""
        most = max(2, _NUMBERS // len(self.series))
        points = [(line.label, point) for line in self.series for point in _thinned(line.points, most)]
        return ["", self.xlabel, self.ylabel], [[label, *map(number, point)] for label, point in points]


def draw_charts(charts: Sequence[Chart], title: str) -> Figure:
    """Draw charts side by side, with titles and legends."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5 * len(charts), 4))
        FigureCanvasAgg(figure)
        margins = {"left": 0.08, "right": 0.98, "bottom": 0.13, "top": 0.84, "wspace": 0.2}
        grid = figure.subplots(1, len(charts), squeeze=False, gridspec_kw=margins)
        for axes, chart in zip(grid[0], charts, strict=True):
            _draw(axes, chart)
            axes.set_title(chart.title)
            axes.legend()
        figure.suptitle(title)
        return figure


def _draw(axes: Axes, chart: Chart) -> None:
    for line in chart.series:
        points = _thinned(line.points, _POINTS)
        dash = tuple(float(length) / 1.8 for length in line.dash.split())  # in units of the width
        style: dict[str, Any] = {"color": PALETTE[line.colour % COLOURS], "linewidth": 1.8, "label": line.label}
        x, y = [x for x, _ in points], [y for _, y in points]
        if chart.stems:
            axes.vlines(x, 0, y, **style)
        else:
            marker = "o" if len(points) <= _MARKED else None
            axes.plot(x, y, linestyle=(0, dash) if dash else "-", marker=marker, markersize=3.5, **style)
    if chart.mark is not None:
        axes.axvline(chart.mark, color=_TEXT, linestyle=":", linewidth=1.2)
    axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
    axes.grid(linewidth=0.8)
    axes.set_axisbelow(True)
    _set_ticks(axes, chart)
    if chart.floor is not None:
        axes.set_ylim(bottom=chart.floor)


def _set_ticks(axes: Axes, chart: Chart) -> None:
    """Set the scales and the ticks: on a logarithmic axis of few values of x, at these values."""
    points = [point for line in chart.series for point in line.points]
    x = sorted({x for x, _ in points if not math.isnan(x)})
    y = [y for _, y in points if y > 0]
    if chart.log_y and y:
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if max(y) > 100 * min(y) else (1, 2, 5), numticks=7))
    if chart.log_x and x and x[0] > 0:
        axes.set_xscale("log")
        apart = len(x) <= 8 and all(high >= 1.3 * low for low, high in itertools.pairwise(x))
        axes.xaxis.set_major_locator(FixedLocator(x) if apart else LogLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of the items, evenly spaced, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _inlined(svg: str) -> str:
    """Return the ``svg`` element of matplotlib's file for a page: with the page's fonts and colours, and smaller."""
    svg = svg[svg.index("<svg") :].strip()
    for unwanted in (
        r"<!--.*?-->|<metadata>.*?</metadata>",
        r"<defs>\s*<style.*?</style>\s*</defs>",  # it would style the whole page
        r' xmlns(:\w+)?="[^"]*"| version="[^"]*"| (?:width|height)="[\d.]+pt"',
        r" font-family: [^;\"]*;",
    ):
        svg = re.sub(unwanted, "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: (?:\d+ )?([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r' (d|transform|x|y|points)="[^"]*"', lambda attribute: _rounded(attribute[0]), svg)
    for colour, name in _CSS.items():
        svg = svg.replace(colour, f"var({name})")
    svg = svg.replace("xlink:href", "href")
    used = {name for pair in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg) for name in pair}
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    return re.sub(r"\s*\n\s*", "\n", svg).replace("<svg ", '<svg class="plot" ', 1)


def _rounded(attribute: str) -> str:
    """Round coordinates to a tenth of a point: finer ones cannot be seen, and make the file three times as large."""
    return re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), attribute)
