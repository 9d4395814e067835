"""Checks of values that several modules take."""

import math
from typing import Any

from gistgnn.errors import InputError


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise InputError unless a value is an integer >= `least`; `name` is what the message calls it."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}, expected an integer >= {least}")


def check_number(name: str, value: Any, *, above: bool = False, below: float = math.inf) -> None:
    """Check that a number is >= 0 (> 0 with `above`) and < `below`."""
    fine = isinstance(value, (int, float)) and math.isfinite(value) and value < below
    if not fine or value < 0 or (above and value == 0):
        bound = "> 0" if above else ">= 0"
        raise InputError(
            f"{name} is {value!r}, expected a number {bound}{f' and < {below:g}' if below < math.inf else ''}"
        )
