"""Renders the templates of this package; they escape all text of a record."""

import json
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gistgnn.utils import formats


def render(template: str, **context: Any) -> str:
    """Return the HTML of a page, from a file of the folder `templates` and its variables."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gistgnn.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    for function in (formats.duration, formats.number, formats.percent, formats.plural, formats.size, formats.times):
        environment.filters[function.__name__] = function
    environment.filters["count"] = "{:,}".format
    environment.filters["json"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    return environment
