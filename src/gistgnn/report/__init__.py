"""Reports: report.html of a run, a comparison or a reproduction, from its JSON record.

A report is one file without scripts, and it loads nothing. The modules that return its HTML import
matplotlib, which is slow: import them where a report is written.
"""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.report.names import COSTLY
from gistgnn.storage.whole_files import replacing
from gistgnn.utils import formats
from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from jinja2 import Environment

    from gistgnn.report.charts import Chart, Series
    from gistgnn.report.pages import experiment_page

__all__ = ["COSTLY", "REPORT", "Chart", "Series", "experiment_page", "write_report"]
__getattr__ = lazy_attributes(
    __name__,
    {
        "gistgnn.report.charts": ("Chart", "Series"),
        "gistgnn.report.pages": ("experiment_page",),
    },
)

REPORT = "report.html"


def write_report(path: Path, html: str) -> None:
    """Write a page, or another text, into a file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(html, encoding="utf-8", errors="backslashreplace")


def render(template: str, **context: Any) -> str:
    """Return the HTML of a page, from a file of the folder `templates` and its variables.

    All text is escaped.
    """
    return _environment().get_template(template).render(context)


@cache
def _environment() -> "Environment":
    # The command line imports this package for names: jinja2 would take a fifth of its start.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(
        loader=PackageLoader(__name__), autoescape=True, undefined=StrictUndefined, **blocks
    )
    for name in ("duration", "mean_sd", "percent", "plural", "size", "times"):
        environment.filters[name] = getattr(formats, name)
    environment.filters["share"] = lambda part: (
        f"< 1{formats.NBSP}%" if part < 0.005 else formats.percent(part, 0)
    )
    environment.filters["count"] = "{:,}".format
    environment.filters["json"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    return environment
