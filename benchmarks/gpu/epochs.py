"""Whole runs on a GPU, on graphs of the shape of the paper's large ones.

One of them has the widest model, with Θ on the host.
"""

import argparse
import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import torch

from benchmarks.tables import number, table
from gistgnn.cli.main import main as command_line
from gistgnn.cli.main import make_parser
from gistgnn.cli.training_options import config_from_args
from gistgnn.errors import InputError
from gistgnn.graphs import Graph, load

GIB = 2**30
EPOCHS = 8  # over all sub-GCNs: with m = 8 each sees every batch once
SAGE = ("--model", "graphsage", "--norm", "layer", "--dropout", "0.2", "--sampler", "clusters")
RANDOM = ("--set", "cluster_method=random")
HOST = ("--clusters", "60", "--store", "host", "--local-steps", "6")
HOST += ("--evaluation", "parts", "--set", "parts=60")
# The graph, the width, m, and more options. The number of clusters is in proportion to the paper's.
RUNS: tuple[tuple[str, int, tuple[int, ...], tuple[str, ...]], ...] = (
    ("synthetic:amazon2m@0.02", 1024, (1, 8), ("--clusters", "300")),
    ("synthetic:amazon2m@0.1", 1024, (1, 8), ("--clusters", "1500")),
    ("synthetic:amazon2m@0.1", 4096, (1, 8), ("--clusters", "1500")),
    ("synthetic:reddit@0.1", 256, (1, 8), ("--clusters", "150")),
    ("synthetic:amazon2m@0.004", 32768, (8,), HOST),
    ("synthetic:reddit@0.2", 1024, (1, 8), ("--clusters", "300")),
    ("synthetic:amazon2m@0.2", 1024, (1, 8), ("--clusters", "3000")),
)
SMALL = (("digits", 16, (1, 2), ("--clusters", "20")),)
HEAD = ("", "m", "steps", "training, s", "of m = 1 / it")
HEAD += ("batches and steps, s", "take and write, s", "evaluation, s")
HEAD += ("test", "peak, GiB", "planned", "planned / peak")


def measure(options: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> None:
    """Train every graph and width at every m; `keep` gets all that is known after each."""
    results: dict[str, Any] = {}
    name = ""
    graph = None
    warm_up(options.device)
    for dataset, width, counts, clustering in SMALL if options.small else RUNS:
        if dataset != name:
            name = dataset
            graph = load(dataset)
        for m in counts:
            words = ["--dataset", dataset, *SAGE, *RANDOM, *clustering]
            words += ["--hidden", width, width, "--sub-gcns", m]
            words += ["--epochs", EPOCHS, "--device", options.device, "--no-standardise"]
            key = f"{dataset}, {width}, m = {m}"
            facts = {"dataset": dataset, "width": width, "m": m}
            try:
                assert graph is not None
                results[key] = facts | run(words, graph)
            except (InputError, RuntimeError) as error:
                results[key] = facts | {"failed": str(error).splitlines()[0][:200]}
            keep(results)


def warm_up(device: str) -> None:
    """Train a small model once: the first kernels of a process take long, as they are loaded."""
    for m in (1, 2):
        words = ["--dataset", "digits", *SAGE, *RANDOM, "--clusters", 20]
        words += ["--hidden", 64, 64, "--sub-gcns", m]
        words += ["--epochs", 4, "--device", device, "--no-standardise"]
        run(words, load("digits"))


def run(words: list[Any], graph: Graph) -> dict[str, Any]:
    """Plan and train as the command line does; return the seconds, the score and the peaks."""
    parser = make_parser()
    args = parser.parse_args(["train", *map(str, words)])
    config = config_from_args(args, args.sub_gcns)
    planned = planned_peak(words)
    gist = config.trainer(graph.num_features, graph.num_classes)
    result = config.fit(gist, graph, progress=False)
    return {
        "planned_bytes": planned,
        "peak_bytes": result.peak_memory_bytes,
        "train_seconds": result.progress.train_seconds,
        "seconds": dict(result.progress.seconds),
        "steps": result.progress.steps,
        "rounds": result.progress.rounds,
        "test": result.progress.last["test"]["accuracy"],
    }


def planned_peak(words: list[Any]) -> int:
    """Return the peak on the device that `gistgnn plan` gives."""
    store = [] if "--store" in words else ["--store", "memory"]
    device = torch.device(words[words.index("--device") + 1]).type
    without = [str(word) for word in (*words, *store) if word != "--no-standardise"]
    printed = io.StringIO()
    with redirect_stdout(printed):
        command_line(["plan", *without, "--no-measure", "--json"])
    peak: int = json.loads(printed.getvalue())["options"][0]["peaks"][device]
    return peak


def page(results: dict[str, Any]) -> str:
    """Return the table of the runs."""
    seconds = {}
    for result in results.values():
        seconds[result["dataset"], result["width"], result["m"]] = result.get("train_seconds")
    rows = []
    for result in results.values():
        name = f"`{result['dataset']}`, {result['width']:,}"
        if "failed" in result:
            rows.append([name, str(result["m"]), result["failed"], *["—"] * (len(HEAD) - 3)])
            continue
        seconds_of_one = seconds.get((result["dataset"], result["width"], 1))
        seconds_of_parts = result["seconds"]
        planned = result["planned_bytes"]
        peak = result["peak_bytes"]
        rows.append(
            [
                name,
                str(result["m"]),
                str(result["steps"]),
                number(result["train_seconds"]),
                f"{seconds_of_one / result['train_seconds']:.2f}" if seconds_of_one else "—",
                number(seconds_of_parts["train"]),
                number(seconds_of_parts["take"] + seconds_of_parts["merge"]),
                number(seconds_of_parts["evaluate"]),
                f"{100 * result['test']:.2f}",
                f"{peak / GIB:.2f}",
                f"{planned / GIB:.2f}",
                f"{planned / peak:.2f}",
            ]
        )
    text = f"A run has {EPOCHS} epochs over all sub-GCNs; steps are those of each."
    return f"{text}\n\n{table(HEAD, rows)}"
