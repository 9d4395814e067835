"""Pictures of a run."""

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def plot_curves(record: dict[str, Any], path: Path) -> None:
    """Draw loss and scores against epochs, with the best round marked, into a PNG file.

    Args:
        record: what result.json holds.
        path: the file to write.
    """
    history, config = record["history"], record["config"]
    epochs = [entry["epoch"] for entry in history]
    name = "micro F1" if record["graph"]["multi_label"] else "accuracy"
    figure = Figure(figsize=(10, 4))  # a layout that fits itself would draw everything twice
    FigureCanvasAgg(figure)
    margins = {"left": 0.08, "right": 0.98, "bottom": 0.13, "top": 0.84, "wspace": 0.2}
    loss, score = figure.subplots(1, 2, gridspec_kw=margins)
    loss.plot(epochs, [entry["loss"] for entry in history], color="tab:gray", marker=".")
    loss.set(title="training loss of the sub-GCNs", xlabel="epoch", ylabel="loss")
    for split, colour in (("validation", "tab:blue"), ("test", "tab:orange")):
        score.plot(epochs, [entry[split] for entry in history], color=colour, marker=".", label=split)
    best = next((entry for entry in history if entry["round"] == record["best_round"]), None)
    if best:
        label = f"best validation: test {best['test']:.4f}"
        score.axvline(best["epoch"], color="black", linestyle=":", label=label)
    score.set(title=f"{name} of the global model", xlabel="epoch", ylabel=name)
    score.legend(loc="lower right")
    for axes in (loss, score):
        axes.grid(alpha=0.3)
    model = config["model"]
    widths = "-".join(map(str, model["hidden"]))
    figure.suptitle(f"{record['graph']['name']}, {model['name']} {widths}, m = {config['sub_gcns']}")
    figure.savefig(path, format="png", dpi=120)
