"""Scores of models of every width at equal time, on one worker and on m workers.

    python -m benchmarks.width.clocks hops.npz --clusters 84 --time --seconds 37 74 \\
        --lr 0.005 0.01 0.02
    python -m benchmarks.width.clocks hops.npz --clusters 84 --seconds 37 --lr 0.02 --workers 4 \\
        --methods parts gist local-sgd data-parallel ensemble --widths 256

The graph is one of `benchmarks.width.hops`. `--time` measures an epoch of each width; use it with
nothing beside it. A worker of width w then trains for as many epochs as fit into the seconds,
whatever else the machine does: "ordinary" is one worker, "parts" are m narrow models that are
joined at the end, an "ensemble" averages their outputs, "gist" are m sub-GCNs that are drawn anew
after ζ steps, the others have one model on all workers. One process trains them all. The exchange
between rounds is by formula: bytes that a worker sends, over the rate. Every learning rate is
tried, and the best validation score counts. Finished runs stay in ``--runs``.
"""

import argparse
import json
import statistics
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.tables import number, table
from gistgnn import GIST
from gistgnn.baselines import DataParallel, Ensemble, LocalSGD, Parts
from gistgnn.graphs import Graph, load
from gistgnn.nn import GCN
from gistgnn.sampling import ClusterSampling
from gistgnn.storage.json_files import write_json

METHODS: dict[str, type[GIST]] = {
    "ordinary": GIST,
    "gist": GIST,
    "parts": Parts,
    "ensemble": Ensemble,
    "local-sgd": LocalSGD,
    "data-parallel": DataParallel,
}
WHOLE = ("local-sgd", "data-parallel")  # methods of which every worker trains the full model
TIMED = 2  # epochs of a timed run
TIMINGS = (1003, 1002, 1001)  # seeds of the timed runs
TOGETHER = 10  # clusters in a batch: random ones, so that batches differ from epoch to epoch
LONG = 10**9  # steps of a round that ends with the run
GIGABIT = 125e6  # bytes a second


def trained(graph: Graph, options: argparse.Namespace, run: dict[str, Any]) -> dict[str, float]:
    """Train one setting; return seconds, scores in percent, and bytes that a worker sends."""
    method = run["method"]
    m = run["workers"]
    width = run["width"] * (1 if method in WHOLE else m)

    def build(widths: tuple[int, ...]) -> GCN:
        classes = graph.num_classes
        return GCN(graph.num_features, widths, classes, dropout=options.dropout, norm="layer")

    gist = METHODS[method](build, (width, width), m, seed=run["seed"])
    clusters = options.clusters * TOGETHER
    batches = "independent" if m > 1 else "shared"
    sampling = ClusterSampling(clusters, TOGETHER, "random", batches=batches)
    result = gist.fit(
        graph,
        "each",
        sampler=sampling,
        inductive=True,
        progress=False,
        epochs=run["epochs"],
        lr=run["lr"],
        schedule="cosine",
        optimizer_state="carry",
        evaluate_every=LONG,
        local_steps=options.local_steps if method in ("gist", "local-sgd") else LONG,
    )
    sent = result.traffic.bytes_per_round * result.rounds
    sent += result.traffic.bytes_per_step * result.steps / m
    scores = {part: 100 * result.progress.best[part]["accuracy"] for part in ("validation", "test")}
    return {"seconds": result.progress.train_seconds, "bytes": sent * (m > 1), **scores}


def once(options: argparse.Namespace, **run: Any) -> dict[str, float]:
    """Return what a run gave; train it if it is not in the file of runs."""
    path: Path = options.runs
    results: dict[str, dict[str, float]] = {}
    if path.exists():
        results = json.loads(path.read_text(encoding="utf-8"))
    setting = {"graph": Path(options.graph).name, "dropout": options.dropout, **run}
    key = json.dumps(setting, sort_keys=True)
    if key not in results:
        options.loaded = options.loaded or load(options.graph)
        results[key] = trained(options.loaded, options, run)
        write_json(path, results)
        print(key, results[key], flush=True)
    return results[key]


def main() -> None:
    """Time the widths, train what is not in the file yet, and print the table."""
    options = parse()
    one = {"method": "ordinary", "workers": 1, "epochs": TIMED, "lr": 0.005}
    timed = TIMINGS if options.time or options.seconds else ()
    times = {
        (seed, w): once(options, **one, width=w, seed=seed)["seconds"]
        for seed, w in product(timed, options.widths)
    }
    rows = defaultdict(list)
    for seed, seconds, method, width in product(
        options.seeds, options.seconds, options.methods, options.widths
    ):
        epoch = statistics.median(times[timing, width] for timing in TIMINGS) / TIMED
        m = 1 if method == "ordinary" else options.workers
        epochs = max(round(seconds / epoch), 1)
        setting = {"method": method, "workers": m, "width": width, "epochs": epochs, "seed": seed}
        tried = []
        for lr in options.lr:
            result = once(options, **setting, lr=lr)
            tried.append({**result, "lr": lr, "spent": epochs * epoch})
        best = max(tried, key=lambda run: run["validation"])
        rows[seconds, method, m, width, epochs].append(best)
    head = ["s", "method", "m", "width", "epochs", "lr", "test, %", "GB", "s at 1 Gbit/s"]
    print(table(head, [row(setting, runs) for setting, runs in rows.items()]))


def row(setting: tuple[Any, ...], runs: list[dict[str, Any]]) -> list[str]:
    """Return a row of the table: a setting, and its runs with all seeds."""
    _, *names = setting
    tests = [run["test"] for run in runs]
    scores = f"{statistics.fmean(tests):.2f}"
    if len(tests) > 1:
        scores += f" ± {statistics.stdev(tests):.2f}"
    rates = ", ".join(sorted({f"{run['lr']:g}" for run in runs}))
    sent = runs[0]["bytes"]
    cells = [number(runs[0]["spent"]), *map(str, names), rates, scores]
    return [*cells, f"{sent / 1e9:.2f}", number(sent / GIGABIT)]


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.width.clocks", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("graph", help="a file of benchmarks.width.hops")
    widths = [64, 128, 256, 512, 1024]
    of_time = "measure the seconds of an epoch, if nothing is trained"
    add("--time", action="store_true", help=of_time)
    add("--widths", type=int, nargs="+", default=widths, metavar="W", help="of a worker's model")
    add("--seconds", type=float, nargs="*", default=[], metavar="S")
    add("--methods", nargs="+", choices=METHODS, default=["ordinary"])
    add("--workers", type=int, default=4, metavar="M", help="m; ordinary training has one")
    add("--lr", type=float, nargs="+", default=[0.005])
    add("--dropout", type=float, default=0.1)
    add("--local-steps", type=int, default=50, help="ζ of gist and local SGD")
    add("--clusters", type=int, required=True, help="batches in an epoch")
    add("--seeds", type=int, nargs="+", default=[0])
    add("--runs", type=Path, default=Path("runs/clocks.json"), help="the file of finished runs")
    parser.set_defaults(loaded=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
