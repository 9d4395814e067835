"""GIST on a graph of Reddit's shape, with as many steps as on Reddit and batches as large.

It shows how much F1 is lost with more sub-GCNs. The text and the public code of the paper differ in
the number of steps and in the batches (docs/paper/provenance.md, "Contradictions"). A smaller graph
has fewer clusters of the same size; more epochs make up for its fewer batches in each.
"""

import argparse
import math
from itertools import product
from pathlib import Path

from benchmarks.command import trained_once

# For each source: the steps of ordinary training (80 epochs of the whole graph), the number of
# clusters, and how many of them are in a batch.
SOURCES = {"text": (120_000, 15_000, 10), "code": (6_000, 1_500, 20)}
MODEL = ("--model", "graphsage", "--hidden", "256", "256", "--norm", "layer", "--dropout", "0.2")
TRAINING = ("--schedule", "constant", "--set", "optimizer_state=reset")
TRAINING += ("--inductive", "--standardise", "--runner", "fused")


def options(
    source: str, scale: float, steps: int, sub_gcns: int, local_steps: int, lr: float
) -> list[str]:
    """Return the options of `gistgnn train` for one row.

    Args:
        source: "text" or "code": whose number of steps and clusters.
        scale: nodes of the graph, in nodes of Reddit.
        steps: of all sub-GCNs together.
        sub_gcns: m.
        local_steps: ζ.
        lr: the learning rate.
    """
    _, clusters, in_batch = SOURCES[source]
    count = round(clusters * scale)
    steps_per_epoch = math.ceil(count / in_batch)
    rounds = steps // sub_gcns // local_steps
    values = {
        "dataset": f"synthetic:reddit@{scale:g}",
        "sampler": "clusters",
        "clusters": count,
        "clusters-per-batch": in_batch,
        "epochs": max(1, round(steps / steps_per_epoch)),
        "sub-gcns": sub_gcns,
        "local-steps": local_steps,
        "lr": lr,
        "evaluate-every": max(1, rounds // 10),
    }
    return [*MODEL, *TRAINING, *(f"--{name}={value}" for name, value in values.items())]


def main() -> None:
    """Run every row that the file of results lacks, and print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=SOURCES, default="code")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[1.0], help="of the source's number of steps"
    )
    parser.add_argument("--sub-gcns", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--local-steps", type=int, nargs="+", default=[500])
    parser.add_argument("--lr", type=float, nargs="+", default=[0.01])
    results_help = "JSON; its rows do not run again"
    parser.add_argument("--results", type=Path, required=True, metavar="FILE", help=results_help)
    args = parser.parse_args()
    scores = "F1, % | F1 at the end, %"
    print(f"| source | steps | m | ζ | rounds | rate | {scores} | never trained, % | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for share, zeta, lr, m in product(args.shares, args.local_steps, args.lr, args.sub_gcns):
        if m == 1 and zeta != args.local_steps[0]:
            continue  # Ordinary training is the same at every ζ.
        steps = round(SOURCES[args.source][0] * share)
        record = trained_once(options(args.source, args.scale, steps, m, zeta, lr), args.results)
        cells = [args.source, str(steps), str(m), str(zeta), str(record["rounds"]), f"{lr:g}"]
        cells.append(f"{100 * record['test']['f1_micro']:.2f}")
        cells.append(f"{100 * record['last']['test']['f1_micro']:.2f}")
        cells.append(f"{100 * record['coverage']['never_trained']:.1f}")
        cells.append(f"{record['train_seconds']:.0f}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
