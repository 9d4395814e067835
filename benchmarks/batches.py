"""Scores of runs with the clusters that are chosen for a graph, and with others, beside what their
batches show.

    python -m benchmarks.batches places.npz --train --model graphsage --hidden 256 256 --epochs 12

A row for the defaults, then one for every size of clusters and of batches, all with as many epochs.
Finished runs stay in ``--runs``; the same command goes on where it was stopped.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import trained_once
from gistgnn.graphs import load

CLUSTER_NODES = (200, 60, 20, 10)
BATCH_NODES = (1000, 2000, 4000)


def row(name: str, run: dict[str, Any]) -> str:
    """Return a row of the table."""
    batches = run["batches"]
    values = (
        f"{batches['clusters']:,}",
        str(batches["clusters_per_batch"]),
        f"{batches['label_entropy']:.0%}",
    )
    return (
        f"| {name} | {' | '.join(values)} | {run['steps']:,} | "
        f"{100 * run['test']['accuracy']:.1f} |"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Train what is not yet in the file of runs, and print the table as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches", description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--cluster-nodes", nargs="+", type=int, default=CLUSTER_NODES)
    parser.add_argument("--batch-nodes", nargs="+", type=int, default=BATCH_NODES)
    parser.add_argument("--runs", type=Path, default=Path("runs/batches.json"))
    parser.add_argument(
        "--train", nargs=argparse.REMAINDER, default=[], help="options of gistgnn train"
    )
    args = parser.parse_args(words)
    nodes = load(args.dataset, args.data_root).num_nodes
    base = [
        "--dataset",
        args.dataset,
        "--data-root",
        args.data_root,
        "--sampler",
        "clusters",
        *args.train,
    ]
    print(
        "| clusters | c | q | entropy of labels | steps | test, % |\n| --- | --- | --- | --- | --- "
        "| --- |"
    )
    print(row("chosen", trained_once(base, args.runs)), flush=True)
    for size in args.cluster_nodes:
        for batch in args.batch_nodes:
            c = min(max(nodes // size, 1), nodes)
            given = [
                *base,
                "--clusters",
                str(c),
                "--clusters-per-batch",
                str(max(round(batch * c / nodes), 1)),
            ]
            print(
                row(f"{size} nodes, {batch:,} in a batch", trained_once(given, args.runs)),
                flush=True,
            )


if __name__ == "__main__":
    main()
