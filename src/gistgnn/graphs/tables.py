"""Tables in CSV and Parquet: DuckDB reads them, and sorts edges that do not fit in memory."""

import contextlib
import csv
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable, reason
from gistgnn.utils.limits import usable_cpus

_PARQUET = ".parquet"
SUFFIXES = (".csv", ".csv.gz", _PARQUET)
_DIALECT = "delim=',', quote='\"', escape='\"'"
_BLOCK = 2**24  # bytes of numbers that are read at once
_PER_THREAD = 2**27  # bytes for each thread of DuckDB, which fails with much less
_KEY_BYTES = 40  # bytes of memory for each edge of a range of targets
_BINS = 2**14  # ranges of targets whose edges are counted

_ENDS = ("source", "target")
_OURS = "gistgnn: "  # begins the errors that our own SQL raises
# A column without a name has the name "".
_INDEX = re.compile(r"(unnamed: \d.*|__index_level_\d+__)?", re.IGNORECASE)
_NUMBER = re.compile(
    r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)(\[\d*\])?"
)
_TEXT = re.compile(r"VARCHAR|ENUM\(.*\)")


@contextlib.contextmanager
def database(folder: Path | None = None, memory: int | None = None) -> Iterator[Any]:
    """Open a database in memory, whose errors become one line.

    It takes ``memory`` bytes, and puts what it has no room for into ``folder``.
    """
    try:
        import duckdb
        import pyarrow  # noqa: F401  (results come as Arrow's tables)
    except ImportError as error:
        advice = "run: pip install 'gistgnn[convert]'"
        raise InputError(
            f"{error.name} is not installed, which reads and sorts tables; {advice}"
        ) from error
    config: dict[str, Any] = {"temp_directory": str(folder / "sorting") if folder else ""}
    if memory is not None:
        config |= {"memory_limit": f"{memory >> 10}KiB"}
        config |= {"threads": max(1, min(usable_cpus(), memory // _PER_THREAD))}
    connection = duckdb.connect(":memory:", config=config)
    try:
        connection.execute("SET enable_progress_bar = false")  # it would be on standard output
        yield connection
    except (
        duckdb.BinderException,
        duckdb.ParserException,
        duckdb.CatalogException,
        duckdb.InternalException,
    ):
        # Faults of our own SQL, which no user can mend.
        raise
    except (duckdb.Error, OSError) as error:
        # An error of the system has a number. Arrow's reader raises others for DuckDB's errors.
        if getattr(error, "errno", None) is not None:
            raise
        raise InputError(_message_of(str(error))) from error
    finally:
        connection.close()


def is_table(path: Path) -> bool:
    """Whether the name of a file is that of a table."""
    return path.name.lower().endswith(SUFFIXES)


def table_files(path: Path) -> list[Path]:
    """Return the files of a table: the path itself, or the tables in a folder.

    They are sorted by the numbers in their names: part_2 comes before part_10.
    """
    files = [path]
    if path.is_dir():
        files = [
            file for file in path.iterdir() if is_table(file) and not file.name.startswith(".")
        ]
        files.sort(key=lambda file: (_natural(file.name), file.name))
    if not files or not is_table(files[0]):
        raise InputError(
            f"{path}: expected a table in a {', '.join(SUFFIXES)} file, or a folder of them"
        )
    for file in files:
        if not file.is_file():
            raise InputError(
                f"{file}: {'expected a regular file' if file.exists() else 'no such file'}"
            )
        if _is_parquet(file) != _is_parquet(files[0]):
            raise InputError(
                f"{path}: holds CSV and Parquet, such as {files[0].name} and {file.name}; expected "
                "one"
            )
    return files


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts names by the numbers in them.

    It has pairs of the text before a number, and the number.
    """
    pieces = re.split(r"([0-9]+)", name.lower())
    return [
        (text, int(number)) for text, number in zip(pieces[::2], [*pieces[1::2], "0"], strict=True)
    ]


def _is_parquet(file: Path) -> bool:
    return file.name.lower().endswith(_PARQUET)


@dataclass(frozen=True)
class Table:
    """The columns of a table in files, known by their places: names may be any texts.

    Attributes:
        path: the file or the folder, as the user has given it.
        names: the name of each column, as the files have it.
        kinds: the type of each column in SQL; text files have texts.
        rows: SQL for all rows in their order; the columns are c0, c1, ...
    """

    path: Path
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: str

    @classmethod
    def read(
        cls, connection: Any, path: Path, *, header: bool = True, kind: str = "VARCHAR"
    ) -> "Table":
        """Read the names and types of the columns.

        ``kind`` is the type of all columns of text files.
        """
        files = table_files(path)
        names, *further_names = (_names_of(file, header) for file in files)
        for file, columns in zip(files[1:], further_names, strict=True):
            if columns != names:
                raise InputError(f"{file}: its columns are not those of {files[0]}")
        # DuckDB reads all files that fit a pattern: brackets around *, ? and [ make them plain
        # characters.
        listed = ", ".join(quoted(re.sub(r"[*?\[]", r"[\g<0>]", str(file))) for file in files)
        places = [f"c{place}" for place in range(len(names))]
        if _is_parquet(files[0]):
            # By names, as otherwise the types of the first file are those of all: 1.5 would become
            # 2.
            rows = (
                f"read_parquet([{listed}], union_by_name=true) AS "
                f"columns_by_place({', '.join(places)})"
            )
            kinds = [row[1] for row in connection.sql(f"DESCRIBE SELECT * FROM {rows}").fetchall()]
        else:
            types = ", ".join(f"'{place}': '{kind}'" for place in places)
            rows = (
                f"read_csv([{listed}], header={header}, {_DIALECT}, auto_detect=false, "
                f"columns={{{types}}})"
            )
            kinds = [kind] * len(names)
        return cls(path, tuple(names), tuple(kinds), rows)

    def check_names(self) -> None:
        """Refuse two columns of the same name.

        Those without a name are told apart by their places.
        """
        for place, name in enumerate(self.names):
            first = self.names.index(name)
            if first < place and not self.is_index(place):
                fault = (
                    f"columns {first + 1} and {place + 1} are both called {printable(name)[:80]!r}"
                )
                raise InputError(f"{self.path}: {fault}: rename one")

    def is_index(self, place: int) -> bool:
        """Whether a column has no name of its own.

        The index of a table that pandas has written has none.
        """
        return _INDEX.fullmatch(self.names[place]) is not None

    def title(self, place: int) -> str:
        """Return what a message calls a column."""
        name = printable(self.names[place])[:80]
        return f"the column {name}" if name else f"column {place + 1}, which has no name,"

    def is_text(self, place: int) -> bool:
        return _TEXT.fullmatch(self.kinds[place]) is not None

    def is_number(self, place: int) -> bool:
        return _NUMBER.fullmatch(self.kinds[place]) is not None

    def text(self, place: int) -> str:
        """Return SQL for the cells of a column as texts without spaces around them.

        A missing cell is ''.
        """
        return f"coalesce(trim(c{place}::VARCHAR), '')"

    def number(self, place: int) -> str:
        """Return SQL for the cells of a column as numbers, or lists of numbers.

        It is NULL where there is none.
        """
        column = f"c{place}"
        if self.is_text(place):
            value = f"TRY_CAST({column}::VARCHAR AS DOUBLE)"
            truth = (
                f"CASE lower(trim({column}::VARCHAR)) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
            )
            return f"CASE WHEN {value} IS NULL THEN {truth} ELSE {value} END"
        if self.kinds[place] == "FLOAT" or self.kinds[place].endswith("]"):
            return column
        return f"{column}::DOUBLE"

    def identity(self, place: int) -> str:
        """Return SQL for ids as texts that are equal where the ids are: 5, 5.0 and "5" are one."""
        if self.kinds[place] in ("FLOAT", "DOUBLE"):
            column = f"c{place}"
            is_whole = f"{column} = floor({column}) AND abs({column}) < 9e18"
            return (
                f"CASE WHEN {is_whole} THEN {column}::BIGINT::VARCHAR ELSE {self.text(place)} END"
            )
        # Numbers with decimals are those of pandas, with e+ those of R.
        text = self.text(place)
        plain = rf"regexp_replace({text}, '^([+-]?\d+)\.0*$', '\1')"
        return (
            rf"CASE WHEN regexp_full_match({text}, '\d(\.\d+)?e\+\d\d') "
            rf"THEN TRY_CAST({text} AS HUGEINT)::VARCHAR ELSE {plain} END"
        )


def block_rows(columns: int) -> int:
    """Return how many rows of so many numbers are read at once."""
    return max(_BLOCK // (8 * columns), 1)


def quoted(text: str) -> str:
    """Return a text as SQL quotes it."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _names_of(file: Path, header: bool) -> list[str]:
    if _is_parquet(file):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return [name.strip() for name in pq.read_schema(file).names]
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{file}: is damaged, or no Parquet ({reason(error)})") from error
    opener: Any = gzip.open if file.suffix.lower() == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as opened:
            names = [name.strip() for name in next(csv.reader(opened), [])]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{file}: cannot be read ({reason(error)}); expected a CSV in UTF-8"
        ) from error
    if not header:
        return [f"column {place + 1}" for place in range(len(names))]
    if not any(names):
        raise InputError(f"{file}: there is no line with the names of the columns")
    for place, name in enumerate(names):
        if "\n" in name or "\r" in name:
            raise InputError(
                f"{file}: the name of column {place + 1}, {printable(name)[:80]}, has a line "
                "break: rename it"
            )
    for mark, title in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and mark in names[0]:
            raise InputError(f"{file}: the columns are separated by {title}; expected commas")
    return names


def _message_of(text: str) -> str:
    """Return what an error of DuckDB means, on one line, with the file and line of a CSV error."""
    if _OURS in text:
        return printable(text.split(_OURS, 1)[1])
    file = re.search(r"^  file = (.+)$", text, re.M)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    where = "the table"
    if file := file or re.search(r'[Ff]ile "(.+?)"', text):
        where = f"{file[1]}, line {line[1]}" if line else file[1]
    cells = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    value = re.search(r"Could not convert string \"(.*)\" to", text, re.DOTALL)
    if cells:
        meaning = f"{cells[2]} values; expected {cells[1]}, one for each column"
    elif value:
        meaning = f"{value[1][:80]!r}; expected a number"
    elif "unicode" in text.lower():
        meaning = "holds bytes that are no UTF-8: save the table as UTF-8"
    elif "unterminated quote" in text:
        meaning = "a quote is not closed, or not doubled within quotes"
    elif file and "invalid state" in text:
        alike = f"make them alike, such as by: sed -i 's/\\r$//' {file[1]}"
        meaning = f"some lines end in LF and others in CR LF, or a quote is not doubled; {alike}"
    elif "maximum_line_size" in text.lower() or "maximum line size" in text.lower():
        meaning = "is longer than 2 MB: a quote may not be closed"
    elif "memory" in text.lower():
        return (
            "sorting the tables takes more memory than it may: give more --memory, or make room "
            "on the disk"
        )
    else:
        meaning = "cannot be read: it is damaged, or no table"
    return printable(f"{where}: {meaning}")


def sorted_keys(
    connection: Any, edges: str, nodes: int, undirected: bool, folder: Path, memory: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the keys of distinct edges in ascending order.

    A key has the target's number above the source's, 32 bits each. One range of targets is sorted
    after the other.

    Args:
        connection: to the database.
        edges: SQL for all edges, with the columns source and target.
        nodes: N.
        undirected: add the reverse of every edge.
        folder: gets a file of all edges.
        memory: bytes that sorting a range may take.
    """
    connection.execute("SET preserve_insertion_order = false")
    file = quoted(str(folder / "edges.parquet"))
    connection.execute(
        f"COPY ({_checked(edges, nodes)}) TO {file} (FORMAT parquet, COMPRESSION uncompressed)"
    )
    stored = f"SELECT source, target FROM read_parquet({file})"
    if undirected:
        stored += f" UNION ALL SELECT target, source FROM read_parquet({file})"
    width = -(-nodes // _BINS)
    counted = connection.sql(
        f"SELECT target // {width}, count(*) FROM ({stored}) GROUP BY 1 ORDER BY 1"
    ).fetchall()
    bins, counts = np.array(counted, np.int64).reshape(-1, 2).T
    while len(bins):
        # How many bins the next range of targets has.
        count = max(int(np.searchsorted(counts.cumsum(), memory // _KEY_BYTES, side="right")), 1)
        in_range = f"target BETWEEN {bins[0] * width} AND {bins[count - 1] * width + width - 1}"
        key = "(target::BIGINT << 32) | source::BIGINT AS key"
        query = f"SELECT {key} FROM ({stored}) WHERE {in_range}"
        keys = np.asarray(connection.sql(query).fetchnumpy()["key"])
        keys.sort()
        new = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        yield keys if new.all() else keys[new]
        bins = bins[count:]
        counts = counts[count:]


def refusal(expected: str) -> str:
    """Return SQL that ends with an error, which names an edge by its columns source and target."""
    ends = " || ' to ' || ".join(
        f"coalesce(nullif(trim({end}::VARCHAR), ''), 'nothing')" for end in _ENDS
    )
    return f"error('{_OURS}an edge goes from ' || {ends} || {expected})"


def _checked(edges: str, nodes: int) -> str:
    """Return SQL for edges as int32, which ends with an error at an edge of no nodes."""
    numbers = ", ".join(f"TRY_CAST({end} AS DOUBLE) AS {end}_number" for end in _ENDS)
    valid = " AND ".join(
        f"{end}_number BETWEEN 0 AND {nodes - 1} AND {end}_number = floor({end}_number)"
        for end in _ENDS
    )
    problem = refusal(f"'; expected node numbers from 0 to {nodes - 1}'")
    source = f"CASE WHEN {valid} THEN source_number::INTEGER ELSE {problem} END"
    return (
        f"SELECT {source} AS source, target_number::INTEGER AS target "
        f"FROM (SELECT *, {numbers} FROM ({edges}))"
    )
