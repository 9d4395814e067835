"""The best score that a budget of time buys: ordinary training, the paper's GIST, and recipes of phases.

Ordinary training has runs of several lengths and learning rates. Its frontier at a budget is the best of these runs.
The settings take turns, in an order of its own for every seed, so that other work on the machine slows all alike. All
have a cosine schedule and the fused runner, and score the whole graph at their end; recipes also at the end of every
phase. Every run is written down at once. The same command goes on where it was stopped.
"""

import argparse
import json
import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.frontier_points import name_of
from benchmarks.frontier_report import report
from benchmarks.runs_file import FILE, append, read
from benchmarks.tables import describe_machine
from gistgnn import GIST
from gistgnn.cli.phases import parse_phase
from gistgnn.errors import DivergedError, InputError
from gistgnn.evaluation.scores import selection_metric
from gistgnn.graphs import Graph, Standardisation, load
from gistgnn.nn import MODELS
from gistgnn.sampling import ClusterSampling
from gistgnn.schedule import check_phases
from gistgnn.settings import BUDGET_LR, Training
from gistgnn.storage.whole_files import check_writable

PAPER_SUB_GCNS, PAPER_RATE = 8, 0.01
WHOLE = 10**9  # steps in a round: a run or phase is one round

GRAPH = ("dataset", "inductive", "standardise", "clusters", "clusters_per_batch", "precompute")
CASE = (*GRAPH, "model", "hidden", "dropout", "norm", "precision", "device", "threads")


def main(words: Sequence[str] | None = None) -> None:
    """Train what is not yet in the folder, and print the report."""
    options = parse(words)
    if not options.report:
        try:
            measure(options)
        except InputError as error:
            raise SystemExit(f"error: {error}") from None
        except KeyboardInterrupt:
            print("stopped; the same command goes on with the next run", file=sys.stderr)
            raise SystemExit(130) from None
    print(report(read((options.report or options.out) / FILE), options.plot))


def measure(options: argparse.Namespace) -> None:
    """Train every setting with every seed, except for the runs that are in the folder."""
    torch.set_num_threads(options.threads)
    check_writable(options.out)
    case = {name: getattr(options, name) for name in CASE}
    done = {identity(run) for run in read(options.out / FILE)}
    runs: list[dict[str, Any]] = [{"case": case, "setting": setting, "seed": seed} for seed, setting in turns(options)]
    left = [run for run in runs if identity(run) not in done]
    print(f"{len(runs)} runs, {len(runs) - len(left)} of them done", file=sys.stderr, flush=True)
    if not left:
        return
    graph = load(options.dataset, options.data_root)
    if options.standardise:
        graph = Standardisation.of(graph).graph(graph)
    for setting in settings(options):
        check(graph, setting, options)
    about = {"graph": str(graph), "machine": describe_machine(options.threads, options.device)}
    warm: int | None = None
    for number, run in enumerate(left, 1):
        if run["seed"] != warm:
            warm_up(graph, run["seed"], options)
            warm = run["seed"]
        found = train(graph, run["setting"], run["seed"], options)
        append(options.out / FILE, {**run, **found, **about, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
        score = "diverged" if found["test"] is None else f"{100 * found['test']:.2f} %"
        words = f"{name_of(run['setting'])}, seed {run['seed']}: {score} in {found['train_seconds']:.2f} s"
        print(f"[{number}/{len(left)}] {words}", file=sys.stderr, flush=True)


def settings(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return all settings. A setting with its seed says everything about a run that is not the same for all runs."""
    grid = [{"epochs": epochs, "lr": lr} for epochs in options.ordinary for lr in options.lr]
    found: list[dict[str, Any]] = [{"kind": "ordinary", **each} for each in grid]
    found += [{"kind": "narrow", "part": m, **each} for m in options.narrow for each in grid]
    zeta = options.local_steps
    found += [{"kind": "paper", "epochs": epochs, "local_steps": zeta} for epochs in options.paper]
    for phases in options.recipe:
        redraws = any(parse_phase(text).redraw_every for text in phases.split())
        found.append({"kind": "recipe", "phases": phases, **({"local_steps": zeta} if redraws else {})})
    found += [{"kind": "budget", "seconds": seconds} for seconds in options.budget]
    return [each for place, each in enumerate(found) if each not in found[:place]]


def turns(options: argparse.Namespace) -> list[tuple[int, dict[str, Any]]]:
    """Return all runs as (seed, setting): seed after seed, each with all settings in an order of its own."""
    found = []
    for seed in dict.fromkeys(options.seeds):
        order = settings(options)
        random.Random(seed).shuffle(order)
        found += [(seed, setting) for setting in order]
    return found


def identity(run: dict[str, Any]) -> str:
    """Return what tells a run from all others: the graph and the model, the setting, the seed."""
    return json.dumps([run[key] for key in ("case", "setting", "seed")], sort_keys=True)


def training_of(setting: dict[str, Any], precision: str) -> Training:
    """Return the settings of `GIST.fit`. Where no blocks are redrawn, a run or phase is one round."""
    zeta = setting.get("local_steps", WHOLE)
    same: dict[str, Any] = {"schedule": "cosine", "precision": precision, "evaluate_every": WHOLE}
    if setting["kind"] == "paper":
        return Training(setting["epochs"], zeta, lr=PAPER_RATE, optimizer_state="carry", **same)
    if setting["kind"] == "budget":
        return Training(budget=setting["seconds"], lr=BUDGET_LR, precision=precision)
    if setting["kind"] == "recipe":
        phases = tuple(parse_phase(text) for text in setting["phases"].split())
        return Training(phases=phases, local_steps=zeta, redraw_every=0, cross_weights="zero", **same)
    return Training(setting["epochs"], zeta, lr=setting["lr"], **same)


def make(graph: Graph, setting: dict[str, Any], seed: int, options: argparse.Namespace) -> GIST:
    """Return the trainer of a setting."""

    def build(widths: Any) -> nn.Module:
        model: nn.Module = MODELS[options.model](
            graph.num_features, widths, graph.num_classes, dropout=options.dropout, norm=options.norm
        )
        return model

    phases = training_of(setting, options.precision).phases
    m = PAPER_SUB_GCNS if setting["kind"] == "paper" else max((phase.sub_gcns for phase in phases), default=1)
    widths = [width // setting.get("part", 1) for width in options.hidden]
    return GIST(build, widths, m, seed=seed, device=options.device)


def check(graph: Graph, setting: dict[str, Any], options: argparse.Namespace) -> None:
    """Raise InputError if the widths do not fit a setting, before anything is trained."""
    if any(width % setting.get("part", 1) for width in options.hidden):
        raise InputError(f"hidden is {options.hidden}, which {setting['part']} (--narrow) does not divide")
    check_phases(training_of(setting, options.precision).phases, make(graph, setting, 0, options).partition)


def train(graph: Graph, setting: dict[str, Any], seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train once and return the scores and the times. Scores are None if the training diverged.

    "test" is the test score at the best validation score, "last" the one at the end. "train_seconds" is without
    evaluation, "total_seconds" with everything: the first batch, evaluation.
    """
    gist = make(graph, setting, seed, options)
    training = training_of(setting, options.precision)
    try:
        result = fit(gist, graph, training, options)
    except DivergedError as error:
        result = error.result
    progress, metric = result.progress, selection_metric(graph)
    return {
        "train_seconds": progress.train_seconds,
        "total_seconds": sum(progress.seconds.values()),
        "seconds": dict(progress.seconds),
        "steps": progress.steps,
        "chosen": progress.chosen,
        "validation": progress.best["validation"][metric] if progress.best else None,
        "test": progress.best["test"][metric] if progress.best else None,
        "last": progress.last["test"][metric] if progress.best else None,
    }


def fit(gist: GIST, graph: Graph, training: Training, options: argparse.Namespace) -> Any:
    """Run `GIST.fit` with the batches of the command line."""
    clusters = options.clusters
    sampler = ClusterSampling(clusters, options.clusters_per_batch, precompute=options.precompute) if clusters else None
    return gist.fit(
        graph, training, sampler=sampler, runner="fused", inductive=options.inductive, progress=False
    )  # fmt: skip


def warm_up(graph: Graph, seed: int, options: argparse.Namespace) -> None:
    """Train a little, so that no run finds the clusters missing in the cache, or torch's code not yet loaded."""
    small = argparse.Namespace(**{**vars(options), "hidden": [8 for _ in options.hidden]})
    logging.disable(logging.WARNING)  # of weights that so short a run does not train
    try:
        for setting in ({"kind": "ordinary", "epochs": 1, "lr": 1e-3}, {"kind": "paper", "epochs": 1}):
            fit(make(graph, setting, seed, small), graph, training_of(setting, options.precision), options)
    finally:
        logging.disable(logging.NOTSET)


def recipe(text: str) -> str:
    """Check the phases of a recipe, and return them with single spaces."""
    if not text.split():
        raise argparse.ArgumentTypeError("there are no phases: give at least one, such as 8:20")
    for phase in text.split():
        parse_phase(phase)
    return " ".join(text.split())


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier", description=__doc__)
    add = parser.add_argument
    add("--dataset", help="required, unless --report is given")
    add("--data-root", type=Path, default=Path("data"))
    add("--model", choices=tuple(MODELS), default="graphsage")
    add("--hidden", type=int, nargs="+", default=[1024, 1024], metavar="D")
    add("--dropout", type=float, default=0.2)
    add("--norm", choices=("none", "layer", "batch"), default="layer")
    add("--clusters", type=int, metavar="C", help="number of clusters (default: every step sees the whole graph)")
    add("--clusters-per-batch", type=int, default=10, metavar="Q")
    add("--no-precompute", dest="precompute", action="store_false", help="compute ĀX of every batch")
    add("--inductive", action="store_true")
    add("--standardise", action="store_true")
    add("--ordinary", type=int, nargs="*", default=[2, 5, 10, 20], metavar="E", help="epochs of ordinary training")
    add("--lr", type=float, nargs="+", default=[0.01, 0.003, 0.001], help="learning rates of ordinary training")
    add("--narrow", type=int, nargs="*", default=[], metavar="M", help="for reference, ordinary training of width d/M")
    add("--paper", type=int, nargs="*", default=[], metavar="E", help=f"epochs of GIST with m = {PAPER_SUB_GCNS}")
    text = "ζ of the paper's GIST, and of recipes that redraw blocks"
    add("--local-steps", type=int, default=20, metavar="N", help=text)
    text = "phases, such as '16:10,copies 8:8,lr=0.003'; may be given several times (see gistgnn train --phases)"
    add("--recipe", type=recipe, action="append", default=[], metavar="PHASES", help=text)
    add(
        "--budget",
        type=float,
        nargs="*",
        default=[],
        metavar="S",
        help="budgets in seconds (see gistgnn train --budget)",
    )
    add("--precision", choices=("float32", "bf16"), default="float32")
    add("--seeds", type=int, nargs="+", default=[0])
    add("--device", default="cpu")
    add("--threads", type=int, default=os.cpu_count())
    add("--out", type=Path, default=Path("runs/frontier"), metavar="FOLDER", help="folder of the finished runs")
    add("--report", type=Path, metavar="FOLDER", help="train nothing, and print the report of this folder")
    add("--plot", type=Path, metavar="FILE.png")
    options = parser.parse_args(words)
    if not options.dataset and not options.report:
        parser.error("--dataset or --report is required")
    return options


if __name__ == "__main__":
    main()
