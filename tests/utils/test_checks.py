"""Numbers, flags, names and functions that callers give."""

import math
from typing import Any

import pytest

import gistgnn.nn
from gistgnn.utils.checks import (
    MOST,
    check_callable,
    check_count,
    check_flag,
    check_kind,
    check_name,
    check_number,
    shown,
)
from gistgnn.utils.lazy import Registry
from gistgnn.utils.random_streams import check_seed
from tests.helpers.refusals import refused

LARGEST = 2**63 - 1
NO_NUMBERS: list[Any] = [True, None, "2", math.nan, -1, [2], 10**5000, -(10**5000)]
REFUSED: list[tuple[Any, tuple[Any, ...], str]] = [
    *((check, ("lr", value), "lr is ") for check in (check_count, check_number) for value in NO_NUMBERS),
    *((check_number, ("lr", value), "lr is ") for value in (-1e-320, math.inf, 1j, 10**400)),
    *((check_count, ("epochs", value), "epochs is ") for value in (0, 2.0)),
    *((check_seed, (value,), f"seed is {value!r}") for value in (-1, 1.0, True, "0", None)),
    (check_count, ("epochs", MOST + 1), "epochs is 1000000001, expected an integer from 1 to 1000000000"),
    (check_name, ("name", "a" * 256), "name has 256 characters, expected at most 255: 'aaa"),
    (check_flag, ("progress", 1), "progress is 1, expected True or False"),
    (check_kind, ("folder", 3, str, "a path"), "folder is 3, expected a path"),
    (check_callable, ("stop", None, "a function"), "stop is None, expected a function"),
]


def test_what_is_refused_and_what_is_not() -> None:
    for check, arguments, said in REFUSED:
        with refused(said):
            check(*arguments)
    for number in (0, -0.0, 1e-320, 1e308, 7):
        check_number("lr", number)
    check_count("seed", LARGEST, least=0, most=LARGEST)
    check_count("epochs", MOST)
    check_name("name", "a" * 255)
    check_flag("progress", True)
    check_kind("folder", None, str, "a path", none=True)
    check_callable("stop", len, "a function")


def test_values_in_messages_are_short_and_on_one_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("a" * 5000)) == len(shown(list(range(5000)))) == 80
    assert shown(10**5000) == "a very long int"


def test_names_are_imported_at_their_first_use() -> None:
    numbers = Registry[float]({"pi": "math:pi", "missing": "math:no_such_number"})
    assert numbers["pi"] == math.pi
    assert list(numbers) == ["pi", "missing"]
    for name, error in (("missing", AttributeError), ("e", KeyError)):
        with pytest.raises(error):
            _ = numbers[name]
    with pytest.raises(AttributeError, match=r"module 'gistgnn\.nn' has no attribute 'NoSuchModel'"):
        _ = gistgnn.nn.NoSuchModel
