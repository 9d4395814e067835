"""Checks of values that several modules take."""

from typing import Any

from gistgnn.errors import InputError


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise InputError unless a value is an integer >= `least`; `name` is what the message calls it."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}, expected an integer >= {least}")
