"""Training time of GIST and the baseline: for equal epochs, and until the baseline's F1 minus half a point."""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.tables import describe_machine, number, on, table
from gistgnn import GIST
from gistgnn.graphs import Graph, Standardisation, load
from gistgnn.nn import MODELS
from gistgnn.sampling import ClusterSampling

MARGIN = 0.005  # half a point
SPLITS = ("validation", "test")
SETTING = ("sub_gcns", "epochs", "lr", "runner")


def main() -> None:
    """Train everything, print the table, and write JSON."""
    options = parse()
    torch.set_num_threads(options.threads)
    machine = describe_machine(options.threads, options.device)
    graph = load(options.dataset, options.data_root)
    if options.standardise:
        graph = Standardisation.of(graph).graph(graph)
    print(f"# Time to F1\n\n{on(machine)}\n\n{graph}; {' '.join(sys.argv[1:])}\n", flush=True)
    runs = []
    for seed in options.seeds:
        for setting in settings(options):
            runs.append({**setting, "seed": seed, **train(graph, setting, seed, options)})
            progress = {key: runs[-1][key] for key in ("sub_gcns", "seed", "train_seconds")}
            print(progress, file=sys.stderr, flush=True)
    rows = compare(runs)
    print_table(rows)
    if options.json:
        record = {"machine": machine, "arguments": sys.argv[1:], "rows": rows, "runs": runs}
        options.json.write_text(json.dumps(record, indent=1))


def settings(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the settings: the baseline, and every m with its epochs and learning rate."""
    baseline = {"sub_gcns": 1, "epochs": options.epochs, "lr": options.lr, "runner": "in-turn"}
    epochs = spread(options.gist_epochs or [options.epochs], options.sub_gcns, "--gist-epochs")
    rates = spread(options.gist_lr or [options.lr], options.sub_gcns, "--gist-lr")
    return [baseline] + [
        {"sub_gcns": m, "epochs": count, "lr": lr, "runner": options.runner}
        for m, count, lr in zip(options.sub_gcns, epochs, rates, strict=True)
    ]


def spread(values: Sequence[Any], sub_gcns: Sequence[int], option: str) -> Sequence[Any]:
    """Return one value for every m."""
    if len(values) not in (1, len(sub_gcns)):
        raise SystemExit(f"{option} has {len(values)} values: give one, or one per value of --sub-gcns")
    return [values[0]] * len(sub_gcns) if len(values) == 1 else values


def train(graph: Graph, setting: dict[str, Any], seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run `GIST.fit` once and return scores, times without evaluation, and history."""

    def build(widths: Any) -> nn.Module:
        model: nn.Module = MODELS[options.model](
            graph.num_features, widths, graph.num_classes, dropout=options.dropout, norm=options.norm
        )
        return model

    gist = GIST(build, options.hidden, setting["sub_gcns"], seed=seed, device=options.device)
    clusters = options.clusters
    sampler = ClusterSampling(clusters, options.clusters_per_batch, precompute=options.precompute) if clusters else None
    result = gist.fit(
        graph,
        sampler=sampler,
        runner=setting["runner"],
        inductive=options.inductive,
        progress=False,
        epochs=setting["epochs"],
        lr=setting["lr"],
        local_steps=options.local_steps,
        schedule=options.schedule,
        optimizer_state=options.optimizer_state,
        precision=options.precision,
        evaluate_every=options.evaluate_every,
    )
    record = {key: value for key, value in result.as_dict().items() if key in ("train_seconds", "rounds", "steps")}
    scores = {
        split: {"last": result.history[-1][split], "best": max(e[split] for e in result.history)} for split in SPLITS
    }
    return {**record, **scores, "history": result.history}


def compare(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average every setting over seeds. Ratios are to the baseline with the same seed.

    The score is micro-F1, which is the accuracy if every node has one label.
    """
    baselines = {run["seed"]: run for run in runs if run["sub_gcns"] == 1}
    for run in runs:
        base = baselines[run["seed"]]
        run["seconds_per_epoch"] = run["train_seconds"] / run["epochs"]
        run["equal_epochs_ratio"] = base["seconds_per_epoch"] / run["seconds_per_epoch"]
        for split in SPLITS:
            goal = base[split]["last"] - MARGIN
            mine, its = (first_time(result["history"], split, goal) for result in (run, base))
            run[f"{split}_goal"], run[f"{split}_seconds"] = goal, mine
            run[f"{split}_ratio"] = its / mine if mine and its else None
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        alike.setdefault(tuple(run[key] for key in SETTING), []).append(run)
    return [_row(group) for group in alike.values()]


def first_time(history: list[dict[str, Any]], split: str, goal: float) -> float | None:
    """Return the seconds of training until an evaluation first reached the goal; None: no evaluation did."""
    return next((entry["train_seconds"] for entry in history if entry[split] >= goal), None)


def _row(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(values: list[float | None]) -> float | None:
        """Return the mean over all seeds, or None if a seed has no value."""
        return None if None in values else statistics.fmean(value for value in values if value is not None)

    keys = ("train_seconds", "seconds_per_epoch", "equal_epochs_ratio")
    keys += tuple(f"{split}_{what}" for split in SPLITS for what in ("seconds", "ratio"))
    row = {key: runs[0][key] for key in SETTING}
    row |= {key: mean([run[key] for run in runs]) for key in keys}
    for split in SPLITS:
        for which in ("last", "best"):
            row[f"{split}_{which}"] = mean([run[split][which] for run in runs])
        row[f"{split}_reached"] = sum(run[f"{split}_seconds"] is not None for run in runs)
    return row | {"seeds": len(runs)}


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the rows in Markdown."""
    head = ["m", "epochs", "lr", "test F1, last", "best", "validation, last", "training, s", "an epoch, faster"]
    for split in SPLITS:
        head += [f"s to the baseline's {split} F1 − 0.5", "faster", "seeds that reached it"]
    print(table(head, (_cells(row) for row in rows)))


def _cells(row: dict[str, Any]) -> list[str]:
    def ratio(value: float | None) -> str:
        return "—" if value is None else f"{value:.2f}×"

    cells = [str(row["sub_gcns"]), str(row["epochs"]), f"{row['lr']:g}"]
    cells += [number(100 * row[key], 4) for key in ("test_last", "test_best", "validation_last")]
    cells += [number(row["train_seconds"]), ratio(row["equal_epochs_ratio"])]
    for split in SPLITS:
        cells += [number(row[f"{split}_seconds"]), ratio(row[f"{split}_ratio"])]
        cells += [f"{row[f'{split}_reached']} of {row['seeds']}"]
    return cells


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_to_f1", description=__doc__)
    add = parser.add_argument
    add("--dataset", required=True)
    add("--data-root", type=Path, default=Path("data"))
    add("--model", choices=tuple(MODELS), default="graphsage")
    add("--hidden", type=int, nargs="+", default=[1024, 1024], metavar="D")
    add("--dropout", type=float, default=0.2)
    add("--norm", choices=("none", "layer", "batch"), default="layer")
    add("--clusters", type=int, metavar="C", help="number of clusters (default: every step sees the whole graph)")
    add("--clusters-per-batch", type=int, default=10, metavar="Q")
    add(
        "--no-precompute",
        dest="precompute",
        action="store_false",
        help="compute ĀX of every batch",
    )
    add("--inductive", action="store_true")
    add("--standardise", action="store_true")
    add("--epochs", type=int, default=40, help="epochs of the baseline")
    add("--lr", type=float, default=0.01, help="learning rate of the baseline")
    add("--sub-gcns", type=int, nargs="+", default=[2, 4, 8], metavar="M")
    add("--gist-epochs", type=int, nargs="+", metavar="E", help="epochs, one value or one per m (default: as baseline)")
    add("--gist-lr", type=float, nargs="+", metavar="LR", help="rates, one or one per m (default: as baseline)")
    add("--runner", choices=("in-turn", "fused"), default="in-turn")
    add("--local-steps", type=int, default=20)
    add("--schedule", choices=("constant", "step", "cosine"), default="constant")
    add("--optimizer-state", choices=("reset", "carry"), default="reset")
    add("--precision", choices=("float32", "bf16"), default="float32")
    add("--evaluate-every", type=int, default=1, metavar="K", help="rounds between evaluations")
    add("--seeds", type=int, nargs="+", default=[0])
    add("--device", default="cpu")
    add("--threads", type=int, default=os.cpu_count())
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
