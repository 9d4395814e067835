"""Checks of values, and of the settings that are the fields of a dataclass, by their types."""

import math
import operator
from collections.abc import Collection, Iterable
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, get_args

from msgspec import Meta, inspect

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

AtLeastOne = Annotated[int, Meta(ge=1, le=MOST)]
Width = Annotated[int, Meta(ge=1, le=WIDEST)]
Seed = Annotated[int, Meta(ge=0, le=LARGEST_SEED)]
Fraction = Annotated[float, Meta(ge=0, lt=1)]

_SHOWN = 80  # characters


def as_integer(value: Any) -> int | None:
    """Return an integer of Python, NumPy or torch, such as `np.int64(4)`, as one of Python.

    Returns None if the value is no integer, or is a flag.
    """
    if isinstance(value, bool) or _kind(value) == "bool" or _dimensions(value):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # torch's tensors raise all of them
        return None


def as_number(value: Any) -> int | float | None:
    """Return a number of Python, NumPy or torch, such as `np.float32(0.1)`, as one of Python.

    Returns None if the value is no number, or is a flag.
    """
    if (integer := as_integer(value)) is not None:
        return integer
    if isinstance(value, float) or ("float" in _kind(value) and not _dimensions(value)):
        return float(value)
    return None


def _kind(value: Any) -> str:
    """Return the type of the numbers of NumPy's and torch's objects, such as "float32".

    It is "" for other objects.
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
        raise InputError(f"{name} is {shown(value)}, expected an integer from {least} to {most:,}")
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
        least = "> 0" if above else ">= 0"
        limit = f" and < {as_limit(below)}" if below < math.inf else ""
        raise InputError(f"{name} is {shown(value)}, expected a number {least}{limit}")
    return number


def as_limit(number: float) -> str:
    """Return the end of a range as a person reads it: 1,000,000,000, and not 1e+09."""
    is_readable = number == int(number) and number < 1e20
    return f"{number:,.0f}" if is_readable else f"{number:g}".replace("e+", "e")


def shown(value: Any) -> str:
    """Return a value for a message, on one line; a very long one is cut."""
    return shortened(on_one_line(value))


def on_one_line(value: Any) -> str:
    """Return the whole of a value as a text without line breaks."""
    try:
        return " ".join(repr(value).split())
    except Exception:
        # It is an integer of more digits than Python prints, or an object of the user's own.
        return f"a very long {type(value).__name__}"


def shortened(text: str) -> str:
    """Cut a text that is too long for a message."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return a question with the known word that is nearest to a wrong one, if one is near."""
    near = get_close_matches(word, [*known], n=1)
    return f": did you mean {near[0]}?" if near else ""


def check_flag(name: str, value: Any) -> None:
    """Raise InputError unless a value is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} is {shown(value)}, expected True or False")


def check_kind(
    name: str, value: Any, kinds: type | tuple[type, ...], expected: str, *, none: bool = False
) -> None:
    """Raise InputError unless a value is of one of some types.

    Args:
        name: of the value, for the message.
        value: any object.
        kinds: the types.
        expected: what the message says was expected.
        none: None is allowed as well.
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
    """Raise InputError unless a value can be called.

    `expected` says what it has to be, such as "a function of the model".
    """
    if not callable(value):
        raise InputError(f"{name} is {shown(value)}, expected {expected}")


def setting_types(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, by name.

    Those that need a slow import are given as texts, and are left out. A number's type has its
    range: `Annotated[int, Meta(ge=1)]`. The `msgspec.Meta` around a type describes the option of
    the setting: its description is the help, and its `extra` may have the "metavar", and "choices",
    the names that are offered.
    """
    return {field.name: field.type for field in fields(kind) if not isinstance(field.type, str)}


def meta_of(hint: Any) -> Meta:
    """Return what the type of a setting says of its option."""
    meta: Meta = get_args(hint)[-1]
    return meta


def types_of(hint: Any) -> list[inspect.Type]:
    """Return the types of a setting's values: two of `int | None`."""
    outer = hint if isinstance(hint, inspect.Type) else inspect.type_info(hint)
    union = outer.type if isinstance(outer, inspect.Metadata) else outer
    return list(union.types) if isinstance(union, inspect.UnionType) else [union]


def words_of(types: Iterable[inspect.Type]) -> tuple[str, ...]:
    """Return the words among the values of some types."""
    literals = (kind for kind in types if isinstance(kind, inspect.LiteralType))
    return tuple(str(word) for literal in literals for word in literal.values)


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return the only words that the option of a setting takes; empty: it takes other values."""
    types = types_of(hint)
    words = words_of(types) if isinstance(types[0], inspect.LiteralType) else ()
    return tuple((meta_of(hint).extra or {}).get("choices", words))


def check_setting(name: str, value: Any, hint: Any) -> Any:
    """Return the value of a setting, numbers as Python's.

    Raises:
        InputError: it is neither one of the words of its type, nor in the range of its numbers,
            nor a flag. Values of other types may be any.
    """
    return _check_value(name, value, types_of(hint))


def _check_value(name: str, value: Any, types: list[inspect.Type]) -> Any:
    words = words_of(types)
    if value is None and any(isinstance(kind, inspect.NoneType) for kind in types):
        return None
    if isinstance(value, str) and value in words:
        return value
    for kind in types:
        if isinstance(kind, inspect.BoolType):
            check_flag(name, value)
        if isinstance(kind, inspect.IntType) and kind.ge is not None:
            least = kind.ge
            if words and isinstance(value, str):
                quoted = " or ".join(map(repr, words))
                raise InputError(
                    f"{name} is {shown(value)}, expected an integer >= {least} or {quoted}"
                )
            return check_count(name, value, least, kind.le or MOST)
        if isinstance(kind, inspect.FloatType) and kind.lt is not None:
            return check_number(name, value, above=kind.gt == 0, below=kind.lt)
        if isinstance(kind, inspect.VarTupleType) and isinstance(value, (list, tuple)):
            return tuple(check_setting(name, item, kind.item_type) for item in value)
    if words:
        check_choice(name, value, words)
    return value


def check_settings(settings: Any) -> None:
    """Raise InputError unless every setting of a dataclass has a value of its type.

    Numbers of NumPy and torch become Python's, so that records are JSON.
    """
    kind: type = type(settings)
    for name, types in _types_of_fields(kind).items():
        set_field(settings, name, _check_value(name, getattr(settings, name), types))


@cache
def _types_of_fields(kind: type) -> dict[str, list[inspect.Type]]:
    """Return the types of a dataclass's settings by name; reading them takes milliseconds."""
    return {name: types_of(hint) for name, hint in setting_types(kind).items()}


def set_field(settings: Any, name: str, value: Any) -> None:
    """Set a field of a frozen dataclass, in its `__post_init__`."""
    object.__setattr__(settings, name, value)
