"""Random tables of nodes and edges, converted: the graph must be what Python's csv module reads."""

import csv
import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.attack.case import Outcome, Report, Workspace, run_command
from gistgnn.graphs import load

_MISSING = ["", "nan", "NaN", "None", "NA", "N/A", "<NA>", "null", "NULL"]
_CLASSES = [["a", "b", "c"], ["0", "1", "2"], ["1", "cat", "dog"], ["yes", "no"]]
_CLASSES += [["x, y", 'a "b"', "ü"], ["7", "8"]]
_IDS = [lambda n: str(n), lambda n: str(10**9 + 7 * n), lambda n: f"node {n}", lambda n: f"{n:03d}"]


def tables(rng: Random, workspace: Workspace) -> Report:
    """Convert a table of nodes and one of edges.

    They are in one file or in parts, with or without the index column of pandas.
    """
    count = rng.randrange(8, 40)
    names = ["age", "Age", "AGE", "f 1", "x,y", "ü", "score", "flag", "b"]
    features = rng.sample(names, rng.randrange(1, 5))
    rows = _rows(rng, count, features)
    order = [row["node"] for row in rows]
    edges = [(rng.choice(order), rng.choice(order)) for _ in range(rng.randrange(1, 4 * count))]
    index = rng.random() < 0.4
    parts = rng.choice([1, 1, 2, 12])
    columns = ["node", *features, "y", "split"]
    _write(
        workspace.folder,
        "nodes",
        columns,
        [[row[name] for name in columns] for row in rows],
        index,
        parts,
    )
    _write(
        workspace.folder, "edges", ["source", "target"], [list(edge) for edge in edges], index, 1
    )
    nodes = "nodes.csv" if parts == 1 else "nodes"
    words = ["convert", "edges.csv", "--nodes", nodes, "graph"]

    def judge(outcome: Outcome) -> str:
        if outcome.status:
            return f"refuses tables that can be read: {outcome.err.strip()[-200:]!r}"
        return _difference(workspace.folder / "graph", rows, features, edges)

    note = f"{count} nodes, {features}, {parts} parts{', with an index' if index else ''}"
    return run_command(workspace, words, judge, note)


def _rows(rng: Random, count: int, features: list[str]) -> list[dict[str, str]]:
    classes = rng.choice(_CLASSES)
    make_id = rng.choice(_IDS)
    kinds = {name: rng.choice(["float", "int", "bool", "large"]) for name in features}
    missing = rng.sample(_MISSING, rng.choice([0, 0, 1, 2]))
    rows = []
    for number in range(count):
        row = {"node": make_id(number)}
        for name, kind in kinds.items():
            row[name] = _cell(rng, kind)
        label = rng.choice(classes)
        split = ["train", "val", "test"][number % 3]
        # The first rows have labels, so that every class and every split has a node.
        if missing and number >= len(classes) + 3 and rng.random() < 0.2:
            label = rng.choice(missing)
            split = ""
        row["y"] = classes[number % len(classes)] if number < len(classes) else label
        row["split"] = split if number >= len(classes) else "train"
        rows.append(row)
    rng.shuffle(rows)
    return rows


def _cell(rng: Random, kind: str) -> str:
    if kind == "float":
        return repr(rng.gauss(0, 3))
    if kind == "bool":
        return rng.choice(["True", "False"])
    return str(rng.randrange(-5, 5) if kind == "int" else 2**30 + rng.randrange(1000))


def _write(
    folder: Path, name: str, columns: list[str], rows: list[list[str]], index: bool, parts: int
) -> None:
    """Write a table as pandas does, which gives its index column no name."""
    numbered = [[str(number), *row] if index else row for number, row in enumerate(rows)]
    head = ["", *columns] if index else columns
    if parts > 1:
        (folder / name).mkdir()
    for part in range(parts):
        path = folder / f"{name}.csv" if parts == 1 else folder / name / f"part_{part}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(numbered[part * len(rows) // parts : (part + 1) * len(rows) // parts])


def _difference(
    folder: Path, rows: list[dict[str, str]], features: list[str], edges: list[tuple[str, str]]
) -> str:
    """Return what is wrong with a converted graph; "": nothing."""
    graph = load(folder)
    x = [[_number(row[name]) for name in features] for row in rows]
    if graph.x.shape != (len(rows), len(features)):
        return f"x is {list(graph.x.shape)} for {len(rows)} nodes and the features {features}"
    if not np.array_equal(graph.x.numpy(), np.array(x, np.float32)):
        return "features are others than in the table"
    number_of_node = {row["node"]: number for number, row in enumerate(rows)}
    # Edges that are repeated in the table count once.
    expected = sorted(
        {(number_of_node[source], number_of_node[target]) for source, target in edges}
    )
    if sorted(map(tuple, graph.edge_index.t().tolist())) != expected:
        return "edges are others than in the table"
    return _wrong_labels(graph, [None if row["y"] in _MISSING else row["y"] for row in rows])


def _wrong_labels(graph: Any, labels: list[str | None]) -> str:
    values = graph.y.tolist()
    by_class: dict[Any, set[str | None]] = {}
    for value, label in zip(values, labels, strict=True):
        if label is None and value >= 0:
            return f"a missing label is the class {value}"
        if label is not None and value < 0:
            return f"the label {label!r} is missing"
        by_class.setdefault(value if label is not None else None, set()).add(label)
    if any(len(names) > 1 for key, names in by_class.items() if key is not None):
        return "two labels are one class"
    classes = {label for label in labels if label is not None}
    if graph.num_classes != len(classes) and not all(label.isdigit() for label in classes):
        return f"{graph.num_classes} classes for the labels {sorted(classes)}"
    return ""


def _number(text: str) -> float:
    value = {"True": 1.0, "False": 0.0}.get(text)
    value = float(text) if value is None else value
    assert math.isfinite(value)
    return value
