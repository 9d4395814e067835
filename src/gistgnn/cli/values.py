"""How the values of options are read: each function is the `type` of an option for argparse."""

import argparse
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gistgnn.utils.checks import LARGEST_SEED, LONGEST, MOST


def number_within(
    kind: Callable[[str], Any], least: float, most: float, expected: str
) -> Callable[[str], Any]:
    """Return a function that reads a number from `least` to `most`.

    `expected` is what its message says was expected.
    """

    def read(text: str) -> Any:
        with suppress(ValueError):
            value = kind(text)
            if least <= value <= most:
                return value
        raise argparse.ArgumentTypeError(f"is '{text}', expected {expected}")

    return read


def integer_within(least: int, most: int) -> Callable[[str], Any]:
    """Return a function that reads an integer from `least` to `most`."""
    return number_within(int, least, most, f"an integer from {least} to {most:,}")


count = integer_within(1, MOST)
seed = integer_within(0, LARGEST_SEED)
thousand = integer_within(1, 1000)  # of runs that differ in their seed


def word_or_integer(words: tuple[str, ...], text: str) -> int | str:
    """Read one of some words, or an integer, whose range is checked later."""
    try:
        return text if text in words else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is '{text}', expected an integer >= 1 or {' or '.join(words)}"
        ) from None


def device(text: str) -> str:
    """Read the name of a device; whether it is there is known when torch is imported."""
    if re.fullmatch(r"auto|(cpu|cuda|mps|xpu)(:\d+)?", text):
        return text
    raise argparse.ArgumentTypeError(f"is '{text}', expected auto, cpu, cuda or cuda:N")


def memory_size(text: str) -> int:
    """Read a size of memory such as 32GB, 1.75GiB or 4 (GiB); return bytes.

    GB are 2^30 bytes, as memory is sold.
    """
    units = {"": 2**30, "MB": 2**20, "MiB": 2**20, "GB": 2**30, "GiB": 2**30}
    expected = "a size such as 32GB or 512MB, or a number of GiB"
    size = _read_with_unit(text, units, expected, MOST * 2**30)
    return max(int(size), 1)


_SECONDS = {"s": 1, "min": 60, "h": 3600}


def duration(text: str) -> float:
    """Read a time such as 90s, 10min or 1.5h; return seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"is '{text}', without a unit: {text}s or {text}min?")
    expected = f"a time such as 90s, 10min or 1.5h, of at most {LONGEST:,.0f} seconds"
    return _read_with_unit(text, _SECONDS, expected, LONGEST)


def seconds(text: str) -> float:
    """Read a time such as 90s or 10min, or a number of seconds; return seconds."""
    expected = f"a time such as 90s or 10min, or a number of seconds, at most {LONGEST:,.0f}"
    if re.search(r"[a-z]$", text):
        return _read_with_unit(text, _SECONDS, expected, LONGEST)
    smallest = math.ulp(0.0)
    value: float = number_within(float, smallest, LONGEST, expected)(text)
    return value


def _read_with_unit(text: str, units: Mapping[str, float], expected: str, most: float) -> float:
    """Read a number above 0 and up to `most`, followed by one of the units."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    value = float(match[1]) * units.get(match[2], 0.0) if match else 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"is '{text}', expected {expected}")
    return value


def keyword(text: str) -> tuple[str, Any]:
    """Read a keyword and its value, such as alpha=0.1: JSON, or else text."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(
            f"is '{text}', expected a keyword with a value, such as alpha=0.1"
        )
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):  # no JSON, or lists within lists a thousand times
        return name, value
