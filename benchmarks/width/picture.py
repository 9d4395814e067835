"""Draws the docs' picture: test accuracy against time, with one worker and with four.

python -m benchmarks.width.picture runs/clocks.json   # runs of `benchmarks.width.clocks`
python -m benchmarks.width.picture                    # draws the numbers beside it again
"""

import argparse
import json
import os
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.width.clocks import TIMED, TIMINGS

GRAPH = "places_sign.npz"
FIRST_SECONDS = 30  # shorter runs are not drawn
PLACE = Path("docs/images/where-width-pays.json")  # the picture has the same name
LINES = {  # method, workers, width: name, colour, line
    ("parts", 4, 256): ("4 workers: parts of 256", "first", "-"),
    ("data-parallel", 4, 256): ("4 workers: data parallel, 256", "second", "-"),
    ("local-sgd", 4, 256): ("4 workers: local SGD, 256", "third", "-"),
    ("ordinary", 1, 512): ("1 worker: width 512", "ink", "--"),
    ("ordinary", 1, 256): ("1 worker: width 256", "ink", "-."),
    ("ordinary", 1, 128): ("1 worker: width 128", "ink", ":"),
}
# Placeholders in the picture, which become variables of the style below.
COLOURS = {"#010101": "ink", "#020202": "grid", "#030303": "card"}
COLOURS |= {"#040404": "first", "#050505": "second", "#060606": "third"}
STYLE = """<style>
svg { --ink: #24292f; --grid: #d8dee4; --card: #ffffff;
      --first: #0b6bcb; --second: #c2410c; --third: #2f7d32;
      font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", Helvetica, Arial,
                   sans-serif }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --grid: #30363d; --card: #0d1117;
        --first: #58a6ff; --second: #ff9b57; --third: #7ee787 } }
</style>"""


def main() -> None:
    """Take the numbers from finished runs, if they are given, and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.width.picture", description=__doc__)
    parser.add_argument(
        "runs", type=Path, nargs="?", help="a file of runs of benchmarks.width.clocks"
    )
    parser.add_argument(
        "--json", type=Path, default=PLACE, help="the numbers; the picture is beside them"
    )
    options = parser.parse_args()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    if options.runs:
        options.json.write_text(
            json.dumps(dots(json.loads(options.runs.read_text())), indent=1) + "\n"
        )
    draw(json.loads(options.json.read_text()), options.json.with_suffix(".svg"))


def dots(runs: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Return the dots of all lines.

    A dot has the method, workers, width, seconds and test accuracy of a setting, at the rate with
    the best validation score.
    """
    times = defaultdict(list)
    runs_of = defaultdict(list)
    for key, run in runs.items():
        if not key.startswith("{"):
            continue  # One entry of the file is its checksum.
        setting = json.loads(key)
        if setting["graph"] != GRAPH:
            continue
        if setting["seed"] in TIMINGS:
            times[setting["width"]].append(run["seconds"] / TIMED)
        elif setting["seed"] == 0:
            runs_of[
                setting["method"], setting["workers"], setting["width"], setting["epochs"]
            ].append(run)
    measured: list[dict[str, Any]] = []
    for (method, m, width, epochs), tried in sorted(runs_of.items()):
        if (method, m, width) not in LINES:
            continue
        seconds = epochs * statistics.median(times[width])
        if seconds <= FIRST_SECONDS:
            continue
        accuracy = max(tried, key=lambda run: run["validation"])["test"]
        dot = {"method": method, "workers": m, "width": width}
        measured.append({**dot, "seconds": seconds, "accuracy": accuracy})
    return measured


def draw(measured: list[dict[str, Any]], picture: Path) -> None:
    """Write the picture as SVG with colours for light and dark pages."""
    os.environ.setdefault("MPLBACKEND", "svg")
    import matplotlib.pyplot as plt

    colours = {name: placeholder for placeholder, name in COLOURS.items()}
    ink, grid, card = (colours[name] for name in ("ink", "grid", "card"))
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gistgnn", "font.size": 12})
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    plt.rcParams.update(dict.fromkeys(inked, ink))
    figure, axes = plt.subplots(figsize=(8, 4.4), facecolor=card)
    axes.set_facecolor(card)
    for line, (name, colour, style) in LINES.items():
        runs = [run for run in measured if (run["method"], run["workers"], run["width"]) == line]
        seconds = [run["seconds"] for run in runs]
        accuracies = [run["accuracy"] for run in runs]
        look = {"marker": "o", "markersize": 6, "linewidth": 2, "color": colours[colour]}
        axes.plot(seconds, accuracies, style, **look, label=name)
    axes.set(xscale="log", xlabel="seconds of a worker's training", ylabel="test accuracy, %")
    axes.set(xlim=(31, 175), ylim=(83, 94.5))
    axes.set_xticks([37, 74, 148], ["37", "74", "148"])
    axes.minorticks_off()
    axes.grid(color=grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", facecolor=card, edgecolor=grid, fontsize=10)
    title = "Places of GeoNames: which of 1,399 regions has a town of this name?"
    axes.set_title(title, fontsize=12, loc="left")
    figure.tight_layout()
    figure.savefig(picture, format="svg", facecolor=card, metadata={"Date": None})
    text = picture.read_text()
    for placeholder, variable in COLOURS.items():
        text = text.replace(placeholder, f"var(--{variable})")
    text = text.replace("<defs>", f"{STYLE}\n <defs>", 1)
    picture.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


if __name__ == "__main__":
    main()
