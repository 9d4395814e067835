"""Tables in Parquet, by pyarrow, which is an optional package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import GistError, InputError, reason
from gistgnn.graphs.conversion.text_tables import Rows, Wanted

Array = npt.NDArray[Any]


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns.

    Raises:
        InputError: pyarrow is not installed, or the file is damaged.
    """
    with _opened(path) as file:
        return list(file.schema_arrow.names)


def count(path: Path) -> int:
    """Return the number of rows."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def width(path: Path, column: str) -> int | None:
    """Return how many numbers the first list in a column has; None: it holds no lists."""
    import pyarrow as pa

    with _opened(path) as file:
        kind = file.schema_arrow.field(column).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return None
        first = next(file.iter_batches(1, columns=[column]), None)
        return len(first[0][0].as_py() or ()) if first is not None and len(first) else 0


def parquet_rows(path: Path, wanted: Sequence[Wanted], most: int) -> Iterator[Rows]:
    """Yield the rows of a table in Parquet; see `gistgnn.graphs.conversion.text_tables.text_rows`.

    Raises:
        InputError: a value is missing, or a column has another type; the message has the row.
    """
    names = list(dict.fromkeys(name for one in wanted for name in one.columns))
    start = 0
    with _opened(path) as file:
        for batch in file.iter_batches(most, columns=names):
            columns = {one.name: _array(path, start, batch, one) for one in wanted}
            yield Rows(columns, lambda row, start=start: f"{path}, row {start + row + 1}")
            start += len(batch)


def _array(path: Path, start: int, batch: Any, one: Wanted) -> Array:
    if one.flat or len(one.columns) > 1:
        parts = [_numbers(path, start, name, batch.column(name), one) for name in one.columns]
        return parts[0] if one.flat else np.stack(parts, axis=1)
    (name,) = one.columns
    column = batch.column(name)
    _require_all(path, start, name, column)
    if not hasattr(column, "flatten"):
        return _numbers(path, start, name, column, one)[:, None]
    sizes = column.value_lengths().to_numpy()
    if len(sizes) and (sizes != sizes[0]).any():
        row = int((sizes != sizes[0]).argmax())
        raise InputError(f"{path}, row {start + row + 1}: {name} has {sizes[row]} numbers; expected {sizes[0]}")
    flat = _numbers(path, start, name, column.flatten(), one)
    return flat.reshape(len(batch), -1)


def _numbers(path: Path, start: int, name: str, column: Any, one: Wanted) -> Array:
    """Return a column of numbers, or of texts, whose missing values are empty."""
    import pyarrow as pa

    kind = column.type
    if one.dtype is str:
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise InputError(f"{path}: the column {name} is {kind}; expected texts")
        return np.array([text or "" for text in column.to_pylist()], str)
    _require_all(path, start, name, column)
    whole = np.dtype(one.dtype).kind == "i"
    if not (pa.types.is_integer(kind) or (not whole and pa.types.is_floating(kind))):
        raise InputError(f"{path}: the column {name} is {kind}; expected {'integers' if whole else 'numbers'}")
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _require_all(path: Path, start: int, name: str, column: Any) -> None:
    if column.null_count:
        row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise InputError(f"{path}, row {start + row + 1}: {name} is missing; expected a number")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"{path}: pyarrow is not installed; run: pip install 'gistgnn[parquet]'") from error
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (GistError, MemoryError, GeneratorExit):
        raise
    except Exception as error:  # pyarrow has errors of its own for damaged files
        raise InputError(f"{path}: is damaged, or no Parquet file ({reason(error)})") from error
