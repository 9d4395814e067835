"""GIST on a graph of Reddit's shape with as many steps as on Reddit, and batches as large: what F1
is lost, and when.

The text and the public code of the paper differ in both (docs/paper/provenance.md,
"Contradictions"). A smaller graph has fewer clusters of the same size; more epochs make up for its
fewer batches in each.
"""

import argparse
from pathlib import Path

from benchmarks.command import trained_once

# By source: steps of ordinary training (80 epochs of the whole graph), its clusters, and how many
# are in a batch.
SOURCES = {"text": (120_000, 15_000, 10), "code": (6_000, 1_500, 20)}
MODEL = ("--model", "graphsage", "--hidden", "256", "256", "--norm", "layer", "--dropout", "0.2")
TRAINING = (
    *("--schedule", "constant", "--set", "optimizer_state=reset", "--inductive", "--standardise"),
    *("--runner", "fused"),
)


def options(
    source: str, scale: float, steps: int, sub_gcns: int, local_steps: int, lr: float
) -> list[str]:
    """Return the options of `gistgnn train` for one row; `steps` are those of all sub-GCNs
    together.
    """
    _, clusters, in_batch = SOURCES[source]
    count = round(clusters * scale)
    epochs = max(1, round(steps / -(-count // in_batch)))
    evaluate = max(1, steps // sub_gcns // local_steps // 10)
    values = {
        "dataset": f"synthetic:reddit@{scale:g}", "sampler": "clusters", "clusters": count,
        "clusters-per-batch": in_batch, "epochs": epochs, "sub-gcns": sub_gcns,
        "local-steps": local_steps, "lr": lr,
        "evaluate-every": evaluate,
    }  # fmt: skip
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
    parser.add_argument(
        "--results",
        type=Path,
        required=True,
        metavar="FILE",
        help="JSON; its rows do not run again",
    )
    args = parser.parse_args()
    print(
        "| source | steps | m | ζ | rounds | rate | F1, % | F1 at the end, % | never trained, % | "
        "seconds |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = ((share, zeta, lr,
    m) for share in args.shares for zeta in args.local_steps for lr in args.lr
            for m in args.sub_gcns if m > 1 or zeta == args.local_steps[0])  # fmt: skip
    for share, zeta, lr, m in rows:
        steps = round(SOURCES[args.source][0] * share)
        record = trained_once(options(args.source, args.scale, steps, m, zeta, lr), args.results)
        never = 100 * record["coverage"]["never_trained"]
        scores = [100 * scores["f1_micro"] for scores in (record["test"], record["last"]["test"])]
        values = [
            record["rounds"],
            f"{lr:g}",
            *(f"{score:.2f}" for score in scores),
            f"{never:.1f}",
        ]
        cells = [args.source, steps, m, zeta, *values, f"{record['train_seconds']:.0f}"]
        print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
