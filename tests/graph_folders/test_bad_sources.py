"""Bad input of any source is refused in one line that names the place, and leaves nothing."""

import gzip
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gistgnn.graphs.conversion import convert
from tests.graphs.raw_layouts import ogb
from tests.helpers.refusals import refused

from .folders import csv_tables, parquet_tables, small_steps, some_graph


def refuses(root: Path, source: Any, *parts: str, **options: Any) -> None:
    """Expect an error, and the same files as before."""
    before = sorted(root.rglob("*"))
    with small_steps(), refused(*parts):
        convert(source, root / "made", **options)
    assert sorted(root.rglob("*")) == before


LINES = [
    (
        "edges",
        17,
        "3,40",
        "edges.csv: an edge goes from 40 to 3; expected node numbers from 0 to 39",
    ),
    ("edges", 17, "3,", "edges.csv: an edge goes from nothing to 3; expected node numbers"),
    ("edges", 17, "3,1.5", "edges.csv: an edge goes from 1.5 to 3; expected node numbers"),
    ("edges", 17, "3,x", "edges.csv: an edge goes from x to 3; expected node numbers"),
    ("edges", 17, "3", "edges.csv, line 17: 1 values; expected 2, one for each column"),
    (
        "edges",
        17,
        "3,1\r",
        "edges.csv: some lines end in LF and others in CR LF, or a quote is not doubled; make them",
    ),
    ("edges", 1, "from,to", "the columns are from, to; expected source and target alone"),
    (
        "edges",
        1,
        "source,source",
        "edges.csv: columns 1 and 2 are both called 'source': rename one",
    ),
    ("nodes", 9, "7,1,0.5,nan,1,train", "nodes.csv: x[7, 1] is nan"),
    ("nodes", 9, "7,1,0.5,a,1,train", "nodes.csv: f1 of node 7 is 'a'; features are numbers: make"),
    ("nodes", 9, "7,1,0.5,,1,train", "nodes.csv: f1 of node 7 is missing; expected a number"),
    (
        "nodes",
        9,
        "8,1,0.5,2,1,train",
        "nodes.csv: node '8' is in two rows; expected a row for each node",
    ),
    ("nodes", 9, ",1,0.5,2,1,train", "nodes.csv: a node has no id"),
    (
        "nodes",
        9,
        "x" * 300 + ",1,0.5,2,1,train",
        "nodes.csv: the id of a node has 300 bytes; expected at most 255",
    ),
    (
        "nodes",
        9,
        "x,1,0.5,2,1,train",
        "there is no node 7, which the column node does not hold; expected ids as there, such as 0",
    ),
    (
        "nodes",
        9,
        "7,-1,0.5,2,1,train",
        "nodes.csv: train holds 1 unlabelled nodes (y = -1), the first is node 7",
    ),
    (
        "nodes",
        9,
        "7,1,0.5,2,1,training",
        "nodes.csv: split of node 7 is 'training'; expected train, val, test",
    ),
    (
        "nodes",
        1,
        "node,label,f0,f1,f2,split",
        "no column y; expected y, split, and features: rename the one of label",
    ),
    (
        "nodes",
        1,
        "node,y,f0,f1,f2,part",
        "no column split; expected y, split, and features: rename the one of part, f0, f1, f2 that "
        "has it, or add a column split with train, val, test or nothing for every node",
    ),
    ("nodes", 1, "node,y,,,,", "no column split; expected y, split, and features: add a column"),
]


def test_a_wrong_line_of_a_table_is_refused_with_its_place(tmp_path: Path) -> None:
    edges, nodes = csv_tables(some_graph(), tmp_path)
    paths = {"edges": edges, "nodes": nodes}
    for file, line, text, message in LINES:
        text_before = paths[file].read_text()
        lines = text_before.splitlines()
        lines[line - 1] = text
        paths[file].write_text("\n".join(lines) + "\n")
        refuses(tmp_path, edges, str(tmp_path), message, nodes=nodes)
        paths[file].write_text(text_before)


def test_tables_that_are_missing_or_empty_are_refused(tmp_path: Path) -> None:
    edges, nodes = csv_tables(some_graph(), tmp_path)
    refuses(tmp_path, edges, "give the table of nodes as well: --nodes TABLE")
    refuses(tmp_path, "digits", "leave --nodes out", nodes=nodes)
    refuses(tmp_path, "digits", "memory is 1 MiB; expected at least", memory=2**20)
    refuses(tmp_path, edges, "absent.csv: no such file", nodes=tmp_path / "absent.csv")
    refuses(
        tmp_path,
        edges,
        "expected a table in a .csv, .csv.gz, .parquet file",
        nodes=tmp_path / "nodes.txt",
    )
    (tmp_path / "empty").mkdir()
    refuses(tmp_path, tmp_path / "empty", "expected a table in a .csv", nodes=nodes)
    nodes.write_text(nodes.read_text().splitlines()[0] + "\n")
    refuses(tmp_path, edges, "there are no nodes", nodes=nodes)
    edges.write_text("source,target\n")
    refuses(
        tmp_path, edges, "there are no edges", nodes=csv_tables(some_graph(), tmp_path / "empty")[1]
    )


def test_a_table_that_is_cut_or_no_text_is_refused(tmp_path: Path) -> None:
    edges, nodes = csv_tables(some_graph(), tmp_path, suffix=".csv.gz")
    content_before = edges.read_bytes()
    for content in (
        content_before[: len(content_before) // 2],
        gzip.compress(b"source,target\n1,\xff\xfe\n"),
        b"source,target\n1,2\n",
    ):
        edges.write_bytes(content)
        refuses(tmp_path, edges, "edges.csv.gz", nodes=nodes)
    edges, nodes = parquet_tables(some_graph(), tmp_path, lists=False)
    edges.write_bytes(edges.read_bytes()[:-20])
    refuses(tmp_path, edges, "edges.parquet", nodes=nodes)


ROWS: list[tuple[str, list[Any], str]] = [
    ("x0", [1.0, None, 2.0], "x0 of node 1 is missing; expected a number"),
    ("x0", ["a", "b", "c"], "x0 of node 0 is 'a'; features are numbers"),
    ("x0", [date(2026, 1, 2)] * 3, "the column x0 is DATE; expected numbers"),
    ("y", [0, None, 1], "val holds 1 unlabelled nodes (y = -1), the first is node 1"),
    ("split", ["train", "val", "tset"], "split of node 2 is 'tset'"),
    ("x", [[1.0], [2.0, 3.0], [4.0]], "x has lists of different lengths"),
    ("x", [[1.0], [None], [4.0]], "x of node 1 is missing"),
    ("x", [[1.0, 2.0], [4.0, 5.0], [3.0, None]], "x of node 2 is missing"),
    ("x", [[1.0], None, [4.0]], "x of node 1 is missing"),
]


def test_a_wrong_value_in_parquet_is_refused_with_its_node(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    edges = tmp_path / "edges.parquet"
    nodes = tmp_path / "nodes.parquet"
    pq.write_table(pa.table({"source": [0], "target": [1]}), edges)
    for name, values, message in ROWS:
        columns: dict[str, Any] = {"y": [0, 1, 0], "split": ["train", "val", "test"]}
        columns |= {name: values} if name.startswith("x") else {"x0": [1.0, 2.0, 3.0], name: values}
        pq.write_table(pa.table(columns), nodes)
        refuses(tmp_path, edges, str(nodes), message, nodes=nodes)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges, nodes = parquet_tables(some_graph(), tmp_path, lists=False)
    for module in ("pyarrow", "duckdb"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            refuses(
                tmp_path,
                edges,
                f"{module} is not installed",
                "pip install 'gistgnn[convert]'",
                nodes=nodes,
            )


def test_wrong_raw_files_of_ogb_are_refused(tmp_path: Path) -> None:
    raw = tmp_path / "ogbn_mine"
    for file, rows, message in (
        (
            "raw/edge",
            b"0,1\n1,20\n",
            f"{raw}: an edge goes from 1 to 20; expected node numbers from 0 to 19",
        ),
        ("raw/edge", b"0,1\n1,a\n", "edge.csv.gz, line 2:"),
        ("raw/node-label", b"0\n1\n", "train[2] is 2; expected node numbers from 0 to 1"),
        ("split/time/valid", b"0\n1\n", "train and val share 2 nodes, the first is node 0"),
    ):
        ogb(raw, "time", 20)
        (raw / f"{file}.csv.gz").write_bytes(gzip.compress(rows))
        refuses(tmp_path, raw, str(raw), message)
    (raw / "split" / "time" / "test.csv.gz").unlink()
    refuses(tmp_path, raw, "test.csv.gz: no such file")
