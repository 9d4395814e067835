"""What a field of a settings class says of itself: its option on the command line, and the values it may have."""

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from gistgnn.errors import InputError
from gistgnn.utils.checks import MOST, check_count, check_number, shown


@dataclass(frozen=True)
class Setting:
    """Describes a field: its option, default in the help, check and line in the reference follow from it."""

    help: str = ""  # what the option means, without its default
    metavar: str | None = None  # what stands for the value in the help
    choices: Collection[str] = ()  # names that the command line offers; of a `Literal` they are its values
    least: int = 1  # of an integer
    most: int = MOST
    above: bool = False  # a number is greater than 0; otherwise 0 is allowed
    below: float = math.inf  # what a number is less than


@dataclass(frozen=True)
class Described:
    """A field with its `Setting`, its default, and the types of its values; `words` are the values of a `Literal`."""

    name: str
    setting: Setting
    default: Any
    kinds: tuple[Any, ...]
    words: tuple[str, ...]

    def check(self, value: Any) -> None:
        """Raise InputError unless the value is one of the words, or in range; other types than numbers may be any."""
        setting, kind = self.setting, next((kind for kind in self.kinds if kind is not NoneType), None)
        if (value is None and NoneType in self.kinds) or (isinstance(value, str) and value in self.words):
            return
        if self.words and kind is None:
            raise InputError(f"{self.name} is {shown(value)}, expected one of {', '.join(self.words)}")
        if self.words and isinstance(value, str):
            words = " or ".join(map(repr, self.words))
            raise InputError(f"{self.name} is {shown(value)}, expected an integer >= {setting.least} or {words}")
        if kind is int:
            check_count(self.name, value, setting.least, setting.most)
        elif kind is float:
            check_number(self.name, value, above=setting.above, below=setting.below)
        elif get_origin(kind) is tuple:
            for number in value or ():
                check_count(self.name, number, setting.least, setting.most)


@cache
def described(kind: type) -> dict[str, Described]:
    """Return the fields of a dataclass that have a `Setting`, by name."""
    found = {}
    for field in fields(kind):
        if get_origin(field.type) is Annotated:
            annotated, setting = get_args(field.type)
            parts = get_args(annotated) if get_origin(annotated) in (Union, UnionType) else (annotated,)
            words = tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))
            kinds = tuple(part for part in parts if get_origin(part) is not Literal)
            found[field.name] = Described(field.name, setting, field.default, kinds, words)
    return found


def check_settings(settings: Any) -> None:
    """Raise InputError unless every described field of a dataclass has a value that it may have."""
    for name, field in described(type(settings)).items():  # type: ignore[arg-type]  # mypy: a type has no hash
        field.check(getattr(settings, name))
