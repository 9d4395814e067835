"""Numbers, flags, names and functions that callers give."""

import math
from typing import Any

import pytest

import gistgnn.nn
from gistgnn import InputError
from gistgnn.utils import checks
from gistgnn.utils.lazy import Registry
from gistgnn.utils.random_streams import check_seed
from tests.helpers.refusals import refused

LARGEST = 2**63 - 1
NO_NUMBERS: list[Any] = [True, None, "2", math.nan, -1, [2], 10**5000, -(10**5000)]
REFUSED: list[tuple[Any, tuple[Any, ...], str]] = [
    *(
        (check, ("lr", value), "lr is ")
        for check in (checks.check_count, checks.check_number)
        for value in NO_NUMBERS
    ),
    *((checks.check_number, ("lr", value), "lr is ") for value in (-1e-320, math.inf, 1j, 10**400)),
    *((checks.check_count, ("epochs", value), "epochs is ") for value in (0, 2.0)),
    *((check_seed, (value,), f"seed is {value!r}") for value in (-1, 1.0, True, "0", None)),
    (
        checks.check_count,
        ("epochs", checks.MOST + 1),
        "epochs is 1000000001, expected an integer from 1 to 1,000,000,000",
    ),
    (checks.check_name, ("name", "a" * 256), "name has 256 characters, expected at most 255: 'aaa"),
    (checks.check_flag, ("progress", 1), "progress is 1, expected True or False"),
    (checks.check_kind, ("folder", 3, str, "a path"), "folder is 3, expected a path"),
    (checks.check_callable, ("stop", None, "a function"), "stop is None, expected a function"),
]


def test_bad_arguments_are_refused_and_the_ends_of_ranges_are_not() -> None:
    for check, arguments, message in REFUSED:
        with refused(message):
            check(*arguments)
    for number in (0, -0.0, 1e-320, 1e308, 7):
        checks.check_number("lr", number)
    with refused("lr is 0.5"):
        checks.check_number("lr", 0.5, below=0.5)
    checks.check_number("lr", 0.49, below=0.5)
    checks.check_count("seed", LARGEST, least=0, most=LARGEST)
    checks.check_count("epochs", checks.MOST)
    checks.check_name("name", "a" * 255)
    checks.check_flag("progress", True)
    checks.check_kind("folder", None, str, "a path", none=True)
    checks.check_callable("stop", len, "a function")


@pytest.mark.parametrize("exponent", range(1, 19))
def test_the_ends_of_ranges_are_written_out_with_commas(exponent: int) -> None:
    """Every digit is written, with a comma before every third one from the right."""
    most = 10**exponent
    with pytest.raises(InputError) as of_count:
        checks.check_count("epochs", most + 1, most=most)
    with pytest.raises(InputError) as of_number:
        checks.check_number("epochs", 2.0 * most, below=float(most))
    for refusal in (of_count, of_number):
        limit = str(refusal.value).split()[-1]
        assert int(limit.replace(",", "")) == most
        assert [len(digits) for digits in limit.split(",")[1:]] == [3] * (exponent // 3)
    for below, text in ((0.5, "0.5"), (1e30, "1e30")):
        with refused(f"lr is -1, expected a number >= 0 and < {text}"):
            checks.check_number("lr", -1, below=below)


def test_names_are_imported_at_their_first_use() -> None:
    numbers = Registry[float]({"pi": "math:pi", "missing": "math:no_such_number"})
    assert numbers["pi"] == math.pi
    assert list(numbers) == ["pi", "missing"]
    for name, error in (("missing", AttributeError), ("e", KeyError)):
        with pytest.raises(error):
            _ = numbers[name]
    with pytest.raises(
        AttributeError, match=r"module 'gistgnn\.nn' has no attribute 'NoSuchModel'"
    ):
        _ = gistgnn.nn.NoSuchModel
