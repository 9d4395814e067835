"""The columns of a user's tables mean what Python's csv and NumPy make of them."""

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import load
from gistgnn.graphs import Graph
from gistgnn.graphs.conversion import convert
from tests.helpers.logs import logged
from tests.helpers.refusals import refused

from .folders import small_steps

Columns = list[tuple[str, list[Any]]]
NODES = 12
SPLIT = ["train"] * 6 + ["val"] * 3 + ["test"] * 3
RING = [(node, (node + 1) % NODES) for node in range(NODES)]
AGE = [float(node * node) for node in range(NODES)]
Y = [0, 1] * 6


def table(path: Path, columns: Columns, parts: int = 1) -> Path:
    """Write columns as a CSV or Parquet file, or as a folder of several."""
    path.parent.mkdir(exist_ok=True)
    names = [name for name, _ in columns]
    rows = list(zip(*(values for _, values in columns), strict=True))
    if parts > 1:
        path.mkdir()
    for part, numbers in enumerate(np.array_split(np.arange(len(rows)), parts)):
        file = path / f"part_{part}{path.suffix}" if parts > 1 else path
        rows_of_part = [rows[number] for number in numbers]
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            arrays = [pa.array([row[k] for row in rows_of_part]) for k in range(len(names))]
            pq.write_table(pa.Table.from_arrays(arrays, names=names), file)
        else:
            with file.open("w", newline="", encoding="utf-8") as opened:
                csv.writer(opened).writerows([names, *rows_of_part])
    return path


def graph_of(
    root: Path, nodes: Columns, edges: Columns | None = None, suffix: str = ".csv", parts: int = 1
) -> Graph:
    """Write tables and convert them."""
    default: Columns = [
        ("source", [edge[0] for edge in RING]),
        ("target", [edge[1] for edge in RING]),
    ]
    path = table(root / f"nodes{suffix}", nodes, parts)
    convert(table(root / f"edges{suffix}", edges or default), root / "made", nodes=path)
    return load(root / "made")


def nodes_with(
    *columns: tuple[str, list[Any]], y: list[Any] = Y, split: list[str] = SPLIT
) -> Columns:
    return [*columns, ("age", AGE), ("y", y), ("split", split)]


def x_of(*columns: list[Any]) -> torch.Tensor:
    return torch.tensor(
        np.stack([np.array(column, np.float64) for column in columns], axis=1).astype(np.float32)
    )


NAMES = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)
    .map(str.strip)
    .filter(bool)
)
LABELS = ["a", "Ünder", 'say "no", or', "1", "07", "1_0", " spaced"]
CELLS = {
    "floats": st.floats(-1e6, 1e6, width=32),
    "whole": st.integers(-(2**24), 2**24),
    "bools": st.booleans(),
    "spaced": st.integers(-99, 99).map(lambda number: f" {number}.0 "),
}
IDS = {
    "rows": lambda node: node,
    "decimals": lambda node: f"{node + 5}.0",
    "whole": lambda node: 2**60 + node,
    "texts": lambda node: f'ö, "{node}"',
}


@settings(max_examples=12, deadline=None)
@given(
    data=st.data(), suffix=st.sampled_from([".csv", ".parquet"]), parts=st.sampled_from([1, 2, 12])
)
def test_any_tables_make_the_graph_that_their_cells_say(
    data: st.DataObject, suffix: str, parts: int
) -> None:
    drawn = data.draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    names = [name for name in drawn if name not in ("y", "split", "node")]
    names = [name for name in names if not name[1:].isdigit()] or ["one"]
    kinds = ["floats", "whole", "bools"] if suffix == ".parquet" else list(CELLS)
    kind_of = {name: data.draw(st.sampled_from(kinds)) for name in names}
    cells = {
        name: data.draw(st.lists(CELLS[kind_of[name]], min_size=NODES, max_size=NODES))
        for name in names
    }
    missing = data.draw(st.sampled_from(["", "nan", "NaN", "None", "<NA>", "NA", "null"]))
    labels = data.draw(st.lists(st.sampled_from(LABELS), min_size=2, max_size=4, unique=True))
    texts = data.draw(st.lists(st.sampled_from([*labels, missing]), min_size=8, max_size=8))
    texts = [*labels, *texts, *(labels * 4)][:NODES]  # each label at least once
    texts[6] = labels[0]  # of the validation nodes
    split = ["" if text == missing else SPLIT[node] for node, text in enumerate(texts)]
    name_id = IDS[data.draw(st.sampled_from(list(IDS)))]
    node = st.integers(0, NODES - 1)
    edges = data.draw(st.lists(st.tuples(node, node), min_size=1, max_size=30))
    with tempfile.TemporaryDirectory() as folder, small_steps():
        ends = [
            ("source", [name_id(source) for source, _ in edges]),
            ("target", [name_id(target) for _, target in edges]),
        ]
        ids = [("node", [name_id(node) for node in range(NODES)])]
        columns = [*cells.items(), ("y", texts), ("split", split)]
        graph = graph_of(Path(folder), [*ids, *columns], ends, suffix, parts)
    expected = x_of(*([float(cell) for cell in cells[name]] for name in names))
    assert torch.equal(graph.x, expected)
    classes = sorted({text.strip() for text in texts} - {missing})
    is_numbers = all(text in ("1", "07") for text in classes)
    if not is_numbers:
        assert graph.class_names == tuple(classes)
    numbers = [
        int(text) if is_numbers else classes.index(text.strip())
        for text in texts
        if text != missing
    ]
    assert graph.y[[text != missing for text in texts]].tolist() == numbers
    assert bool((graph.y[[text == missing for text in texts]] == -1).all())
    assert sorted(map(tuple, graph.edge_index.T.tolist())) == sorted(set(edges))
    for name in ("train", "val", "test"):
        assert getattr(graph, name).tolist() == [part == name for part in split]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_parts_are_read_in_the_order_of_their_numbers(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=120)
    y = np.arange(120) // 40
    split = np.array(["train", "val", "test"])[rng.permutation(120) % 3].tolist()
    order = rng.permutation(120)
    edges: Columns = [("source", list(range(120))), ("target", order.tolist())]
    nodes: Columns = [("f", values.tolist()), ("y", y.tolist()), ("split", split)]
    with small_steps():
        graph = graph_of(tmp_path, nodes, edges, suffix, parts=12)
    assert torch.equal(graph.x, x_of(values))
    assert graph.y.tolist() == y.tolist()
    source, target = graph.edge_index
    assert target[source.argsort()].tolist() == order.tolist()


def test_parts_of_other_types_keep_their_values(tmp_path: Path) -> None:
    first = tmp_path / "nodes.parquet" / "1.parquet"
    second = tmp_path / "nodes.parquet" / "2.parquet"
    columns = nodes_with(("f", [*range(6), *(node + 0.25 for node in range(6, NODES))]))
    half: Columns = [(name, values[:6]) for name, values in columns]
    (tmp_path / "nodes.parquet").mkdir()
    table(first, half)
    table(second, [(name, values[6:]) for name, values in columns])
    edges = table(tmp_path / "edges.csv", [("source", [0]), ("target", [1])])
    convert(edges, tmp_path / "made", nodes=tmp_path / "nodes.parquet")
    assert torch.equal(load(tmp_path / "made").x, x_of(columns[0][1], AGE))
    second.rename(tmp_path / "nodes.parquet" / "2.csv")
    with refused("holds CSV and Parquet, such as 1.parquet and 2.csv"):
        convert(edges, tmp_path / "other", nodes=tmp_path / "nodes.parquet")


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 0.1", "__index_level_0__"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_index_of_pandas_is_no_feature(tmp_path: Path, name: str, suffix: str) -> None:
    index = list(range(NODES))
    ends: Columns = [(name, index), ("source", index), ("target", [node for _, node in RING])]
    with logged() as notes:
        graph = graph_of(tmp_path, nodes_with((name, index)), ends, suffix)
    assert torch.equal(graph.x, x_of(AGE))
    # One note is of the edges, and one of the nodes.
    assert sum("is left out" in note and "index=False" in note for note in notes) == 2


# columns beside `age`; what x holds besides, or the error
INDEX: list[tuple[Columns, list[float] | str]] = [
    ([("", [*range(6), *range(6)])], []),  # pandas.concat without ignore_index
    ([("", [""] * NODES)], []),  # a comma at the end of every line
    (
        [("", list(range(1, NODES + 1)))],
        "column 1, which has no name, has other numbers than those of the rows",
    ),
    ([("Unnamed: 0", list(range(NODES))[::-1])], "the column Unnamed: 0 has other numbers"),
    ([("Unnamed: 0", list(range(NODES))[::-1]), ("node", list(range(NODES)))], []),
    (
        [("", [f"{node}.5" for node in range(NODES)])],
        "column 1, which has no name, does not number the rows",
    ),
    ([("", [f"p{node}" for node in range(NODES)])], "call it node if it has the nodes' ids"),
    ([("AGE", AGE[::-1]), ("Age", AGE)], [*AGE[::-1], *AGE]),
    ([("age", AGE)], "columns 1 and 2 are both called 'age': rename one"),
    ([("y", Y)], "columns 1 and 3 are both called 'y': rename one"),
]


@pytest.mark.parametrize(("columns", "expected"), INDEX)
def test_columns_are_told_apart_by_their_names_and_numbers(
    tmp_path: Path, columns: Columns, expected: list[float] | str
) -> None:
    if isinstance(expected, str):
        with refused("nodes.csv", expected):
            graph_of(tmp_path, nodes_with(*columns))
        return
    blocks = [expected[start : start + NODES] for start in range(0, len(expected), NODES)]
    assert torch.equal(graph_of(tmp_path, nodes_with(*columns)).x, x_of(*blocks, AGE))


FEATURES: list[tuple[str, list[Any], str]] = [
    ("rank", list(range(3, NODES + 3)), "the column rank numbers the rows"),
    (
        "rank",
        np.random.default_rng(0).permutation(NODES).tolist(),
        "the column rank numbers the rows",
    ),
    ("user_id", AGE, "the column user_id is trained on as a feature"),
    ("Y", AGE, "the column Y is trained on as a feature: the y of a node is in a column y"),
    (
        "number",
        [2**24 + 3 * node for node in range(NODES)],
        "the column number has whole numbers such as 16777219",
    ),
    (
        "number",
        [2**62 + node for node in range(NODES)],
        "the column number has whole numbers such as 4611686",
    ),
    ("time", [1.7e9 + node / 10 for node in range(NODES)], "the column time varies by 0.345"),
    ("userId", AGE, "the column userId is trained on as a feature"),
    ("humid", AGE, ""),
    ("height", [node / 7 for node in range(NODES)], ""),
    ("height", [node % 5 for node in range(NODES)], ""),
    ("amount", [2**24 - 9 * node for node in range(NODES)], ""),
]


@pytest.mark.parametrize(("name", "values", "note"), FEATURES)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_features_that_are_perhaps_none_are_noted(
    tmp_path: Path, name: str, values: list[Any], note: str, suffix: str
) -> None:
    with logged() as notes, small_steps():
        graph_of(tmp_path, nodes_with((name, values)), suffix=suffix)
    assert len(notes) == bool(note)
    assert note in "".join(notes)


LABELS_OF: list[tuple[list[Any], list[int], tuple[str, ...]]] = [
    (["nan", "", "None", "cat", "dog"], [-1, -1, -1, 0, 1], ("cat", "dog")),
    (["nan", "<NA>", "2", "1.0", "0"], [-1, -1, 2, 1, 0], ()),
    (["1", "cat", "-1", "1", "cat"], [0, 1, -1, 0, 1], ("1", "cat")),
    (["True", "False", "", "True", "False"], [1, 0, -1, 1, 0], ("False", "True")),
    (["inf", "1_0", "1_1", "inf", ""], [2, 0, 1, 2, -1], ("1_0", "1_1", "inf")),
    (["Na", "NA", "Cl", "Na", "#N/A"], [1, -1, 0, 1, -1], ("Cl", "Na")),
]


@pytest.mark.parametrize(("labels", "expected", "names"), LABELS_OF)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_whole_column_says_what_labels_are(
    tmp_path: Path, labels: list[Any], expected: list[int], names: tuple[str, ...], suffix: str
) -> None:
    usual = [label for label, number in zip(labels, expected, strict=True) if number >= 0]
    y = [*labels, *(usual * NODES)][:NODES]
    split = ["", "", "", "", "", *(["train", "val"] * NODES)][:NODES]
    missing = {label for label, number in zip(labels, expected, strict=True) if number < 0}
    with logged() as notes:
        graph = graph_of(tmp_path, nodes_with(y=y, split=split), suffix=suffix)
    assert graph.y[:5].tolist() == expected
    assert graph.class_names == names
    for word in missing - {"", "-1"}:
        assert any(f"'{word}' (1 nodes)" in note for note in notes), word


def test_missing_numbers_of_labels_in_parquet_are_minus_1(tmp_path: Path) -> None:
    y = [None, float("nan"), *([0.0, 1.0] * 5)]
    split = ["", "", *SPLIT[2:]]
    graph = graph_of(tmp_path, nodes_with(y=y, split=split), suffix=".parquet")
    assert graph.y.tolist() == [-1, -1, *([0, 1] * 5)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_some_of_several_labels_are_missing(tmp_path: Path, suffix: str) -> None:
    absent = "" if suffix == ".csv" else None
    several: Columns = [
        ("y0", [*([True, False] * 5), absent, True]),
        ("y1", [*([1, 1] * 5), absent, absent]),
    ]
    columns: Columns = [("f", AGE), *several, ("split", [*SPLIT[:10], "", ""])]
    graph = graph_of(tmp_path, columns, suffix=suffix)
    assert graph.multi_label
    assert graph.y[:10].tolist() == [[1, 1], [0, 1]] * 5
    assert graph.y[10:].isnan().tolist() == [[True, True], [False, True]]
    columns[-1] = ("split", SPLIT)
    with refused("y[10] is not finite, but test holds node 10"):
        graph_of(tmp_path / "other", columns, suffix=suffix)


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ([5, 6, 7], ["5.0", "6.0", " 7"]),
        (["5.0", "6.00", "7."], [5, 6, 7]),
        (["1e+05", "100001", "-3"], ["100000", "100001.0", "-3.0"]),  # as R writes numbers
        (["007", "7", "x.0"], ["007", "7.0", "x.0"]),
    ],
)
def test_ids_are_equal_however_they_are_written(
    tmp_path: Path, nodes: list[Any], edges: list[Any]
) -> None:
    further_ids = [f"n{k}" for k in range(NODES - 3)]
    ids: Columns = [("node", [*nodes, *further_ids])]
    ends: Columns = [("source", edges), ("target", further_ids[:3])]
    graph = graph_of(tmp_path, [*ids, *nodes_with()], ends)
    assert graph.edge_index.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_ids_that_are_nowhere_are_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids: Columns = [("node", [f"p{node}" for node in range(NODES)])]
    with refused(
        "edges.csv: an edge goes from p1 to q: there is no node q, which the column node does not "
        "hold"
    ):
        graph_of(
            tmp_path, [*ids, *nodes_with()], [("source", ["p0", "p1"]), ("target", ["p2", "q"])]
        )
    nodes = table(
        tmp_path / "more.csv", [("node", [node + 5 for node in range(NODES)]), *nodes_with()]
    )
    ends = {"source": pa.array([5.0, 16.0]), "target": pa.array([6, 5], pa.int32())}
    pq.write_table(pa.table(ends), tmp_path / "edges.parquet")
    convert(tmp_path / "edges.parquet", tmp_path / "made", nodes=nodes)
    assert load(tmp_path / "made").edge_index.tolist() == [[11, 0], [0, 1]]


BROKEN: list[tuple[str, bytes, str]] = [
    (
        "nodes",
        b"y,split,age\n" + b"0,train,1\n" * 9999 + b"1,val,\xe9\n",
        "line 10001: holds bytes that are no UTF-8",
    ),
    (
        "nodes",
        "y,split,é\n0,train,1\n".encode("latin-1"),
        "nodes.csv: cannot be read (UnicodeDecodeError",
    ),
    (
        "nodes",
        b'y,split,"a\nb"\n0,train,1\n',
        "nodes.csv: the name of column 3, a\\nb, has a line break: rename it",
    ),
    (
        "nodes",
        b"y;split;age\n0;train;1\n",
        "nodes.csv: the columns are separated by semicolons; expected commas",
    ),
    (
        "nodes",
        b"y\tsplit\tage\n0\ttrain\t1\n",
        "nodes.csv: the columns are separated by tabs; expected commas",
    ),
    ("nodes", b'y,split,age\n0,train,"1\n', "nodes.csv, line 2: a quote is not closed"),
    (
        "nodes",
        b"y,split,age\n0,train\n",
        "nodes.csv, line 2: 2 values; expected 3, one for each column",
    ),
    (
        "nodes",
        b"y,split,age\n0,train,None\n",
        "nodes.csv: age of node 0 is missing ('None'); expected a number",
    ),
    (
        "nodes",
        b"y,split,age\na,train,\nb,train,1\n",
        "nodes.csv: age of node 0 is missing; expected a number",
    ),
    (
        "edges",
        b"source,target\n0,1,2\n",
        "edges.csv, line 2: 3 values; expected 2, one for each column",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_no_error_of_the_database_is_shown(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    nodes = table(tmp_path / "nodes.csv", nodes_with())
    edges = table(tmp_path / "edges.csv", [("source", [0]), ("target", [1])])
    (tmp_path / f"{name}.csv").write_bytes(content)
    with refused(message):
        convert(edges, tmp_path / "made", nodes=nodes)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("name", "other"), [("n*?", "nab"), ("n[1]", "n1"), ("n?1", "na1"), ("n[a-b]]", "na]")]
)
def test_the_name_of_a_file_is_no_pattern(
    tmp_path: Path, name: str, other: str, suffix: str
) -> None:
    table(tmp_path / f"{other}{suffix}", nodes_with(("other", AGE)))
    nodes = table(tmp_path / f"{name}{suffix}", nodes_with())
    convert(
        table(tmp_path / "edges.csv", [("source", [0]), ("target", [1])]),
        tmp_path / "made",
        nodes=nodes,
    )
    assert torch.equal(load(tmp_path / "made").x, x_of(AGE))


def test_a_damaged_page_of_parquet_names_its_file(tmp_path: Path) -> None:
    nodes = table(tmp_path / "nodes.parquet", nodes_with())
    content = bytearray(nodes.read_bytes())
    content[40:60] = bytes(20)
    nodes.write_bytes(content)
    with refused("nodes.parquet: cannot be read: it is damaged, or no table"):
        convert(
            table(tmp_path / "edges.csv", [("source", [0]), ("target", [1])]),
            tmp_path / "made",
            nodes=nodes,
        )
