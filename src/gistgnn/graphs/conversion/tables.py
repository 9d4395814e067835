"""Tables: one file or a folder of files, in CSV or in Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.graphs.conversion import parquet_tables, text_tables
from gistgnn.graphs.conversion.source import require_files
from gistgnn.graphs.conversion.text_tables import Rows, Wanted

_TEXT, _PARQUET = (".csv", ".csv.gz"), (".parquet",)
SUFFIXES = (*_TEXT, *_PARQUET)


class Table:
    """A table in one file, or in the files of a folder in the order of their names.

    Args:
        path: a `.csv`, `.csv.gz` or `.parquet`, or a folder of such files.

    Raises:
        InputError: it is missing, or another kind of file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            self.files = sorted(file for file in path.iterdir() if is_table(file))
            if not self.files:
                raise InputError(f"{path}: no tables in this folder; expected {', '.join(SUFFIXES)} files")
        else:
            self.files = [path]
            if not is_table(path):
                raise InputError(f"{path}: expected a table in a {', '.join(SUFFIXES)} file, or a folder of them")
        require_files(*self.files)

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns, which are those of every file.

        Raises:
            InputError: a file cannot be read, or has other columns than the first.
        """
        first, *others = ((file, _names(file)) for file in self.files)
        for file, names in others:
            if names != first[1]:
                raise InputError(f"{file}: its columns are not those of {first[0]}")
        return first[1]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def count(self) -> int | None:
        """The number of rows, where it is known without reading them."""
        if any(is_text(file) for file in self.files):
            return None
        return sum(parquet_tables.count(file) for file in self.files)

    def width(self, column: str) -> int | None:
        """Return how many numbers a list in this column has; None: it is a column of numbers."""
        return None if is_text(self.files[0]) else parquet_tables.width(self.files[0], column)

    def rows(self, wanted: Sequence[Wanted], most: int) -> Iterator[Rows]:
        """Yield all rows in blocks of at most ``most``.

        Raises:
            InputError: a value is missing or is no number; the message has the line or row.
        """
        for file in self.files:
            read = text_tables.text_rows if is_text(file) else parquet_tables.parquet_rows
            yield from (rows for rows in read(file, wanted, most) if len(rows))


def is_table(path: Path) -> bool:
    """Whether the name of a file is that of a table."""
    return path.name.lower().endswith(SUFFIXES)


def is_text(path: Path) -> bool:
    """Whether a table is text."""
    return path.name.lower().endswith(_TEXT)


def _names(file: Path) -> list[str]:
    return text_tables.text_columns(file) if is_text(file) else parquet_tables.parquet_columns(file)
