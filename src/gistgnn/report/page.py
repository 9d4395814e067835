"""A page: a title, sections of blocks, one file of HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gistgnn.report.blocks import Block, escape

# Nothing may be loaded or run, whatever the record holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; without one, the top of the page."""

    title: str
    blocks: Sequence[Block]

    def html(self, key: str) -> str:
        """A section with its heading."""
        heading = f"<h2>{escape(self.title)}</h2>" if self.title else ""
        inner = "\n".join(block.html(f"{key}-{i}") for i, block in enumerate(self.blocks))
        return f"<section>\n{heading}{inner}\n</section>"


@dataclass(frozen=True)
class Page:
    """What one report.html shows.

    Args:
        title: its heading.
        subtitle: a line under it.
        sections: from top to bottom.
    """

    title: str
    subtitle: str
    sections: Sequence[Section]

    def render(self) -> str:
        """The whole file, the same for the same page."""
        body = "\n".join(section.html(f"s{i}") for i, section in enumerate(self.sections))
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)}</title>
<link rel="icon" href="data:,">
<style>
{_style()}</style>
</head>
<body>
<header>
<h1>{escape(self.title)}</h1>
<p>{escape(self.subtitle)}</p>
</header>
<main>
{body}
</main>
</body>
</html>
"""


@cache
def _style() -> str:
    return files("gistgnn.report").joinpath("style.css").read_text(encoding="utf-8")
