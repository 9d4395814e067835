"""Checks of values that several modules take."""

from typing import Any

from gistgnn.errors import InputError


def check_count(name: str, value: Any) -> None:
    """Raise InputError unless a value is an integer >= 1; `name` is what the message calls it."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {value!r}, expected an integer >= 1")
