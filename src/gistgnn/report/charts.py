"""Line charts, drawn by matplotlib: as SVG that takes its colours from a page, and as PNG."""

import io
import itertools
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gistgnn.utils.formats import finite_or_nan, number

DASHES = ("", "6 3", "2 2.5", "8 3 2 3", "12 4")  # in points, for a line of width 1
PALETTE = ("#1f5fa8", "#b4540a", "#2b7a3b", "#7b3fa0", "#b0235f", "#0f7480", "#7a6410", "#5b5b57")
COLOURS = len(PALETTE)  # --series-0 to --series-7 of style.css, in its light version

_POINTS = 600  # of one line: readers cannot see more, and the file grows
_MARKED = 24  # lines of at most so many points have markers
_NUMBERS = 40  # rows of the numbers under a chart
_TICK_STEPS = (1, 2, 2.5, 5, 10)

_TEXT, _GRID = "#0a0b0c", "#0a0b0d"  # placeholders that the page's colours replace
_SERIES = [f"#0c0d{i:02x}" for i in range(COLOURS)]
_CSS = {_TEXT: "var(--muted)", _GRID: "var(--line)"} | {_SERIES[i]: f"var(--series-{i})" for i in range(COLOURS)}

_STYLE: Any = {  # every matplotlib release types it differently
    "axes.formatter.useoffset": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "text.parse_math": False,
}
_SVG_STYLE: Any = _STYLE | {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # matplotlib measures text by it: it is wider than the page's font, so labels fit
    "font.size": 11,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _TEXT),
    "grid.color": _GRID,
}


@dataclass(frozen=True)
class Series:
    """One line of a chart, from left to right; None is a gap. `colour` is an index, `dash` one into `DASHES`."""

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    colour: int = 0
    dash: int = 0

    @property
    def dashes(self) -> str:
        """The lengths of dashes and gaps; empty for a solid line."""
        return DASHES[self.dash % len(DASHES)]

    @property
    def points(self) -> list[tuple[float, float]]:
        """The points, with nan for gaps."""
        return [(finite_or_nan(x), finite_or_nan(y)) for x, y in zip(self.x, self.y, strict=True)]


@dataclass(frozen=True)
class Chart:
    """Lines over common axes; a dotted vertical line at `mark`; the vertical axis begins at `floor`, if it is given."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    mark: float | None = None
    mark_label: str | None = None  # in the legend of a PNG
    floor: float | None = None

    @property
    def label(self) -> str:
        """A description for readers who cannot see the chart."""
        return f"{self.title}: {self.ylabel} against {self.xlabel}, {', '.join(line.label for line in self.series)}"

    def svg(self, key: str) -> Markup:
        """Draw the chart for a page; the ids in the drawing follow from the key."""
        with matplotlib.rc_context(_SVG_STYLE | {"svg.hashsalt": key}):
            figure = Figure(figsize=(5, 3))  # constrained layout would draw twice
            axes = figure.subplots(gridspec_kw={"left": 0.16, "right": 0.96, "bottom": 0.17, "top": 0.96})
            _draw(axes, self, _SERIES, _TEXT)
            buffer = io.StringIO()
            metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
        return Markup(_inlined(buffer.getvalue()))

    def numbers(self) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows of its numbers: a column for each line if all share x, else a row for each point."""
        if all(list(line.x) == list(self.series[0].x) for line in self.series):
            columns = [self.xlabel, *(line.label for line in self.series)]
            points = zip(*(line.points for line in self.series), strict=True)
            wide = [[number(row[0][0]), *(number(y) for _, y in row)] for row in points]
            return columns, _thinned(wide, _NUMBERS)
        most = max(2, _NUMBERS // len(self.series))
        rows = [[line.label, *map(number, point)] for line in self.series for point in _thinned(line.points, most)]
        return ["", self.xlabel, self.ylabel], rows


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure. Characters of names that the font lacks are boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(path, format="png", dpi=120)


def draw_charts(charts: Sequence[Chart], title: str) -> Figure:
    """Draw charts side by side, with titles and legends."""
    with matplotlib.rc_context(_STYLE | {"grid.alpha": 0.3}):
        figure = Figure(figsize=(5 * len(charts), 4))
        FigureCanvasAgg(figure)
        margins = {"left": 0.08, "right": 0.98, "bottom": 0.13, "top": 0.84, "wspace": 0.2}
        grid = figure.subplots(1, len(charts), squeeze=False, gridspec_kw=margins)
        for axes, chart in zip(grid[0], charts, strict=True):
            _draw(axes, chart, PALETTE, "black")
            axes.set_title(chart.title)
            axes.legend()
        figure.suptitle(title)
        return figure


def _draw(axes: Axes, chart: Chart, colours: Sequence[str], ink: str) -> None:
    """Draw the lines, the mark and the grid of a chart, and set its scales."""
    for line in chart.series:
        points = _thinned(line.points, _POINTS)
        dash = [float(length) for length in line.dashes.split()]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=line.label,
            color=colours[line.colour % COLOURS],
            linewidth=1.8,
            linestyle=(0, tuple(length / 1.8 for length in dash)) if dash else "-",  # in units of the width
            marker="o" if len(points) <= _MARKED else None,
            markersize=3.5,
        )
    if chart.mark is not None:
        axes.axvline(chart.mark, color=ink, linestyle=":", linewidth=1.2, label=chart.mark_label)
    axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
    axes.grid(linewidth=0.8)
    axes.set_axisbelow(True)
    _set_scales(axes, chart)
    if chart.floor is not None:
        axes.set_ylim(bottom=chart.floor)


def _set_scales(axes: Axes, chart: Chart) -> None:
    points = [point for line in chart.series for point in line.points]
    positive = [y for _, y in points if y > 0]
    across = sorted({x for x, _ in points if not math.isnan(x)})
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=_TICK_STEPS))
    if chart.log_y and positive:
        axes.set_yscale("log", nonpositive="mask")
        subs = (1.0,) if max(positive) > 100 * min(positive) else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
        axes.yaxis.set_minor_locator(NullLocator())
    if chart.log_x and across and across[0] > 0:
        axes.set_xscale("log")
        apart = all(high >= 1.3 * low for low, high in itertools.pairwise(across))
        axes.xaxis.set_major_locator(FixedLocator(across) if len(across) <= 8 and apart else LogLocator())
        axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_tick))


def _tick(value: float, _: int | None = None) -> str:
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.5e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _thinned(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of the items, evenly spaced, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _inlined(svg: str) -> str:
    """Return the ``svg`` element of matplotlib's file, without what only a separate file needs."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)  # it would style the whole page
    svg = re.sub(r"font: (?:\d+ )?([\d.]+px)[^;\"]*", r"font-size: \1", svg)  # the page has its own fonts
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"| version="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r' (d|transform|x|y|points)="[^"]*"', lambda attribute: _rounded(attribute[0]), svg)
    for placeholder, colour in _CSS.items():
        svg = svg.replace(placeholder, colour)
    used = {name for pair in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg) for name in pair}
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    return re.sub(r"\s*\n\s*", "\n", svg).replace("<svg ", '<svg class="plot" ', 1)


def _rounded(attribute: str) -> str:
    """Round coordinates to a tenth of a point: finer ones cannot be seen, and make the file three times as large."""
    return re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), attribute)
