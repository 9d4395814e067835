"""Checks of values, and `Setting`: what a field of a settings class says of its option and the
values it may have.
"""

import math
import operator
from collections.abc import Collection
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from gistgnn.errors import InputError

MOST = 10**9
"""The most of anything that is counted: more has no use, and does not fit into the integers of
SciPy or METIS.
"""

WIDEST = 10**8
"""The most features of a layer: products of two such widths still fit into 64 bits."""

LONGEST = 1e9
"""The longest time in seconds, about 30 years: timers and sockets take no longer ones."""

LARGEST_SEED = 2**63 - 1

LONGEST_NAME = 255
"""The most characters of a name, as of a file's: what has a name is drawn, and tabulated."""

_SHOWN = 80  # characters


def as_integer(value: Any) -> int | None:
    """Return an integer of Python, NumPy or torch, as `np.int64(4)`, as one of Python; None: it is
    none, or a flag.
    """
    if isinstance(value, bool) or _kind(value) == "bool" or _dimensions(value):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # torch's tensors raise all of them
        return None


def as_number(value: Any) -> int | float | None:
    """Return a number of Python, NumPy or torch, as `np.float32(0.1)`, as one of Python; None: it
    is none or a flag.
    """
    if (integer := as_integer(value)) is not None:
        return integer
    if isinstance(value, float) or ("float" in _kind(value) and not _dimensions(value)):
        return float(value)
    return None


def _kind(value: Any) -> str:
    """Return the type of a number, an array or a tensor of NumPy or torch, such as "float32"; ""
    for other objects.
    """
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def _dimensions(value: Any) -> int:
    return int(getattr(value, "ndim", 0))


def check_count(name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """Return a value as an integer of Python.

    Raises:
        InputError: it is not an integer from `least` to `most`; `name` is what the message calls
            it.
    """
    integer = as_integer(value)
    if integer is None or integer < least:
        raise InputError(f"{name} is {shown(value)}, expected an integer >= {least}")
    if integer > most:
        raise InputError(f"{name} is {shown(value)}, expected an integer from {least} to {most}")
    return integer


def check_number(
    name: str, value: Any, *, above: bool = False, below: float = math.inf
) -> int | float:
    """Return a value as a number of Python.

    Raises:
        InputError: it is not an int or a float that is finite, >= 0 (> 0 with `above`) and <
            `below`.
    """
    number = as_number(value)
    try:
        finite = number is not None and math.isfinite(number)
    except OverflowError:  # an integer beyond all floats
        finite = False
    if number is None or not finite or number >= below or number < 0 or (above and number == 0):
        bound = ("> 0" if above else ">= 0") + (f" and < {below:g}" if below < math.inf else "")
        raise InputError(f"{name} is {shown(value)}, expected a number {bound}")
    return number


def shown(value: Any) -> str:
    """Return a value for a message, on one line; a very long one is cut."""
    try:
        text = " ".join(repr(value).split())
    except (
        Exception
    ):  # an integer of more digits than Python prints, or an object of the user's own
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return a question with the known word that is nearest to a wrong one, if one is near."""
    near = get_close_matches(word, [*known], n=1)
    return f", did you mean {near[0]}?" if near else ""


def check_flag(name: str, value: Any) -> None:
    """Raise InputError unless a value is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} is {shown(value)}, expected True or False")


def check_kind(
    name: str, value: Any, kinds: type | tuple[type, ...], expected: str, *, none: bool = False
) -> None:
    """Raise InputError unless a value is of one of some types, such as `expected` says; with
    `none`, or None.
    """
    if not (isinstance(value, kinds) or (none and value is None)):
        raise InputError(
            f"{name} is {shown(value)}, expected {expected}{', or None' if none else ''}"
        )


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise InputError unless a value is one of some texts."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} is {shown(value)}, expected one of {', '.join(choices)}")


def check_name(name: str, value: Any) -> None:
    """Raise InputError unless a value is a text of at most `LONGEST_NAME` characters."""
    check_kind(name, value, str, "a text")
    if len(value) > LONGEST_NAME:
        raise InputError(
            f"{name} has {len(value):,} characters, expected at most {LONGEST_NAME}: {shown(value)}"
        )


def check_callable(name: str, value: Any, expected: str) -> None:
    """Raise InputError unless a value can be called; `expected` says what with, such as "a function
    of the model".
    """
    if not callable(value):
        raise InputError(f"{name} is {shown(value)}, expected {expected}")


@dataclass(frozen=True)
class Setting:
    """Describes a field: its option, default in the help, check and line in the reference follow
    from it.
    """

    help: str = ""  # what the option means, without its default
    metavar: str | None = None  # what stands for the value in the help
    # names that the command line offers; of a `Literal` they are its values
    choices: Collection[str] = ()
    least: int = 1  # of an integer
    most: int = MOST
    above: bool = False  # a number is greater than 0; otherwise 0 is allowed
    below: float = math.inf  # what a number is less than


@dataclass(frozen=True)
class Described:
    """A field with its `Setting`, its default, and the types of its values; `words` are the values
    of a `Literal`.
    """

    name: str
    setting: Setting
    default: Any
    kind: Any  # the type of its values beside None and the words; None: there is no other
    optional: bool  # it may be None
    words: tuple[str, ...]

    def check(self, value: Any) -> Any:
        """Return the value, numbers as Python's; other types than numbers may be any.

        Raises:
            InputError: it is neither one of the words nor in range.
        """
        setting = self.setting
        kind = self.kind
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        if self.words and kind is None:
            check_choice(self.name, value, self.words)
        if self.words and isinstance(value, str):
            words = " or ".join(map(repr, self.words))
            raise InputError(
                f"{self.name} is {shown(value)}, expected an integer >= {setting.least} or {words}"
            )
        if kind is int:
            return check_count(self.name, value, setting.least, setting.most)
        if kind is float:
            return check_number(self.name, value, above=setting.above, below=setting.below)
        if get_origin(kind) is tuple:
            return tuple(
                check_count(self.name, number, setting.least, setting.most)
                for number in value or ()
            )
        return value


@cache
def described(kind: type) -> dict[str, Described]:
    """Return the fields of a dataclass that have a `Setting`, by name."""
    found = {}
    for field in fields(kind):
        if get_origin(field.type) is Annotated:
            annotated, setting = get_args(field.type)
            parts = (
                get_args(annotated) if get_origin(annotated) in (Union, UnionType) else (annotated,)
            )
            words = tuple(
                word for part in parts if get_origin(part) is Literal for word in get_args(part)
            )
            kinds = [
                part for part in parts if part is not NoneType and get_origin(part) is not Literal
            ]
            own = kinds[0] if kinds else None
            found[field.name] = Described(
                field.name, setting, field.default, own, NoneType in parts, words
            )
    return found


def check_settings(settings: Any) -> None:
    """Raise InputError unless every described field of a dataclass has a value that it may have.

    Numbers of NumPy and torch become Python's, so that records are JSON.
    """
    for name, field in described(type(settings)).items():  # type: ignore[arg-type]  # mypy: a type has no hash
        set_field(settings, name, field.check(getattr(settings, name)))


def set_field(settings: Any, name: str, value: Any) -> None:
    """Set a field of a frozen dataclass, in its `__post_init__`."""
    object.__setattr__(settings, name, value)
