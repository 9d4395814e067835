"""Line charts, drawn by matplotlib, coloured by the page."""

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gistgnn.report.blocks import COLOURS, DASHES, Chart, Details, Key, Table
from gistgnn.report.formats import finite, number
from gistgnn.report.svg import inlined

_POINTS = 600  # of one line: more are not seen, and make the file large
_MARKED = 24  # lines of at most so many points have markers
_NUMBERS = 40  # rows of the numbers under a chart

_STEPS = (1, 2, 2.5, 5, 10)  # of the numbers on an axis

_TEXT, _GRID = "#0a0b0c", "#0a0b0d"  # placeholders, replaced by the page's colours
_SERIES = [f"#0c0d{i:02x}" for i in range(COLOURS)]
_CSS = {_TEXT: "var(--muted)", _GRID: "var(--line)"} | {_SERIES[i]: f"var(--series-{i})" for i in range(COLOURS)}

_MARGINS = {"left": 0.16, "right": 0.96, "bottom": 0.17, "top": 0.96}

_STYLE: Any = {  # its type is another in every release
    "svg.fonttype": "none",
    "svg.hashsalt": "gistgnn",  # ids do not change from one time to the next
    "font.family": "DejaVu Sans",  # what matplotlib measures text by: wider than the page's, so that it fits
    "font.size": 11,
    "text.parse_math": False,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "grid.color": _GRID,
}


@dataclass(frozen=True)
class Series:
    """One line.

    Args:
        label: its name in the legend.
        x: from left to right; None is a gap, in `y` too.
        y: as many.
        colour: which of the page's colours.
        dash: which of `blocks.DASHES`.
    """

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    colour: int = 0
    dash: int = 0

    @property
    def key(self) -> Key:
        """Its line in a legend."""
        return Key(self.label, self.colour, self.dash)

    @property
    def points(self) -> list[tuple[float, float]]:
        """The numbers, nan for what is missing."""
        return [(finite(x), finite(y)) for x, y in zip(self.x, self.y, strict=True)]


def line_chart(
    title: str,
    series: Sequence[Series],
    xlabel: str,
    ylabel: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    mark: float | None = None,
    floor: float | None = None,
    legend: bool = True,
) -> Chart:
    """Draw lines, with a legend, and their numbers on demand.

    Args:
        title: what it shows.
        series: the lines.
        xlabel: of the horizontal axis.
        ylabel: of the vertical one.
        log_x: the horizontal axis is logarithmic.
        log_y: the vertical one is.
        mark: where a dotted vertical line goes.
        floor: where the vertical axis begins, if not at the lowest number.
        legend: False: the legend stands elsewhere.
    """
    label = f"{title}: {ylabel} against {xlabel}, {', '.join(line.label for line in series)}"
    return Chart(
        title,
        lines(series, xlabel, ylabel, log_x=log_x, log_y=log_y, mark=mark, floor=floor),
        label,
        keys=[line.key for line in series] if legend else (),
        details=Details("Numbers", _numbers(series, xlabel, ylabel, title)),
    )


def lines(
    series: Sequence[Series],
    xlabel: str,
    ylabel: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    mark: float | None = None,
    floor: float | None = None,
) -> str:
    """Return the drawing of `line_chart` alone: an ``svg`` element."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5, 3))  # a layout that fits itself would draw everything twice
        axes = figure.subplots(gridspec_kw=_MARGINS)
        for line in series:
            _draw(axes, line)
        if mark is not None:
            axes.axvline(mark, color=_TEXT, linestyle=":", linewidth=1.2)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(linewidth=0.8)
        axes.set_axisbelow(True)
        _scales(axes, series, log_x=log_x, log_y=log_y)
        if floor is not None:
            axes.set_ylim(bottom=floor)
        buffer = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    return inlined(buffer.getvalue(), _CSS)


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of them, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _draw(axes: Axes, line: Series) -> None:
    points = thinned(line.points, _POINTS)
    dash = [float(length) for length in DASHES[line.dash % len(DASHES)].split()]
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=_SERIES[line.colour % COLOURS],
        linewidth=1.8,
        linestyle=(0, tuple(length / 1.8 for length in dash)) if dash else "-",  # in units of the width
        marker="o" if len(points) <= _MARKED else None,
        markersize=3.5,
    )


def _scales(axes: Axes, series: Sequence[Series], *, log_x: bool, log_y: bool) -> None:
    up = [y for line in series for _, y in line.points if y > 0]
    if log_y and up:
        axes.set_yscale("log", nonpositive="mask")
        subs = (1.0,) if max(up) > 100 * min(up) else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))
    across = sorted({x for line in series for x, _ in line.points if not math.isnan(x)})
    if log_x and across and across[0] > 0:
        axes.set_xscale("log")
        apart = all(high >= 1.3 * low for low, high in itertools.pairwise(across))
        axes.xaxis.set_major_locator(FixedLocator(across) if len(across) <= 8 and apart else LogLocator())
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def _tick(value: float, _: int | None = None) -> str:
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.5e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _numbers(series: Sequence[Series], xlabel: str, ylabel: str, title: str) -> Table:
    """The numbers of the lines: one column for each where they share their x, else one row for each point."""
    name = f"Numbers of: {title}"
    points = [line.points for line in series]
    if series and all(list(line.x) == list(series[0].x) for line in series):
        columns = [xlabel, *(line.label for line in series)]
        wide = [[number(row[0][0]), *(number(y) for _, y in row)] for row in zip(*points, strict=True)]
        return Table(columns, thinned(wide, _NUMBERS), name)
    each = max(2, _NUMBERS // max(len(series), 1))
    long = [
        [line.label, number(x), number(y)]
        for line, row in zip(series, points, strict=True)
        for x, y in thinned(row, each)
    ]
    return Table(["", xlabel, ylabel], long, name)
