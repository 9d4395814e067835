"""matplotlib's SVG, made fit to stand in a page beside others."""

import re

_ID = re.compile(r' id="([^"]*)"')
_USED = re.compile(r'href="#([^"]+)"|url\(#([^)]+)\)')
_DECIMAL = re.compile(r"-?\d+\.\d+")


def inlined(svg: str, colours: dict[str, str]) -> str:
    """Return the ``svg`` element alone, without what only a file of its own needs.

    Args:
        svg: as matplotlib wrote it, with text as text.
        colours: which CSS colour stands for which placeholder in hexadecimal.
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)  # it would style the whole page
    svg = re.sub(r"font: (?:\d+ )?([\d.]+px)[^;\"]*", r"font-size: \1", svg)  # the page's own fonts
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"| version="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r' (d|transform|x|y|points)="[^"]*"', lambda found: _rounded(found[0]), svg)
    for placeholder, colour in colours.items():
        svg = svg.replace(placeholder, colour)
    used = {name for pair in _USED.findall(svg) for name in pair if name}
    svg = _ID.sub(lambda found: found[0] if found[1] in used else "", svg)
    return re.sub(r"\s*\n\s*", "\n", svg).replace("<svg ", '<svg class="plot" ', 1)


def with_ids(svg: str, key: str) -> str:
    """Return it with ids, and references to them, that begin with a key."""
    svg = _ID.sub(rf' id="{key}-\1"', svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", svg)


def _rounded(attribute: str) -> str:
    """Coordinates to a tenth of a point: what is finer is not seen, and makes the file three times as large."""
    return _DECIMAL.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), attribute)
