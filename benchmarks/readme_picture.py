"""Draws the README's picture: test accuracy against training time, ordinary training beside GIST.

Every dot is a finished run. Runs of several lengths are made for both methods, because the question is what a budget
of time buys, and a short run of ordinary training is a strong competitor. The runs take turns, round by round, so that
other work on the machine slows all of them alike; the clock of a run stands still while it waits.
"""

import argparse
import json
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.tables import describe_machine, on

WIDTH, LEARNING_RATE, ROUND = 1024, 0.01, 15  # an epoch has 15 batches: 150 clusters, 10 in a batch
COLOURS = {"#010101": "ink", "#020202": "grid", "#030303": "card", "#040404": "first", "#050505": "second"}
STYLE = """<style>
svg { --ink: #24292f; --grid: #d8dee4; --card: #ffffff; --first: #0b6bcb; --second: #c2410c;
      font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", Helvetica, Arial, sans-serif }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --grid: #30363d; --card: #0d1117; --first: #58a6ff; --second: #ff9b57 } }
</style>"""


def main() -> None:
    """Train, unless `--draw-only` is given, and draw."""
    options = parse()
    if not options.draw_only:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(measure(options), indent=1) + "\n")
    measured = json.loads(options.json.read_text())
    draw(measured, options.picture)
    print(f"{on(measured['machine'])}\n")
    for run in measured["runs"]:
        print(f"m = {run['sub_gcns']}, {run['epochs']} epochs: {run['accuracy']:.2f} % in {run['seconds']:.1f} s")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run every setting in a process of its own, one process at a time."""
    settings = [(1, epochs) for epochs in options.epochs] + [(8, epochs) for epochs in options.gist_epochs]
    context = multiprocessing.get_context("spawn")
    pipes = []
    for setting in settings:
        ours, theirs = context.Pipe()
        context.Process(target=train, args=(theirs, *setting, options), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    runs: dict[int, dict[str, Any]] = {}
    while len(runs) < len(pipes):
        for number, pipe in enumerate(pipes):
            if number in runs:
                continue
            pipe.send("go")
            if (answer := pipe.recv()) is not None:
                runs[number] = answer
                print(f"m = {answer['sub_gcns']}, {answer['epochs']} epochs: done", file=sys.stderr, flush=True)
    machine = describe_machine(options.threads, "cpu")
    return {"machine": machine, "arguments": sys.argv[1:], "runs": [runs[number] for number in sorted(runs)]}


def train(pipe: Connection, sub_gcns: int, epochs: int, options: argparse.Namespace) -> None:
    """Train once, a round for every "go" that comes through the pipe, and send the result."""
    pipe.recv()
    import torch

    from gistgnn import GIST
    from gistgnn.fit.callbacks import InterruptWhen
    from gistgnn.graphs import Standardisation, load
    from gistgnn.nn import GraphSAGE
    from gistgnn.sampling import ClusterSampling

    def wait_for_turn() -> bool:
        pipe.send(None)
        pipe.recv()
        return False

    torch.set_num_threads(options.threads)
    graph = load("amazon-computers", options.data_root)
    graph = Standardisation.of(graph).graph(graph)
    gist = GIST(
        lambda widths: GraphSAGE(graph.num_features, widths, graph.num_classes, dropout=0.2, norm="layer"),
        (options.width, options.width),
        sub_gcns,
    )
    rounds = max(1, round(epochs / sub_gcns))
    result = gist.fit(
        graph,
        sampler=ClusterSampling(150, 10),
        runner="fused" if sub_gcns > 1 else "in-turn",
        progress=False,
        callbacks=[InterruptWhen(wait_for_turn)],
        epochs=epochs,
        local_steps=ROUND,
        lr=LEARNING_RATE,
        schedule="cosine",
        optimizer_state="carry",
        evaluate_every=max(1, rounds // 8),
    )
    curve = [(entry["train_seconds"], 100 * entry["test"]) for entry in result.history]
    run = {"sub_gcns": sub_gcns, "epochs": epochs, "seconds": curve[-1][0], "accuracy": curve[-1][1], "curve": curve}
    pipe.send(run)


def draw(measured: dict[str, Any], picture: Path) -> None:
    """Write the picture as SVG with colours for light and dark pages."""
    os.environ.setdefault("MPLBACKEND", "svg")
    import matplotlib.pyplot as plt

    ink, grid, card, first, second = COLOURS
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gistgnn", "font.size": 12, "text.color": ink})
    plt.rcParams.update(dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), ink))
    figure, axes = plt.subplots(figsize=(8, 4.4), facecolor=card)
    axes.set_facecolor(card)
    for m, colour, marker, name, beside in (
        (8, first, "o", "GIST (m = 8)", {"xytext": (-8, 7), "ha": "right"}),
        (1, second, "s", "ordinary training (m = 1)", {"xytext": (8, -14), "ha": "left"}),
    ):
        runs = [run for run in measured["runs"] if run["sub_gcns"] == m]
        for run in runs:
            place = run["seconds"], run["accuracy"]
            axes.annotate(f"{run['epochs']} epochs", place, textcoords="offset points", fontsize=10, **beside)
        ends = [[run[key] for run in runs] for key in ("seconds", "accuracy")]
        axes.plot(*ends, color=colour, marker=marker, markersize=8, linewidth=2.2, label=name)
    axes.set(xscale="log", xlabel="seconds of training (evaluation not counted)", ylabel="test accuracy, %")
    lowest, highest = (choose(run["accuracy"] for run in measured["runs"]) for choose in (min, max))
    axes.set_ylim(lowest - 2, highest + 1.5)
    shortest, longest = (choose(run["seconds"] for run in measured["runs"]) for choose in (min, max))
    axes.set_xlim(shortest * 0.6, longest * 1.7)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if shortest * 0.6 < tick < longest * 1.7]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.grid(color=grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", facecolor=card, edgecolor=grid)
    axes.set_title("Amazon Computers, GraphSAGE with two hidden layers of 1024", fontsize=12, loc="left")
    figure.text(0.01, 0.01, caption(measured["machine"]), fontsize=9)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, format="svg", facecolor=card, metadata={"Date": None})
    text = picture.read_text()
    for placeholder, variable in COLOURS.items():
        text = text.replace(placeholder, f"var(--{variable})")
    text = text.replace("<defs>", f"{STYLE}\n <defs>", 1)
    picture.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def caption(machine: dict[str, Any]) -> str:
    """Return the hardware and the settings in one line."""
    threads = f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"
    return f"{machine['cpu']}, {threads}. Each dot is one finished run with a cosine schedule; one seed, rate 0.01."


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme_picture", description=__doc__)
    add = parser.add_argument
    images = Path("docs/images")
    add("--data-root", type=Path, default=Path("../shared/data"))
    add("--width", type=int, default=WIDTH)
    add("--epochs", type=int, nargs="+", default=[3, 5, 10, 20, 40], help="of ordinary training")
    add("--gist-epochs", type=int, nargs="+", default=[30, 60, 120], help="of GIST, m = 8")
    add("--threads", type=int, default=os.cpu_count())
    add("--json", type=Path, default=images / "accuracy-against-time.json", help="where the measurements go")
    add("--picture", type=Path, default=images / "accuracy-against-time.svg")
    add("--draw-only", action="store_true", help="draw the measurements that are in --json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
