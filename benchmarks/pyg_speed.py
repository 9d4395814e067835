"""PyG's GCN and GraphSAGE through `fit` beside ours: in turn, fused and auto, taking turns round by round."""

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import nn

from benchmarks.tables import describe_machine, number, on, table
from gistgnn import GIST
from gistgnn.graphs import Graph, load
from gistgnn.nn import GCN, GraphSAGE
from gistgnn.runners.registry import RunnerName
from gistgnn.sampling import ClusterSampling

RUNNERS: tuple[RunnerName, ...] = ("in-turn", "fused", "auto")
CLOSE_TO_OURS, CLOSE_TO_BEST = 1.3, 1.05  # the targets
HIDDEN_LAYERS, DROPOUT, LOCAL_STEPS = 2, 0.5, 15


@dataclass
class Contender:
    """One run of `fit`.

    Attributes:
        rounds: the seconds of its rounds.
        chosen: the runner in use.
    """

    model: str
    whose: str
    runner: RunnerName
    width: int
    rounds: list[float] = field(default_factory=list)
    chosen: str = ""

    @property
    def step(self) -> float:
        """Milliseconds of a step of all sub-GCNs: the median over rounds, of which the first loads code."""
        return 1e3 * statistics.median(self.rounds[1:]) / LOCAL_STEPS


def main() -> None:
    """Measure, and print tables and targets."""
    options = parse()
    logging.getLogger("gistgnn").setLevel(logging.ERROR)  # the runs are short, and leave parameters untrained
    machine = describe_machine(torch.get_num_threads(), "cpu")
    print(f"# PyG's models and ours\n\n{on(machine)}\n", flush=True)
    graph, record = load("amazon-computers", options.data_root), []
    for width in options.widths:
        for model in ("gcn", "graphsage"):
            contenders = [Contender(model, whose, runner, width) for whose in ("ours", "PyG") for runner in RUNNERS]
            take_turns(contenders, graph, options)
            print(f"## {model}, width {width}, m = {options.sub_gcns}\n\n{rows(contenders)}\n", flush=True)
            record += [{**vars(each), "step_ms": each.step} for each in contenders]
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
    sampler, width = ClusterSampling(options.clusters), contender.width
    per_epoch = options.clusters // sampler.clusters_per_batch
    result = GIST(
        lambda given: build(contender, given, graph.num_features, graph.num_classes),
        width if contender.whose == "PyG" else (width,) * HIDDEN_LAYERS,
        options.sub_gcns,
    ).fit(
        graph,
        sampler=sampler,
        runner=contender.runner,
        epochs=options.rounds * LOCAL_STEPS * options.sub_gcns // per_epoch,
        local_steps=LOCAL_STEPS,
        optimizer_state="carry",
        evaluate_every=options.rounds,
        advance=advance,
        progress=False,
    )
    contender.chosen = result.runner[0]["used"] if result.runner else contender.runner


def build(contender: Contender, widths: Any, features: int, classes: int) -> nn.Module:
    """Build a model of PyG or of ours."""
    if contender.whose == "PyG":
        kind = pyg.GCN if contender.model == "gcn" else pyg.GraphSAGE
        model: nn.Module = kind(features, widths, HIDDEN_LAYERS + 1, classes, dropout=DROPOUT)
        return model
    ours = GCN if contender.model == "gcn" else GraphSAGE
    return ours(features, widths, classes, dropout=DROPOUT, norm="none")


def rows(contenders: list[Contender]) -> str:
    """Return a table with the ratios, and whether they meet the targets."""
    steps = {(each.whose, each.runner): each.step for each in contenders}
    lines = []
    for each in contenders:
        best = min(steps[each.whose, "in-turn"], steps[each.whose, "fused"])
        to_ours, to_best = each.step / steps["ours", each.runner], each.step / best
        met = (each.whose == "ours" or to_ours <= CLOSE_TO_OURS) and (each.runner != "auto" or to_best <= CLOSE_TO_BEST)
        runner = f"auto ({each.chosen})" if each.runner == "auto" else each.runner
        ratios = [f"{to_ours:.2f}" if each.whose == "PyG" else "", f"{to_best:.2f}" if each.runner == "auto" else ""]
        lines.append([each.whose, runner, number(each.step), *ratios, "yes" if met else "no"])
    head = ["model", "runner", "ms for a step of all", "PyG / ours", "auto / better", "target met"]
    return table(head, lines)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pyg_speed", description=__doc__)
    add = parser.add_argument
    add("--data-root", default="data")
    add("--widths", type=int, nargs="+", default=[256, 1024])
    add("--sub-gcns", type=int, default=8, metavar="M")
    add("--clusters", type=int, default=150)
    add("--rounds", type=int, default=5, help="of each run; the first is not counted")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
