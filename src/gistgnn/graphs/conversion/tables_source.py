"""A graph in two tables, of edges and of nodes: what their columns mean, and what they may hold."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError, printable
from gistgnn.graphs.checks import MISSING, class_numbers, is_missing, naming, note_missing_labels
from gistgnn.graphs.folder import ArrayEntry, ArrayWriter
from gistgnn.graphs.graph import SPLITS
from gistgnn.graphs.tables import Table, block_rows, database, quoted, refusal
from gistgnn.utils.checks import LONGEST_NAME
from gistgnn.utils.tensors import Array

log = logging.getLogger(__name__)

_ENDS = ("source", "target")
_NODE = "node"
_SPLIT = "split"
_LABEL = "y"
_RESERVED = (_NODE, _SPLIT, _LABEL)
_IDS = "ids.parquet"  # the id and the number of every node, until the edges are read
_SEVERAL = re.compile(r"y\d+")
_ID_NAME = re.compile(r"(?i:(.*[_ .-])?(id|idx|index|uid|uuid))|.*[a-z](Id|ID)")
# A label that is a number. "1_0" is a text.
_DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
# No list of words, as DuckDB makes a join of it, and rows leave a join in any order.
_IS_MISSING = (
    f"regexp_full_match({{}}, {quoted('|'.join(re.escape(word) for word in sorted(MISSING)))})"
)


class TablesSource:
    """A table of edges and a table of nodes: CSV or Parquet files, or folders of them.

    The table of edges has the columns `source` and `target`. The table of nodes has a row for each
    node, with the columns `y` (or `y0`, `y1`, ... for several labels), `split` (train, val, test or
    empty) and optionally `node`, the id that edges name it by; otherwise that is the row's number.
    All others are features. In Parquet, `x` and `y` may be columns of lists. A column without a
    name that numbers the rows, as pandas writes its index, is left out.
    """

    classes = None
    undirected = False
    has_ids = False  # known after `node_blocks`: whether a node's id is another than its number

    def __init__(self, edges: Path, nodes: Path) -> None:
        self.name = printable(edges.name.partition(".")[0])
        self.edges_in = str(edges)
        self.nodes_in = str(nodes)
        with database() as connection:
            self._edges = Table.read(connection, edges)
            self._ends = self._places_of_ends()
            self._nodes = Table.read(connection, nodes)
            self._nodes.check_names()
            self._place = {
                name: place for place, name in enumerate(self._nodes.names) if name in _RESERVED
            }
            self._y = self._label_places()
            self._require_columns()
            with naming(self.nodes_in):
                unnamed = [
                    place for place in range(len(self._nodes.names)) if self._nodes.is_index(place)
                ]
                for place in unnamed:
                    self._check_index(connection, place)
            used = {*self._y, *self._place.values(), *unnamed}
            self._x = [place for place in range(len(self._nodes.names)) if place not in used]
            if not self._x:
                raise InputError(
                    f"{nodes}: there are no features; expected more columns than y and split"
                )
            self._check_features()
            with naming(self.nodes_in):
                self._classes = self._class_numbers(connection)
        self.class_names = tuple(self._classes)

    @property
    def feature_names(self) -> list[str]:
        """What messages call the columns of x; none, if a column holds lists."""
        if any(self._nodes.kinds[place].endswith("]") for place in self._x):
            return []
        return [self._nodes.title(place) for place in self._x]

    def _places_of_ends(self) -> tuple[int, int]:
        """Return the places of source and target among the columns of the table of edges."""
        table = self._edges
        table.check_names()
        columns = [place for place in range(len(table.names)) if not table.is_index(place)]
        names = [table.names[place] for place in columns]
        if set(names) != set(_ENDS):
            hint = "expected source and target alone (edge data comes from a .npz or .pt)"
            raise InputError(f"{table.path}: the columns are {printable(', '.join(names))}; {hint}")
        for place in columns:
            if not (table.is_text(place) or table.is_number(place)):
                raise InputError(
                    f"{table.path}: {table.title(place)} is {table.kinds[place]}; expected ids"
                )
        if len(columns) < len(table.names):
            unnamed = set(range(len(table.names))) - set(columns)
            titles = ", ".join(table.title(place) for place in sorted(unnamed))
            log.warning(
                "%s: %s is left out (pandas writes such a column without index=False)",
                table.path,
                titles,
            )
        source, target = (table.names.index(end) for end in _ENDS)
        return source, target

    def _label_places(self) -> list[int]:
        """Return the places of the columns of labels: of y, or else of y0, y1, ..."""
        if _LABEL in self._place:
            return [self._place[_LABEL]]
        names = self._nodes.names
        return [place for place, name in enumerate(names) if _SEVERAL.fullmatch(name)]

    def _require_columns(self) -> None:
        """Refuse a table of nodes without labels or a split, and say how to give them."""
        if not self._y:
            missing = _LABEL
            ways = ["add a column y with the label of every node"]
        elif _SPLIT not in self._place:
            missing = _SPLIT
            ways = ["add a column split with train, val, test or nothing for every node"]
        else:
            return
        table = self._nodes
        names = {name for place, name in enumerate(table.names) if not table.is_index(place)}
        names -= {*_RESERVED, *(table.names[place] for place in self._y)}
        # Names that end in a digit, such as f0, are most often features, so they come last.
        candidates = sorted(names, key=lambda name: (name[-1:].isdigit(), name))
        if candidates:
            ways.insert(0, f"rename the one of {printable(', '.join(candidates[:10]))} that has it")
        raise InputError(
            f"{table.path}: there is no column {missing}; expected y, split, and features: "
            f"{', or '.join(ways)}"
        )

    def _check_index(self, connection: Any, place: int) -> None:
        """Leave a column without a name out, with a note.

        It is refused where it may be the ids, or features.
        """
        table = self._nodes
        title = table.title(place)
        numbers = (
            f"SELECT {table.number(place)} AS number, {table.text(place)} AS text, "
            "row_number() OVER () AS row"
        )
        facts = (
            "count(*), count(*) FILTER (text <> ''), count(*) FILTER (number >= 0 AND number = "
            "floor(number)), "
            "count(*) FILTER (number = row - 1), count(DISTINCT number)"
        )
        rows, cells, nonnegative, in_order, distinct = connection.sql(
            f"SELECT {facts} FROM ({numbers} FROM {table.rows})"
        ).fetchall()[0]
        remark = "pandas writes it without index=False"
        if cells and nonnegative < rows:
            advice = (
                f"call it {_NODE} if it has the nodes' ids, give it a name if it is a "
                "feature, "
                "or leave it out"
            )
            raise InputError(f"{title} does not number the rows; {advice} ({remark})")
        if cells and in_order < rows and distinct == rows and _NODE not in self._place:
            advice = f"call it {_NODE} if edges name nodes by it; otherwise leave it out"
            raise InputError(
                f"{title} has other numbers than those of the rows, from 0 on; {advice} ({remark})"
            )
        log.warning(
            "%s: %s is left out (%s)", self.nodes_in, title, remark if cells else "it is empty"
        )

    def _check_features(self) -> None:
        """Refuse types that are no numbers, and note features that may be ids."""
        table = self._nodes
        for place in [*self._x, *self._y]:
            if not (table.is_number(place) or (table.is_text(place))):
                kind = table.kinds[place]
                raise InputError(f"{table.path}: {table.title(place)} is {kind}; expected numbers")
        for place in self._x:
            name = table.names[place]
            reserved = name.lower() in _RESERVED
            if reserved or _ID_NAME.fullmatch(name):
                other = f"the nodes' ids are in a column {_NODE}"
                meaning = (
                    f"the {name.lower()} of a node is in a column {name.lower()}"
                    if reserved
                    else other
                )
                log.warning(
                    "%s: %s is trained on as a feature: %s", table.path, table.title(place), meaning
                )

    def _class_numbers(self, connection: Any) -> dict[str, int]:
        """Return the numbers of the classes that the column y names.

        There are none if all its labels are numbers.
        """
        table = self._nodes
        if _LABEL not in self._place or not table.is_text(self._y[0]):
            return {}
        label = table.text(self._y[0])
        query = f"SELECT label, count(*) FROM (SELECT {label} AS label FROM {table.rows}) WHERE "
        number = f"regexp_full_match(label, {quoted(_DECIMAL)})"
        missing = _IS_MISSING.format("label")
        # Numbers are left to the checks of labels: there may be as many as nodes.
        has_texts = connection.sql(
            f"{query} NOT {number} AND NOT {missing} GROUP BY 1 LIMIT 1"
        ).fetchall()
        if not has_texts:
            counts = connection.sql(f"{query} {missing} GROUP BY 1").fetchall()
            note_missing_labels(dict(counts))
            return {}
        counts = dict(connection.sql(f"{query} true GROUP BY 1").fetchall())
        note_missing_labels({text: count for text, count in counts.items() if is_missing(text)})
        return class_numbers(counts)

    def node_blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield features [n, F], labels [n] or [n, K] and splits [n] of all nodes.

        They are in the order of the rows.
        """
        table = self._nodes
        selected = {f"x{place}": table.number(place) for place in self._x}
        selected[_SPLIT] = table.text(self._place[_SPLIT])
        if self._classes:
            selected["label"] = table.text(self._y[0])
        else:
            selected |= {f"y{place}": self._label_number(place) for place in self._y}
        if has_node := _NODE in self._place:
            selected[_NODE] = f"TRY_CAST({table.text(self._place[_NODE])} AS DOUBLE)"
        selected["row"] = "row_number() OVER () - 1"
        query = (
            f"SELECT {', '.join(f'{value} AS {name}' for name, value in selected.items())} "
            f"FROM {table.rows}"
        )
        start = 0
        with database() as connection:
            for batch in connection.sql(query).to_arrow_reader(block_rows(len(self._x))):
                rows = np.arange(start, start + len(batch))
                if (batch.column("row").to_numpy() != rows).any():
                    raise RuntimeError(
                        f"{self.nodes_in}: DuckDB has not kept the order of the rows"
                    )
                if has_node:
                    numbers = batch.column(_NODE).to_numpy(zero_copy_only=False)
                    self.has_ids |= bool((numbers != rows).any())
                x = self._matrix(batch, {place: f"x{place}" for place in self._x}, start)
                if self._classes:
                    texts = batch.column("label").to_pylist()
                    y: Array = np.array(
                        [-1 if is_missing(text) else self._classes[text] for text in texts]
                    )
                else:
                    y = self._matrix(batch, {place: f"y{place}" for place in self._y}, start)
                    y = y[:, 0] if y.shape[1] == 1 else y.astype(np.float32)
                yield x, y, _splits(batch.column(_SPLIT), start)
                start += len(x)

    def _label_number(self, place: int) -> str:
        """Return SQL for labels that are numbers.

        Where one is missing it is -1, or NaN where it is one of several.
        """
        table = self._nodes
        if table.kinds[place].endswith("]"):
            return f"c{place}"
        number = table.number(place)
        absent = "-1" if len(self._y) == 1 else "'nan'::DOUBLE"
        if table.is_text(place):
            return (
                f"CASE WHEN {_IS_MISSING.format(table.text(place))} THEN {absent} ELSE {number} END"
            )
        if table.kinds[place] in ("FLOAT", "DOUBLE"):
            return f"CASE WHEN {number} IS NULL OR isnan({number}) THEN {absent} ELSE {number} END"
        return f"coalesce({number}, {absent})"

    def _matrix(self, batch: Any, columns: Mapping[int, str], start: int) -> Array:
        """Return columns of numbers, or a column of lists, side by side: [n, k]."""
        parts = []
        for place, name in columns.items():
            column = batch.column(name)
            flat = column.flatten() if hasattr(column, "flatten") else column
            if column.null_count or flat.null_count:
                row = next(row for row, cell in enumerate(column.to_pylist()) if _lacks(cell))
                raise InputError(self._problem(place, start + row))
            if hasattr(column, "offsets") and len(np.unique(np.diff(column.offsets))) > 1:
                raise InputError(
                    f"{self._nodes.names[place]} has lists of different lengths from node {start} "
                    "on"
                )
            parts.append(flat.to_numpy(zero_copy_only=False).reshape(len(column), -1))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _problem(self, place: int, node: int) -> str:
        """Return what is wrong with a cell that is no number."""
        table = self._nodes
        cell = f"{printable(table.names[place])[:80]} of node {node}"
        with database() as connection:
            query = f"SELECT {table.text(place)} FROM {table.rows} LIMIT 1 OFFSET {node}"
            ((text,),) = connection.sql(query).fetchall()
        if not text or table.kinds[place].endswith("]"):
            return f"{cell} is missing; expected a number"
        if is_missing(text):
            return f"{cell} is missing ({text!r}); expected a number"
        if place in self._y:
            return f"{cell} is {printable(text)[:80]!r}; expected 0 or 1"
        categories = "make a column of 0 and 1 of each value, as pandas.get_dummies does"
        return (
            f"{cell} is {printable(text)[:80]!r}; features are numbers: {categories}; "
            f"a column of ids has to be called {_NODE}"
        )

    def write_ids(self, folder: Path, memory: int) -> ArrayEntry:
        """Write the nodes' ids, for the graph and for `edges`."""
        table = self._nodes
        id_column = self._place[_NODE]
        with database(folder, memory) as connection:
            file = quoted(str(folder / _IDS))
            columns = (
                f"{table.text(id_column)} AS id, {table.identity(id_column)} AS same, row_number() "
                "OVER () - 1 AS number"
            )
            connection.execute(
                f"COPY (SELECT {columns} FROM {table.rows}) TO {file} (FORMAT parquet)"
            )
            twice = (
                f"SELECT min(id) FROM {file} GROUP BY same HAVING count(*) > 1 OR same = '' LIMIT 1"
            )
            for (text,) in connection.sql(twice).fetchall():
                fault = (
                    f"node {printable(text)[:80]!r} is in two rows" if text else "a node has no id"
                )
                raise InputError(
                    f"{fault}; expected a row for each node, with an id of its own in the column "
                    f"{_NODE}"
                )
            if (
                width := connection.sql(f"SELECT max(strlen(id)) FROM {file}").fetchall()[0][0]
            ) > LONGEST_NAME:
                raise InputError(
                    f"the id of a node has {width} bytes; expected at most {LONGEST_NAME}"
                )
            writer = ArrayWriter(folder, "id", np.uint8, (width,))
            for batch in connection.sql(f"SELECT id FROM {file} ORDER BY number").to_arrow_reader(
                block_rows(width)
            ):
                ids = np.array(
                    [text.encode() for text in batch.column("id").to_pylist()], f"S{width}"
                )
                writer.append(ids.view(np.uint8).reshape(-1, width))
            return writer.finish()

    def edges(self, connection: Any, folder: Path) -> str:
        """Return SQL for all edges, with the columns source and target: numbers of nodes."""
        table = self._edges
        texts = ", ".join(
            f"{table.text(place)} AS {end}" for end, place in zip(_ENDS, self._ends, strict=True)
        )
        if not self.has_ids:
            return f"SELECT {texts} FROM {table.rows}"
        file = quoted(str(folder / _IDS))
        ((some_id,),) = connection.sql(f"SELECT id FROM {file} ORDER BY number LIMIT 1").fetchall()
        same = ", ".join(
            f"{table.identity(place)} AS same_{end}"
            for end, place in zip(_ENDS, self._ends, strict=True)
        )
        unknown = "CASE WHEN sources.number IS NULL THEN source ELSE target END"
        like = quoted(
            f", which the column {_NODE} does not hold; expected ids as there, such as {some_id}"
        )
        problem = refusal(f"': there is no node ' || {unknown} || {like}")
        numbers = ", ".join(
            (
                f"CASE WHEN sources.number IS NULL OR targets.number IS NULL THEN {problem} ELSE "
                f"{end}s.number END AS {end}"
            )
            for end in _ENDS
        )
        joins = " ".join(f"LEFT JOIN {file} AS {end}s ON same_{end} = {end}s.same" for end in _ENDS)
        return f"SELECT {numbers} FROM (SELECT {texts}, {same} FROM {table.rows}) {joins}"


def _lacks(cell: Any) -> bool:
    """Tell whether a number, or one of a list of numbers, is missing."""
    return cell is None or (isinstance(cell, list) and None in cell)


def _splits(column: Any, start: int) -> npt.NDArray[np.uint8]:
    numbers = {**SPLITS, "": 0}
    texts: Sequence[str] = column.to_pylist()
    for row, text in enumerate(texts):
        if text not in numbers:
            value = repr(printable(text)[:80])
            raise InputError(
                f"split of node {start + row} is {value}; expected train, val, test or nothing"
            )
    return np.array([numbers[text] for text in texts], np.uint8)
