"""Numbers, flags and functions that callers give."""

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


@pytest.mark.parametrize("value", [True, None, "2", math.nan, -1, [2], 10**5000, -(10**5000)], ids=range(8))
def test_what_is_no_number(value: Any) -> None:
    for check in (check_count, check_number):
        with refused("lr is "):
            check("lr", value)


def test_the_ends_of_ranges() -> None:
    check_name("name", "a" * 255)
    with refused("name has 256 characters, expected at most 255: 'aaa"):
        check_name("name", "a" * 256)
    check_count("seed", 2**63 - 1, least=0, most=2**63 - 1)
    check_count("epochs", MOST)
    with refused("epochs is 1000000001, expected an integer from 1 to 1000000000"):
        check_count("epochs", MOST + 1)
    for value in (0, 2.0):
        with refused("epochs is "):
            check_count("epochs", value)
    for number in (0, -0.0, 1e-320, 1e308, 7):
        check_number("lr", number)
    for number in (-1e-320, math.inf, 1j, 10**400):
        with refused("lr is "):
            check_number("lr", number)


def test_flags_kinds_and_functions() -> None:
    check_flag("progress", True)
    check_kind("folder", None, str, "a path", none=True)
    check_callable("stop", len, "a function")
    with refused("progress is 1, expected True or False"):
        check_flag("progress", 1)
    with refused("folder is 3, expected a path, or None"):
        check_kind("folder", 3, str, "a path", none=True)
    with refused("stop is None, expected a function"):
        check_callable("stop", None, "a function")


def test_values_in_messages_are_short_and_on_one_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("a" * 5000)) == len(shown(list(range(5000)))) == 80
    assert shown(10**5000) == "a very long int"


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0", None])
def test_a_bad_seed_is_refused(seed: Any) -> None:
    with refused("seed is", repr(seed)):
        check_seed(seed)


def test_names_are_imported_at_their_first_use() -> None:
    numbers = Registry[float]({"pi": "math:pi", "missing": "math:no_such_number"})
    assert numbers["pi"] == math.pi
    assert list(numbers) == ["pi", "missing"]
    for lookup, error in ((lambda: numbers["missing"], AttributeError), (lambda: numbers["e"], KeyError)):
        with pytest.raises(error):
            lookup()
    with pytest.raises(AttributeError, match=r"module 'gistgnn\.nn' has no attribute 'NoSuchModel'"):
        _ = gistgnn.nn.NoSuchModel
