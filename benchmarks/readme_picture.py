"""Draws the README's picture: test accuracy against training time, ordinary training beside GIST.

    python -m benchmarks.readme_picture --data-root ../shared/data    # about ten minutes, on an idle machine

Every dot is a finished run. Runs of several lengths are made for both methods, because the question is what a time
buys, and a short run of ordinary training is a strong competitor.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.command import trained
from benchmarks.tables import describe_machine, on

TRAIN = (
    "--dataset amazon-computers --model graphsage --norm layer --dropout 0.2 --hidden 1024 1024 --standardise "
    "--sampler clusters --clusters 150 --lr 0.01 --schedule cosine --optimizer-state carry --local-steps 15"
)  # an epoch has 15 batches: 150 clusters, 10 in a batch
COLOURS = {"#010101": "ink", "#020202": "grid", "#030303": "card", "#040404": "first", "#050505": "second"}
STYLE = """<style>
svg { --ink: #24292f; --grid: #d8dee4; --card: #ffffff; --first: #0b6bcb; --second: #c2410c;
      font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", Helvetica, Arial, sans-serif }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --grid: #30363d; --card: #0d1117; --first: #58a6ff; --second: #ff9b57 } }
</style>"""


def main() -> None:
    """Train, unless `--draw-only` is given, and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme_picture", description=__doc__)
    add = parser.add_argument
    images = Path("docs/images")
    add("--data-root", type=Path, default=Path("../shared/data"))
    add("--epochs", type=int, nargs="+", default=[3, 5, 10, 20, 40], help="of ordinary training")
    add("--gist-epochs", type=int, nargs="+", default=[30, 60, 120], help="of GIST, m = 8")
    add("--threads", type=int, default=os.cpu_count())
    add("--json", type=Path, default=images / "accuracy-against-time.json", help="where the measurements go")
    add("--picture", type=Path, default=images / "accuracy-against-time.svg")
    add("--draw-only", action="store_true", help="draw the measurements that are in --json")
    options = parser.parse_args()
    if not options.draw_only:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(measure(options), indent=1) + "\n")
    measured = json.loads(options.json.read_text())
    draw(measured, options.picture)
    print(f"{on(measured['machine'])}\n")
    for run in measured["runs"]:
        print(f"m = {run['sub_gcns']}, {run['epochs']} epochs: {run['accuracy']:.2f} % in {run['seconds']:.1f} s")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train every setting, one after another."""
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    runs = []
    for m, epochs in [*((1, epochs) for epochs in options.epochs), *((8, epochs) for epochs in options.gist_epochs)]:
        words = ["--sub-gcns", m, "--epochs", epochs, "--runner", "fused" if m > 1 else "in-turn"]
        result = trained(*TRAIN.split(), *words, "--data-root", options.data_root)
        accuracy = 100 * result["last"]["test"]["accuracy"]
        runs.append({"sub_gcns": m, "epochs": epochs, "seconds": result["train_seconds"], "accuracy": accuracy})
        print(f"m = {m}, {epochs} epochs: done", file=sys.stderr, flush=True)
    return {"machine": describe_machine(options.threads, "cpu"), "arguments": sys.argv[1:], "runs": runs}


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


if __name__ == "__main__":
    main()
