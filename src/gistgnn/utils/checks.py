"""Checks of values that several modules take."""

import math
from typing import Any

from gistgnn.errors import InputError

MOST = 10**9
"""The most of anything that is counted: more has no use, and does not fit into the integers of SciPy or METIS."""

WIDEST = 10**8
"""The most features of a layer: products of two such widths still fit into 64 bits."""

LONGEST = 1e9
"""The longest time in seconds, about 30 years: timers and sockets take no longer ones."""

LARGEST_SEED = 2**63 - 1

LONGEST_NAME = 255
"""The most characters of a name, as of a file's: what has a name is drawn, and tabulated."""

_SHOWN = 80  # characters


def check_count(name: str, value: Any, least: int = 1, most: int = MOST) -> None:
    """Raise InputError unless a value is an integer from `least` to `most`; `name` is what the message calls it."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {shown(value)}, expected an integer >= {least}")
    if value > most:
        raise InputError(f"{name} is {shown(value)}, expected an integer from {least} to {most}")


def check_number(name: str, value: Any, *, above: bool = False, below: float = math.inf) -> None:
    """Check that a number is >= 0 (> 0 with `above`) and < `below`."""
    if not is_finite(value) or value >= below or value < 0 or (above and value == 0):
        bound = ("> 0" if above else ">= 0") + (f" and < {below:g}" if below < math.inf else "")
        raise InputError(f"{name} is {shown(value)}, expected a number {bound}")


def is_finite(value: Any) -> bool:
    """Whether a value is an int or a float, and is finite as a float."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def shown(value: Any) -> str:
    """Return a value for a message, on one line; a very long one is cut."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer of more digits than Python prints, or an object of the user's own
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def check_flag(name: str, value: Any) -> None:
    """Raise InputError unless a value is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} is {shown(value)}, expected True or False")


def check_kind(name: str, value: Any, kinds: type | tuple[type, ...], expected: str, *, none: bool = False) -> None:
    """Raise InputError unless a value is of one of some types, such as `expected` says; with `none`, or None."""
    if not (isinstance(value, kinds) or (none and value is None)):
        raise InputError(f"{name} is {shown(value)}, expected {expected}{', or None' if none else ''}")


def check_name(name: str, value: Any) -> None:
    """Raise InputError unless a value is a text of at most `LONGEST_NAME` characters."""
    check_kind(name, value, str, "a text")
    if len(value) > LONGEST_NAME:
        raise InputError(f"{name} has {len(value):,} characters, expected at most {LONGEST_NAME}: {shown(value)}")


def check_callable(name: str, value: Any, expected: str) -> None:
    """Raise InputError unless a value can be called; `expected` says what with, such as "a function of the model"."""
    if not callable(value):
        raise InputError(f"{name} is {shown(value)}, expected {expected}")
