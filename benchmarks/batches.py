"""Scores of runs with the clusters that are chosen for a graph, and with others.

    python -m benchmarks.batches places.npz --train --model graphsage --hidden 256 256 --epochs 12

A row for the defaults, then one for every size of clusters and of batches, all with as many epochs.
Each also says what its batches show: how mixed the labels of a batch are.
Finished runs stay in ``--runs``; the same command goes on where it was stopped.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.command import trained_once
from gistgnn.graphs import load

CLUSTER_NODES = (200, 60, 20, 10)
BATCH_NODES = (1000, 2000, 4000)


def row(name: str, run: dict[str, Any]) -> str:
    """Return a row of the table."""
    batches = run["batches"]
    cells = [name]
    cells.append(f"{batches['clusters']:,}")
    cells.append(str(batches["clusters_per_batch"]))
    cells.append(f"{batches['label_entropy']:.0%}")
    cells.append(f"{run['steps']:,}")
    cells.append(f"{100 * run['test']['accuracy']:.1f}")
    return f"| {' | '.join(cells)} |"


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
    defaults = ["--dataset", args.dataset, "--data-root", args.data_root]
    defaults += ["--sampler", "clusters", *args.train]
    print("| clusters | c | q | entropy of labels | steps | test, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(row("chosen", trained_once(defaults, args.runs)), flush=True)
    for cluster_nodes, batch_nodes in product(args.cluster_nodes, args.batch_nodes):
        clusters = min(max(nodes // cluster_nodes, 1), nodes)
        in_batch = max(round(batch_nodes * clusters / nodes), 1)
        sizes = ["--clusters", str(clusters), "--clusters-per-batch", str(in_batch)]
        run = trained_once([*defaults, *sizes], args.runs)
        print(row(f"{cluster_nodes} nodes, {batch_nodes:,} in a batch", run), flush=True)


if __name__ == "__main__":
    main()
