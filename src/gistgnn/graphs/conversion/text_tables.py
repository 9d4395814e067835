"""Tables in text: `.csv` and `.csv.gz`, with the number of the line of every row."""

from __future__ import annotations

import csv
import gzip
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable, reason

Array = npt.NDArray[Any]


@dataclass
class Rows:
    """Consecutive rows of a table.

    Attributes:
        columns: the values of each column, or several columns of one type side by side, by name.
        place: where every row is, such as "nodes.csv, line 7".
    """

    columns: dict[str, Array]
    place: Any

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True)
class Wanted:
    """Columns that are read as one array.

    Attributes:
        name: of the array.
        columns: their names.
        dtype: of the numbers; ``str`` for texts.
        flat: there is one column, and the array is [rows].
    """

    name: str
    columns: tuple[str, ...]
    dtype: Any
    flat: bool = True


def text_columns(path: Path, *, unnamed: bool = False) -> list[str]:
    """Return the names in the first line; or, if columns are ``unnamed``, its values.

    Raises:
        InputError: there is none.
    """
    with _opened(path) as file:
        return _named(path, file, unnamed=unnamed)


def text_rows(path: Path, wanted: Sequence[Wanted], most: int, names: Sequence[str] | None = None) -> Iterator[Rows]:
    """Yield the rows of a table in text.

    Args:
        path: a `.csv`, or a `.csv.gz`.
        wanted: the arrays to read.
        most: rows of a block.
        names: of the columns, where the file has no line of names; None: it has one.

    Raises:
        InputError: a value is missing or is no number; the message has the line.
    """
    with _opened(path) as file:
        header = _named(path, file) if names is None else list(names)
        line = 2 if names is None else 1
        try:
            while lines := list(islice(file, most)):
                if any(map(str.strip, lines)):
                    yield _parsed(path, lines, line, header, wanted)
                line += len(lines)
        except (OSError, EOFError, UnicodeDecodeError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
            raise InputError(f"{path}: cannot be read after line {line - 1} ({reason(error)})") from error


def _opened(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _named(path: Path, file: IO[str], *, unnamed: bool = False) -> list[str]:
    try:
        names = [name.strip() for name in next(csv.reader([file.readline()]), [])]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from error
    if not any(names):
        raise InputError(f"{path}: there is no line with the names of the columns")
    if len(set(names)) < len(names) and not unnamed:
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path}: the column {twice!r} is there twice")
    return names


def _parsed(path: Path, lines: list[str], first: int, header: Sequence[str], wanted: Sequence[Wanted]) -> Rows:
    numbers = [first + i for i, line in enumerate(lines) if line.strip()]  # blank lines are passed over
    lines = [line for line in lines if line.strip()]
    columns = {}
    for one in wanted:
        places = [header.index(name) for name in one.columns]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # an integer with a decimal point
                array = np.loadtxt(lines, one.dtype, None, ",", usecols=places, quotechar='"', ndmin=2, encoding=None)
        except (ValueError, OverflowError, DeprecationWarning) as error:
            raise _wrong(path, lines, numbers, header, one) or InputError(
                f"{path}: cannot be read from line {first} on ({reason(error)})"
            ) from error
        if len(array) != len(lines):
            raise InputError(f"{path}: cannot be read from line {first} on; expected one row in each line")
        columns[one.name] = array[:, 0] if one.flat else array
    return Rows(columns, lambda row: f"{path}, line {numbers[row]}")


def _wrong(path: Path, lines: list[str], numbers: list[int], header: Sequence[str], one: Wanted) -> InputError | None:
    """Return the error for the first value that is no number."""
    kind = "an integer" if np.dtype(one.dtype).kind == "i" else "a number"
    for line, number in zip(lines, numbers, strict=True):
        fields = next(csv.reader([line]), [])
        if len(fields) < len(header):
            return InputError(f"{path}, line {number}: {len(fields)} values; expected {len(header)}")
        for name in one.columns:
            text = fields[header.index(name)].strip()
            try:
                np.array(text).astype(one.dtype)
            except (ValueError, OverflowError):
                said = repr(printable(text)[:80])
                return InputError(f"{path}, line {number}: {name} is {said}; expected {kind}")
    return None
