"""Scores at equal time on a GPU: one model, parts and GIST, at several widths.

Every method has one learning rate at every width. `gistgnn compare --budget` measures an epoch of
each run and gives it the epochs that fit into the time. The graphs are those of
`benchmarks.width.hops` that ``--graphs`` names; without any, a teacher's graph is made.
"""

import argparse
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.tables import number, table
from benchmarks.width import hops, teacher
from gistgnn.cli.main import main as command_line
from gistgnn.errors import GistError

WIDTHS = (256, 512, 1024)
SECONDS = 4  # of training of each run
WORKERS = 4
MODEL = ("--model", "gcn", "--norm", "layer", "--dropout", "0.1", "--sampler", "clusters")
BATCHES = ("--clusters", "840", "--clusters-per-batch", "10", "--set", "cluster_method=random")
SMALL_BATCHES = ("--clusters", "40", "--clusters-per-batch", "10")
HEAD = ("graph", "width", "method", "training, s", "test, %")


def measure(options: argparse.Namespace, keep: Callable[[list[dict[str, Any]]], None]) -> None:
    """Train one model, parts and GIST for the same time; `keep` gets all rows after each width."""
    rows: list[dict[str, Any]] = []
    widths = (16,) if options.small else WIDTHS
    with graphs_of(options) as graphs:
        for graph in graphs:
            for width in widths:
                rows += rows_of(graph, width, options)
                keep(rows)


@contextmanager
def graphs_of(options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the graphs: those that were named, digits to try the code, or a teacher's graph."""
    if options.graphs:
        yield options.graphs
    elif options.small:
        yield ["digits"]
    else:
        with tempfile.TemporaryDirectory() as folder:
            edges = Path(folder, "edges.npz")
            graph = Path(folder, "teacher.npz")
            teacher.main(str(edges))
            hops.main(str(edges), str(graph), "2")
            yield [str(graph)]


def rows_of(graph: str, width: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each method, of one graph at one width."""
    name = Path(graph).stem
    with tempfile.TemporaryDirectory() as folder:
        words = ["compare", "--dataset", graph, *MODEL, "--hidden", width, width]
        words += SMALL_BATCHES if options.small else BATCHES
        words += ["--methods", "parts", "gist", "--sub-gcns", 2 if options.small else WORKERS]
        words += ["--budget", f"{1 if options.small else SECONDS}s", "--device", options.device]
        words += ["--out", folder, "--json", "--quiet"]
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                command_line([str(word) for word in words])
        except (GistError, RuntimeError, SystemExit) as error:
            return [{"graph": name, "width": width, "failed": str(error).splitlines()[0][:200]}]
    return [
        {
            "graph": name,
            "width": width,
            "method": row["name"],
            "seconds": row["seconds"][0],
            "test": row["mean"],
        }
        for row in json.loads(printed.getvalue())["rows"]
    ]


def page(rows: list[dict[str, Any]]) -> str:
    """Return the table of the scores."""
    lines = []
    for row in rows:
        first = [row["graph"], f"{row['width']:,}"]
        if "failed" in row:
            lines.append([*first, row["failed"], "—", "—"])
        else:
            lines.append([*first, row["method"], number(row["seconds"]), f"{row['test']:.2f}"])
    return table(HEAD, lines)
