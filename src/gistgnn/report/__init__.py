"""Reports: report.html of a run, a comparison or a reproduction, from its JSON record.

A report is one file without scripts, and it loads nothing. The modules that return its HTML import matplotlib, which is
slow: import them where a report is written.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gistgnn.report.names import COSTLY, method_name
from gistgnn.storage.whole_files import replacing
from gistgnn.utils import formats

__all__ = ["COSTLY", "REPORT", "method_name", "write_experiment_report", "write_report"]

REPORT = "report.html"


def write_report(path: Path, html: str) -> None:
    """Write a page, or another text, into a file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(html, encoding="utf-8", errors="backslashreplace")


def render(template: str, **context: Any) -> str:
    """Return the HTML of a page, from a file of the folder `templates`, which escapes all text, and its variables."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader(__name__), autoescape=True, undefined=StrictUndefined, **blocks)
    for function in (formats.duration, formats.number, formats.percent, formats.plural, formats.size, formats.times):
        environment.filters[function.__name__] = function
    environment.filters["share"] = lambda part: f"< 1{formats.NBSP}%" if part < 0.005 else formats.percent(part, 0)
    environment.filters["count"] = "{:,}".format
    environment.filters["json"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    return environment


def write_experiment_report(path: Path, record: dict[str, Any]) -> None:
    """Write the page of a reproduction, from the content of experiment.json."""
    from gistgnn.report.pages import experiment_page

    write_report(path, experiment_page(record))
