"""The pieces of a page. Each gives its HTML; whatever comes from data is escaped here."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gistgnn.report.svg import with_ids

DASHES = ("", "6 3", "2 2.5", "8 3 2 3", "12 4")  # in the units of a chart's line width of 1
COLOURS = 8  # --series-0 to --series-7 of style.css


def escape(text: object) -> str:
    """Text for HTML, in elements and attributes."""
    return html.escape(str(text), quote=True)


class Block(Protocol):
    """A piece of a page."""

    def html(self, key: str) -> str:
        """Its HTML.

        Args:
            key: no other block of the page has it; ids begin with it.
        """
        ...


@dataclass(frozen=True)
class Headline:
    """The result, large, and what it is."""

    value: str
    meaning: str

    def html(self, key: str) -> str:
        """A paragraph in two sizes."""
        return f'<p class="headline"><strong>{escape(self.value)}</strong> <span>{escape(self.meaning)}</span></p>'


@dataclass(frozen=True)
class Text:
    """A paragraph; a notice stands out."""

    text: str
    notice: bool = False

    def html(self, key: str) -> str:
        """A paragraph."""
        attributes = ' class="notice" role="note"' if self.notice else ""
        return f"<p{attributes}>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Facts:
    """Names and values side by side."""

    items: Sequence[tuple[str, str]]

    def html(self, key: str) -> str:
        """A description list."""
        pairs = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in self.items)
        return f'<dl class="facts">{"".join(pairs)}</dl>'


@dataclass(frozen=True)
class Table:
    """Rows under columns; it scrolls sideways by itself where it is wider than the page."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    name: str = "Table"
    note: str = ""

    def html(self, key: str) -> str:
        """A table in a box that the keyboard can scroll."""
        head = "".join(f'<th scope="col">{escape(column)}</th>' for column in self.columns)
        body = "".join(self._row(row) for row in self.rows)
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        box = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(self.name)}">'
        return f"{box}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"

    @staticmethod
    def _row(row: Sequence[str]) -> str:
        first, *rest = row
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        return f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'


@dataclass(frozen=True)
class Key:
    """A line of a chart in its legend.

    Args:
        label: what it is.
        colour: which of the colours of style.css.
        dash: which of `DASHES`.
    """

    label: str
    colour: int = 0
    dash: int = 0

    def html(self) -> str:
        """A stroke and a word."""
        style = f"stroke:var(--series-{self.colour % COLOURS})"
        if dash := DASHES[self.dash % len(DASHES)]:
            style += f";stroke-dasharray:{dash}"
        stroke = f'<svg class="key" viewBox="0 0 28 8" aria-hidden="true"><path d="M0 4H28" style="{style}"/></svg>'
        return f"<li>{stroke}{escape(self.label)}</li>"


def legend(keys: Sequence[Key]) -> str:
    """The list of a chart's lines; empty where there are none to tell apart."""
    return f'<ul class="legend">{"".join(key.html() for key in keys)}</ul>' if keys else ""


@dataclass(frozen=True)
class Details:
    """A block that is shown on demand."""

    summary: str
    content: Block

    def html(self, key: str) -> str:
        """A disclosure element."""
        return f"<details><summary>{escape(self.summary)}</summary>{self.content.html(key)}</details>"


@dataclass(frozen=True)
class Chart:
    """A drawing.

    Args:
        title: above it.
        svg: as `gistgnn.report.charts` makes it.
        label: what it shows, for those who cannot see it.
        keys: its legend.
        details: shown on demand under it.
    """

    title: str
    svg: str
    label: str
    keys: Sequence[Key] = ()
    details: Details | None = None

    def html(self, key: str) -> str:
        """A figure whose ids begin with the key."""
        drawing = with_ids(self.svg, key).replace("<svg ", f'<svg role="img" aria-label="{escape(self.label)}" ', 1)
        more = self.details.html(f"{key}d") if self.details else ""
        title = f"<figcaption>{escape(self.title)}</figcaption>"
        return f'<figure class="chart">{title}{legend(self.keys)}{drawing}{more}</figure>'


@dataclass(frozen=True)
class Charts:
    """Charts side by side where the page is wide enough, with a legend for all of them."""

    charts: Sequence[Chart]
    keys: Sequence[Key] = ()

    def html(self, key: str) -> str:
        """A grid."""
        figures = "".join(chart.html(f"{key}-{i}") for i, chart in enumerate(self.charts))
        return f'{legend(self.keys)}<div class="charts">{figures}</div>'


@dataclass(frozen=True)
class Bar:
    """One bar: what it is of, how long (in [0, 1]), and its value in words."""

    label: str
    length: float
    value: str
    colour: int = 0


@dataclass(frozen=True)
class Bars:
    """Horizontal bars with their values."""

    bars: Sequence[Bar]
    title: str = ""

    def html(self, key: str) -> str:
        """A list; the values are text, the bars decoration."""
        rows = "".join(map(self._bar, self.bars))
        caption = f"<figcaption>{escape(self.title)}</figcaption>" if self.title else ""
        return f'<figure class="bars">{caption}<ul>{rows}</ul></figure>'

    @staticmethod
    def _bar(bar: Bar) -> str:
        width = f"{100 * min(max(bar.length, 0), 1):.2f}%"
        style = f"width:{width};background:var(--series-{bar.colour % COLOURS})"
        words = f'<span class="what">{escape(bar.label)}</span><span class="value">{escape(bar.value)}</span>'
        return f'<li>{words}<span class="track" aria-hidden="true"><span style="{style}"></span></span></li>'


@dataclass(frozen=True)
class Side:
    """Blocks side by side where the page is wide enough."""

    blocks: Sequence[Block]

    def html(self, key: str) -> str:
        """A grid."""
        inner = "".join(f"<div>{block.html(f'{key}-{i}')}</div>" for i, block in enumerate(self.blocks))
        return f'<div class="charts">{inner}</div>'


@dataclass(frozen=True)
class Split:
    """A dimension cut into the blocks of the sub-GCNs, drawn to scale."""

    label: str
    parts: Sequence[int]

    def html(self, key: str) -> str:
        """A strip; parts have numbers while there is room for them."""
        room = len(self.parts) <= 12
        parts = "".join(f'<span style="flex:{part}">{part if room else ""}</span>' for part in self.parts)
        return f'<div class="split"><p>{escape(self.label)}</p><div aria-hidden="true">{parts}</div></div>'


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds (None: not shown), and what was measured."""

    claim: str
    holds: bool | None
    measured: str


@dataclass(frozen=True)
class Verdicts:
    """Claims with a word for each of them."""

    verdicts: Sequence[Verdict]

    def html(self, key: str) -> str:
        """A list."""
        return f'<ul class="verdicts">{"".join(map(self._verdict, self.verdicts))}</ul>'

    @staticmethod
    def _verdict(verdict: Verdict) -> str:
        words = {True: ("holds", "yes"), False: ("does not hold", "no"), None: ("not shown", "open")}
        word, kind = words[verdict.holds]
        measured = f'<span class="measured">{escape(verdict.measured)}</span>' if verdict.measured else ""
        return f'<li><strong class="{kind}">{word}</strong> {escape(verdict.claim)}{measured}</li>'


@dataclass(frozen=True)
class Code:
    """Text to copy; one click selects all of it."""

    text: str

    def html(self, key: str) -> str:
        """Preformatted text that scrolls in its own box."""
        return f'<pre tabindex="0"><code>{escape(self.text)}</code></pre>'
