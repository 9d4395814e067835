"""PyG's GCN and GraphSAGE through `fit` beside ours: in turn, fused and auto, taking turns round by round."""

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import nn

from benchmarks.tables import describe_machine, number, on, table
from gistgnn import GIST, Callback
from gistgnn.fit.callbacks import Run
from gistgnn.graphs import Graph, load
from gistgnn.nn import GCN, GraphSAGE
from gistgnn.runners.registry import RunnerName
from gistgnn.sampling import ClusterSampling

RUNNERS: tuple[RunnerName, ...] = ("in-turn", "fused", "auto")
CLOSE_TO_OURS, CLOSE_TO_BEST = 1.3, 1.05  # the targets
HIDDEN_LAYERS, DROPOUT, CLUSTERS = 2, 0.5, 150


@dataclass
class Contender:
    """One run of `fit`.

    Attributes:
        rounds: the seconds of its rounds.
    """

    model: str
    whose: str
    runner: RunnerName
    width: int
    sub_gcns: int
    per_batch: int
    rounds: list[float] = field(default_factory=list)

    @property
    def counted(self) -> list[float]:
        """The seconds of all rounds but the first, which loads code."""
        return self.rounds[1:]

    def over(self, other: "Contender") -> list[float]:
        """Return how many times as long as another run it took: lower quartile, median, upper quartile."""
        ratios = [mine / theirs for mine, theirs in zip(self.counted, other.counted, strict=True)]
        return statistics.quantiles(ratios, n=4, method="inclusive")


def main() -> None:
    """Measure, and print a table for every setting."""
    options = parse()
    logging.getLogger("gistgnn").setLevel(logging.ERROR)  # the runs are short, and leave parameters untrained
    machine = describe_machine(torch.get_num_threads(), "cpu")
    print(f"# PyG's models and ours\n\n{on(machine)}\n", flush=True)
    graph, record, lines = load("amazon-computers", options.data_root), [], []
    for per_batch, width, m, model in product(options.per_batch, options.widths, options.sub_gcns, options.models):
        setting = width, m, per_batch
        contenders = [Contender(model, whose, runner, *setting) for whose in ("ours", "PyG") for runner in RUNNERS]
        take_turns(contenders, graph, options)
        lines.append(row(contenders, options.local_steps))
        print(" | ".join(lines[-1]), flush=True)
        record += [vars(each) for each in contenders]
    print(f"\n{table(HEAD, lines)}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "arguments": sys.argv[1:], "runs": record}, indent=1))


def take_turns(contenders: list[Contender], graph: Graph, options: argparse.Namespace) -> None:
    """Run all contenders, of which one at a time trains a round."""
    turns = [Semaphore(0) for _ in contenders]

    def run(number: int) -> None:
        contender, passes_on = contenders[number], turns[(number + 1) % len(turns)].release
        turns[number].acquire()
        begun = time.perf_counter()

        def advance(done: int, of: int) -> None:
            nonlocal begun
            if done:
                contender.rounds.append(time.perf_counter() - begun)
            if done < of:
                passes_on()
                turns[number].acquire()
            begun = time.perf_counter()

        try:
            train(contender, graph, advance, options)
        finally:
            passes_on()

    threads = [Thread(target=run, args=(number,)) for number in range(len(contenders))]
    for thread in threads:
        thread.start()
    turns[0].release()
    for thread in threads:
        thread.join()


def train(contender: Contender, graph: Graph, advance: Callable[[int, int], None], options: argparse.Namespace) -> None:
    """Train for some rounds."""
    width, m = contender.width, contender.sub_gcns
    sampler = ClusterSampling(CLUSTERS, contender.per_batch)
    GIST(
        lambda given: build(contender, given, graph.num_features, graph.num_classes),
        width if contender.whose == "PyG" else (width,) * HIDDEN_LAYERS,
        m,
    ).fit(
        graph,
        sampler=sampler,
        runner=contender.runner,
        epochs=options.rounds * options.local_steps * m,  # at least so many rounds; `stop` ends the run
        local_steps=options.local_steps,
        optimizer_state="carry",
        evaluate_every=options.rounds + 1,
        callbacks=[Turns(contender, advance, options.rounds)],
        progress=False,
    )


class Turns(Callback):
    """Waits for the next turn after every round; ends the run after some rounds."""

    def __init__(self, contender: Contender, advance: Callable[[int, int], None], rounds: int) -> None:
        self._contender, self._advance, self._rounds = contender, advance, rounds

    def on_fit_begin(self, run: Run) -> None:
        self._advance(run.round, self._rounds)

    def on_round_end(self, run: Run, loss: float) -> None:
        self._advance(run.round, self._rounds)
        if len(self._contender.rounds) == self._rounds:
            run.interrupt()


def build(contender: Contender, widths: Any, features: int, classes: int) -> nn.Module:
    """Build a model of PyG or of ours."""
    if contender.whose == "PyG":
        kind = pyg.GCN if contender.model == "gcn" else pyg.GraphSAGE
        model: nn.Module = kind(features, widths, HIDDEN_LAYERS + 1, classes, dropout=DROPOUT)
        return model
    ours = GCN if contender.model == "gcn" else GraphSAGE
    return ours(features, widths, classes, dropout=DROPOUT, norm="none")


HEAD = [
    "model",
    "width",
    "m",
    "clusters",
    "ours: in turn, fused, auto",
    "PyG",
    "auto / better: ours",
    "PyG",
    "PyG / ours",
]


def row(contenders: list[Contender], local_steps: int) -> list[str]:
    """Return the milliseconds of a step of all sub-GCNs, and ratios with their quartiles."""
    found = {(each.whose, each.runner): each for each in contenders}
    steps, to_best = [], []
    for whose in ("ours", "PyG"):
        own = [found[whose, runner] for runner in RUNNERS]
        steps.append(", ".join(number(1e3 * statistics.median(each.counted) / local_steps) for each in own))
        better = min(own[:2], key=lambda each: statistics.median(each.counted))
        to_best.append(ratio(own[2].over(better), CLOSE_TO_BEST))
    to_ours = ratio(found["PyG", "auto"].over(found["ours", "auto"]), CLOSE_TO_OURS)
    first = contenders[0]
    return [first.model, *map(str, (first.width, first.sub_gcns, first.per_batch)), *steps, *to_best, to_ours]


def ratio(quartiles: Iterable[float], largest: float) -> str:
    """Return a ratio with its quartiles; an exclamation mark says that its median is above the target."""
    low, median, high = quartiles
    return f"{median:.2f} ({low:.2f}–{high:.2f}){' !' if median > largest else ''}"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pyg_speed", description=__doc__)
    add = parser.add_argument
    add("--data-root", default="data")
    add("--models", nargs="+", default=["gcn", "graphsage"], choices=["gcn", "graphsage"])
    add("--widths", type=int, nargs="+", default=[64, 256, 1024])
    add("--sub-gcns", type=int, nargs="+", default=[2, 4, 8], metavar="M")
    add("--per-batch", type=int, nargs="+", default=[10], metavar="Q", help=f"of {CLUSTERS} clusters in a batch")
    add("--local-steps", type=int, default=10)
    add("--rounds", type=int, default=7, help="of each run; the first is not counted")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
