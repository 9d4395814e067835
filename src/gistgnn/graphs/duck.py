"""DuckDB reads tables and sorts edges that do not fit in memory."""

from __future__ import annotations

import contextlib
import csv
import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError, printable, reason

_PARQUET, _TEXT_TYPE = ".parquet", ""
SUFFIXES = (".csv", ".csv.gz", _PARQUET)
_DIALECT = "delim=',', quote='\"', escape='\"'"
_BLOCK = 2**24  # bytes of numbers that are read at once
_PER_THREAD = 2**27  # bytes; DuckDB fails with much less
_SPILL = "sorting"


@contextlib.contextmanager
def database(folder: Path | None = None, memory: int | None = None) -> Iterator[Any]:
    """Open a database in memory, and turn DuckDB's errors into one line.

    Args:
        folder: DuckDB puts what does not fit in memory into a folder in it; None: everything has to fit.
        memory: bytes of DuckDB's buffers; None: DuckDB decides.
    """
    try:
        import duckdb
        import pyarrow  # noqa: F401  (results come as Arrow's tables)
    except ImportError as error:
        advice = "run: pip install 'gistgnn[convert]'"
        raise InputError(f"{error.name} is not installed, which reads and sorts tables; {advice}") from error
    config: dict[str, Any] = {"temp_directory": str(folder / _SPILL) if folder else ""}
    if memory is not None:
        config |= {"memory_limit": f"{memory >> 10}KiB"}
        config |= {"threads": max(1, min(os.cpu_count() or 1, memory // _PER_THREAD))}
    connection = duckdb.connect(":memory:", config=config)
    try:
        connection.execute("SET enable_progress_bar = false")  # it would be on standard output
        yield connection
    except duckdb.Error as error:
        raise InputError(_said(str(error))) from error
    finally:
        connection.close()


def is_table(path: Path) -> bool:
    """Whether the name of a file is that of a table."""
    return path.name.lower().endswith(SUFFIXES)


def table_files(path: Path) -> list[Path]:
    """Return the files of a table: the path itself, or the tables in a folder in the order of their names."""
    files = sorted(file for file in path.iterdir() if is_table(file)) if path.is_dir() else [path]
    if not files or not is_table(files[0]):
        raise InputError(f"{path}: expected a table in a {', '.join(SUFFIXES)} file, or a folder of them")
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: {'expected a regular file' if file.exists() else 'no such file'}")
        if file.name.lower().endswith(_PARQUET) != files[0].name.lower().endswith(_PARQUET):
            raise InputError(f"{file}: is not of the kind of {files[0]}; expected files of one kind")
    return files


def columns_of(connection: Any, files: list[Path], *, header: bool = True) -> dict[str, str]:
    """Return the names of a table's columns, and their types: in text, which has none, `_TEXT_TYPE`."""
    first, *others = ({row[0].strip(): row[1] for row in _described(connection, file, header)} for file in files)
    for file, columns in zip(files[1:], others, strict=True):
        if list(columns) != list(first):
            raise InputError(f"{file}: its columns are not those of {files[0]}")
    return first


def table(files: list[Path], types: dict[str, str], *, header: bool = True) -> str:
    """Return SQL for all rows of the files of a table.

    ``types`` are those of all columns, in the order of a text file; Parquet has its own. ``header`` says whether a text
    file begins with the names of the columns.
    """
    names = ", ".join(map(quoted, map(str, files)))
    if files[0].name.lower().endswith(_PARQUET):
        return f"read_parquet([{names}])"
    columns = ", ".join(f"{quoted(name)}: '{kind or 'VARCHAR'}'" for name, kind in types.items())
    return f"read_csv([{names}], header={header}, {_DIALECT}, auto_detect=false, columns={{{columns}}})"


def block_rows(columns: int) -> int:
    """Return how many rows of so many numbers are read at once."""
    return max(_BLOCK // (8 * columns), 1)


def quoted(text: str, by: str = "'") -> str:
    """Return a text as SQL quotes it; a name is quoted by double quotes."""
    return f"{by}{text.replace(by, by + by)}{by}"


def _described(connection: Any, file: Path, header: bool) -> Any:
    if file.name.lower().endswith(_PARQUET):
        return connection.sql(f"DESCRIBE SELECT * FROM read_parquet({quoted(str(file))})").fetchall()
    opener: Any = gzip.open if file.suffix.lower() == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig") as opened:
            names = [name.strip() for name in next(csv.reader([opened.readline()]), [])]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: cannot be read ({reason(error)})") from error
    if not header:
        return [(f"column{k}", _TEXT_TYPE) for k in range(len(names))]
    if not any(names):
        raise InputError(f"{file}: there is no line with the names of the columns")
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{file}: the column {twice[0]!r} is there twice")
    return [(name, _TEXT_TYPE) for name in names]


def _said(text: str) -> str:
    """Return DuckDB's message on one line, with the file and line of a CSV error, and without its advice."""
    file, line = re.search(r"^  file = (.+)$", text, re.M), re.search(r"CSV Error on Line: (\d+)", text)
    text = re.sub(r"^[A-Z][\w -]* Error: ", "", text)
    if not file or not line:
        return printable(" ".join(text.split("\n\n")[0].split()))
    what = re.search(r'Error when converting column "(.*)"\. (.*)', text)
    said = f"{what[1]}: {what[2]}" if what else " ".join(text.split("\n")[2:3])
    return printable(f"{file[1]}, line {line[1]}: {said}")
