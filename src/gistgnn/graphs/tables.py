"""Tables in CSV and Parquet: DuckDB reads them, and sorts edges that do not fit in memory."""

import contextlib
import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable, reason
from gistgnn.graphs.checks import class_numbers
from gistgnn.graphs.folder import ArrayEntry, ArrayWriter
from gistgnn.graphs.graph import SPLITS
from gistgnn.utils.checks import LONGEST_NAME
from gistgnn.utils.limits import usable_cpus
from gistgnn.utils.tensors import Array

_PARQUET = ".parquet"
SUFFIXES = (".csv", ".csv.gz", _PARQUET)
_DIALECT = "delim=',', quote='\"', escape='\"'"
_BLOCK = 2**24  # bytes of numbers that are read at once
_PER_THREAD = 2**27  # bytes; DuckDB fails with much less
_KEY_BYTES = 40  # of memory, for each edge of a range of targets
_BINS = 2**14  # of targets, whose edges are counted

_ENDS = ("source", "target")
_FROM_TO = "'an edge goes from ' || " + " || ' to ' || ".join(f"coalesce({end}::VARCHAR, 'nothing')" for end in _ENDS)
_NODE, _SPLIT = "node", "split"
_IDS = "ids.parquet"  # the id and the number of every node, until the edges are read
_SEVERAL = re.compile(r"y\d+")
_NUMBER = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN)(\[\d*\])?")


@contextlib.contextmanager
def database(folder: Path | None = None, memory: int | None = None) -> Iterator[Any]:
    """Open a database in memory with ``memory`` bytes, the rest in ``folder``; its errors become one line."""
    try:
        import duckdb
        import pyarrow  # noqa: F401  (results come as Arrow's tables)
    except ImportError as error:
        advice = "run: pip install 'gistgnn[convert]'"
        raise InputError(f"{error.name} is not installed, which reads and sorts tables; {advice}") from error
    config: dict[str, Any] = {"temp_directory": str(folder / "sorting") if folder else ""}
    if memory is not None:
        config |= {"memory_limit": f"{memory >> 10}KiB"}
        config |= {"threads": max(1, min(usable_cpus(), memory // _PER_THREAD))}
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
    return files


def columns_of(connection: Any, files: list[Path], *, header: bool = True) -> dict[str, str]:
    """Return the names of a table's columns, and their types; text has none, which is ""."""
    first, *others = (_columns_of(connection, file, header) for file in files)
    for file, columns in zip(files[1:], others, strict=True):
        if list(columns) != list(first):
            raise InputError(f"{file}: its columns are not those of {files[0]}")
    return first


def table(files: list[Path], types: dict[str, str], *, header: bool = True) -> str:
    """Return SQL for all rows of the files of a table; ``types`` are those of a text file's columns, in order."""
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


def _columns_of(connection: Any, file: Path, header: bool) -> dict[str, str]:
    if file.name.lower().endswith(_PARQUET):
        rows = connection.sql(f"DESCRIBE SELECT * FROM read_parquet({quoted(str(file))})").fetchall()
        return {row[0].strip(): row[1] for row in rows}
    opener: Any = gzip.open if file.suffix.lower() == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig") as opened:
            names = [name.strip() for name in next(csv.reader([opened.readline()]), [])]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: cannot be read ({reason(error)})") from error
    if not header:
        return {f"column{k}": "" for k in range(len(names))}
    if not any(names):
        raise InputError(f"{file}: there is no line with the names of the columns")
    return dict.fromkeys(names, "")


def _said(text: str) -> str:
    """Return DuckDB's message on one line, with the file and line of a CSV error, and without its advice."""
    file, line = re.search(r"^  file = (.+)$", text, re.M), re.search(r"CSV Error on Line: (\d+)", text)
    text = re.sub(r"^[A-Z][\w -]* Error: ", "", text)
    if file and "invalid state" in text:
        alike = f"make them alike, such as by: sed -i 's/\\r$//' {file[1]}"
        return printable(f"{file[1]}: some lines end in LF and others in CR LF, or a quote is not doubled; {alike}")
    if not file or not line:
        return printable(" ".join(text.split("\n\n")[0].split()))
    what = re.search(r'Error when converting column "(.*)"\. (.*)', text)
    said = f"{what[1]}: {what[2]}" if what else " ".join(text.split("\n")[2:3])
    feature = what and what[1] not in (*_ENDS, _NODE, _SPLIT, "y")
    hint = f"; features are numbers, and a column of ids has to be called {_NODE}" if feature else ""
    return printable(f"{file[1]}, line {line[1]}: {said}{hint}")


def sorted_keys(
    connection: Any, edges: str, nodes: int, undirected: bool, folder: Path, memory: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the keys of distinct edges in ascending order: the target's number above the source's, 32 bits each."""
    # `edges` is SQL with the columns source and target. One range of targets is sorted after the other, within `memory`
    # bytes; `undirected` adds the reverse of every edge. `folder` gets a file of all edges.
    connection.execute("SET preserve_insertion_order = false")
    file = quoted(str(folder / "edges.parquet"))
    connection.execute(f"COPY ({_checked(edges, nodes)}) TO {file} (FORMAT parquet, COMPRESSION uncompressed)")
    stored = f"SELECT source, target FROM read_parquet({file})"
    if undirected:
        stored += f" UNION ALL SELECT target, source FROM read_parquet({file})"
    width = -(-nodes // _BINS)
    counted = connection.sql(f"SELECT target // {width}, count(*) FROM ({stored}) GROUP BY 1 ORDER BY 1").fetchall()
    bins, counts = np.array(counted, np.int64).reshape(-1, 2).T
    while len(bins):
        count = max(int(np.searchsorted(counts.cumsum(), memory // _KEY_BYTES, side="right")), 1)  # bins of this range
        wanted = f"target BETWEEN {bins[0] * width} AND {bins[count - 1] * width + width - 1}"
        query = f"SELECT (target::BIGINT << 32) | source::BIGINT AS key FROM ({stored}) WHERE {wanted}"
        keys = np.asarray(connection.sql(query).fetchnumpy()["key"])
        keys.sort()
        new = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        yield keys if new.all() else keys[new]
        bins, counts = bins[count:], counts[count:]


def _checked(edges: str, nodes: int) -> str:
    """Return SQL for edges as int32, which ends with an error at an edge of no nodes."""
    valid = " AND ".join(f"{end} BETWEEN 0 AND {nodes - 1} AND {end} = floor({end})" for end in _ENDS)
    problem = f"{_FROM_TO} || '; expected node numbers from 0 to {nodes - 1}'"
    source = f"CASE WHEN {valid} THEN source::INTEGER ELSE error({problem}) END"
    return f"SELECT {source} AS source, target::INTEGER AS target FROM ({edges})"


class TablesSource:
    """A table of edges with the columns `source` and `target`, and a table of nodes: CSV or Parquet files, or folders.

    The table of nodes has a row for each node, with the columns `y` (or `y0`, `y1`, ... for several labels), `split`
    (train, val, test or empty) and optionally `node`, the id that edges name it by; otherwise that is the row's number.
    All others are features. In Parquet, `x` and `y` may be columns of lists.
    """

    classes, undirected = None, False
    has_ids = False  # known after `node_blocks`: whether a node's id is another than its number

    def __init__(self, edges: Path, nodes: Path) -> None:
        self.name, self.edges_in, self.nodes_in = printable(edges.name.partition(".")[0]), str(edges), str(nodes)
        self._edges, self._nodes = table_files(edges), table_files(nodes)
        with database() as connection:
            self._edge_types = columns_of(connection, self._edges)
            if set(self._edge_types) != set(_ENDS):
                found = ", ".join(self._edge_types)
                hint = "expected source and target alone (edge data comes from a .npz or .pt)"
                raise InputError(f"{edges}: the columns are {found}; {hint}")
            types = columns_of(connection, self._nodes)
            self._classes = _class_numbers(connection, self._nodes, types)
        self._y = ["y"] if "y" in types else [name for name in types if _SEVERAL.fullmatch(name)]
        if not self._y or _SPLIT not in types:
            others = sorted(types.keys() - {"y", _SPLIT, _NODE}, key=lambda name: (name[-1:].isdigit(), name))
            expected = f"expected y, split, and features: rename the one of {', '.join(others[:10])} that has it"
            raise InputError(f"{nodes}: there is no column {_SPLIT if self._y else 'y'}; {expected}")
        self._x = [name for name in types if name not in (*self._y, _SPLIT, _NODE)]
        if not self._x:
            raise InputError(f"{nodes}: there are no features; expected more columns than y and split")
        self.class_names, texts = tuple(self._classes), (_SPLIT, _NODE, "y") if self._classes else (_SPLIT, _NODE)
        self._types = _numbers(nodes, types, [name for name in types if name not in texts])

    def node_blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        start = 0
        with database() as connection:
            names = {name: quoted(name, '"') for name in self._types}
            if _NODE in names:
                names[_NODE] = f"TRY_CAST(trim({_NODE}::VARCHAR) AS DOUBLE) AS {_NODE}"
            query = f"SELECT {', '.join(names.values())} FROM {table(self._nodes, self._types)}"
            for batch in connection.sql(query).to_arrow_reader(block_rows(len(self._x))):
                if _NODE in self._types:
                    numbers = batch.column(_NODE).to_numpy(zero_copy_only=False)
                    self.has_ids |= bool((numbers != np.arange(start, start + len(numbers))).any())
                x, y = _matrix(batch, self._x, start), self._labels(batch, start)
                yield x, y[:, 0] if y.shape[1] == 1 else y.astype(np.float32), _splits(batch.column(_SPLIT), start)
                start += len(x)

    def _labels(self, batch: Any, start: int) -> Array:
        if not self._classes:
            return _matrix(batch, self._y, start)
        return np.array([[self._classes.get((text or "").strip(), -1)] for text in batch.column("y").to_pylist()])

    def write_ids(self, folder: Path, memory: int) -> ArrayEntry:
        """Write the nodes' ids, for the graph and for `edges`."""
        with database(folder, memory) as connection:
            file, rows = quoted(str(folder / _IDS)), table(self._nodes, self._types)
            numbered = f"SELECT trim({_NODE}::VARCHAR) AS id, row_number() OVER () - 1 AS number FROM {rows}"
            connection.execute(f"COPY ({numbered}) TO {file} (FORMAT parquet)")
            known = f"SELECT coalesce(id, '') AS name FROM {file}"
            twice = f"SELECT name FROM ({known}) GROUP BY name HAVING count(*) > 1 OR name = '' LIMIT 1"
            for (text,) in connection.sql(twice).fetchall():
                what = f"node {printable(text)[:80]!r} is in two rows" if text else "a node has no id"
                raise InputError(f"{what}; expected a row for each node, with an id of its own in the column {_NODE}")
            if (width := connection.sql(f"SELECT max(strlen(id)) FROM {file}").fetchall()[0][0]) > LONGEST_NAME:
                raise InputError(f"the id of a node has {width} bytes; expected at most {LONGEST_NAME}")
            writer = ArrayWriter(folder, "id", np.uint8, (width,))
            for batch in connection.sql(f"SELECT id FROM {file} ORDER BY number").to_arrow_reader(block_rows(width)):
                ids = np.array([text.encode() for text in batch.column("id").to_pylist()], f"S{width}")
                writer.append(ids.view(np.uint8).reshape(-1, width))
            return writer.finish()

    def edges(self, connection: Any, folder: Path) -> str:
        if not self.has_ids:
            types = _numbers(Path(self.edges_in), self._edge_types, _ENDS)
            return f"SELECT source, target FROM {table(self._edges, types)}"
        file, rows = quoted(str(folder / _IDS)), table(self._edges, self._edge_types)
        problem = f"error({_FROM_TO} || '; expected ids of the column {_NODE}')"
        found = (f"CASE WHEN {end}s.number IS NULL THEN {problem} ELSE {end}s.number END AS {end}" for end in _ENDS)
        joins = (f"LEFT JOIN {file} AS {end}s ON trim({end}::VARCHAR) = {end}s.id" for end in _ENDS)
        return f"SELECT {', '.join(found)} FROM {rows} {' '.join(joins)}"


def _class_numbers(connection: Any, files: list[Path], types: dict[str, str]) -> dict[str, int]:
    """Return the numbers of the classes that the column y names; none, if its first label is a number."""
    kind, rows = types.get("y"), table(files, types)
    first = f"SELECT TRY_CAST(trim(y) AS DOUBLE) FROM {rows} WHERE trim(y) NOT IN ('', '-1') LIMIT 1"
    if kind not in ("", "VARCHAR") or connection.sql(first).fetchall() != [(None,)]:
        return {}
    distinct = connection.sql(f"SELECT DISTINCT y FROM {rows} WHERE y IS NOT NULL").fetchall()
    return class_numbers(text.strip() for (text,) in distinct)


def _numbers(path: Path, types: dict[str, str], names: Any) -> dict[str, str]:
    """Return how columns are read: numbers in text as DOUBLE. Refuse other types in Parquet."""
    for name in names:
        kind = types.get(name, "BIGINT")
        if kind and (not _NUMBER.fullmatch(kind) or (name in _ENDS and "INT" not in kind)):
            expected = "integers" if name in _ENDS else "numbers"
            raise InputError(f"{path}: the column {name} is {kind}; expected {expected}")
    return {name: kind or ("DOUBLE" if name in names else "") for name, kind in types.items()}


def _matrix(batch: Any, names: list[str], start: int) -> Array:
    """Return columns of numbers, or a column of lists, side by side: [n, k]."""
    columns = []
    for name in names:
        column = batch.column(name)
        flat = column.flatten() if hasattr(column, "flatten") else column
        if column.null_count or flat.null_count:
            row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
            raise InputError(f"{name} of node {start + row} is missing; expected a number")
        if hasattr(column, "offsets") and len(np.unique(np.diff(column.offsets))) > 1:
            raise InputError(f"{name} has lists of different lengths from node {start} on")
        columns.append(flat.to_numpy(zero_copy_only=False).reshape(len(column), -1))
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _splits(column: Any, start: int) -> npt.NDArray[np.uint8]:
    known = {**SPLITS, "": 0}
    texts = [(text or "").strip() for text in column.to_pylist()]
    for row, text in enumerate(texts):
        if text not in known:
            said = repr(printable(text)[:80])
            raise InputError(f"split of node {start + row} is {said}; expected train, val, test or nothing")
    return np.array([known[text] for text in texts], np.uint8)
