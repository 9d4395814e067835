"""What reports and tables call things, and how they read a run's record."""

import itertools
import statistics
from collections.abc import Hashable, Sequence
from typing import Any

METHODS = {
    "gist": "GIST",
    "phases": "GIST in phases",
    "data-parallel": "data parallel",
    "local-sgd": "local SGD",
    "ensemble": "ensemble",
}
ONE_DEVICE = "one device"
SCORES = {"accuracy": "accuracy", "f1_micro": "micro F1", "f1_macro": "macro F1"}
_MODELS = {"gcn": "GCN", "graphsage": "GraphSAGE", "gat": "GAT"}
COSTLY = 1.0  # points of the score: a speed-up that loses more stands in parentheses, as in the paper's Table 2


def model_name(name: str) -> str:
    """Return how a model is written: "GraphSAGE" for "graphsage"."""
    return _MODELS.get(name, name)


def model_title(config: dict[str, Any]) -> str:
    """Return a model with the widths of its hidden layers, such as "GraphSAGE 256-256", from a run's configuration."""
    return f"{model_name(config['model']['name'])} {'-'.join(map(str, config['model']['hidden']))}"


def scores_of(record: dict[str, Any]) -> dict[str, str]:
    """Return keys and names of a run's scores. With one label per node micro F1 is the accuracy, and is left out."""
    multi_label = record["graph"].get("multi_label")
    return {key: name for key, name in SCORES.items() if multi_label or key != "f1_micro"}


def method_name(method: str, m: int) -> str:
    """Return the name of a training method; with one sub-GCN, worker or member it is ordinary training."""
    return ONE_DEVICE if m == 1 else METHODS.get(method, method)


def method_of(record: dict[str, Any]) -> str:
    """Return the key of `METHODS` that a run is trained by."""
    config = record["config"]
    return "phases" if config["training"].get("phases") else str(config.get("method", "gist"))


def sub_gcns_name(record: dict[str, Any]) -> str:
    """Return m of a run, such as "m = 8"; of every phase, if there are phases: "m = 8 (copies), 8, 1"."""
    config = record["config"]
    phases = ((record.get("budget") or config)["training"].get("phases")) or [config]
    names = [f"{phase['sub_gcns']}{' (copies)' if phase.get('copies') else ''}" for phase in phases]
    return f"m = {', '.join(name for name, _ in itertools.groupby(names))}"


def pooled_inference(rows: Sequence[tuple[Hashable, Sequence[float]]]) -> list[float | None]:
    """Return the inference time of every row, in seconds: the median over all rows with the same model.

    Such rows differ in how the model was trained, so their times differ by the noise of the machine alone.

    Args:
        rows: for each, what its model is known by, and measured times.
    """
    pools: dict[Hashable, list[float]] = {}
    for model, seconds in rows:
        pools.setdefault(model, []).extend(seconds)
    return [statistics.median(pools[model]) if pools[model] else None for model, _ in rows]


def main_score(record: dict[str, Any]) -> str:
    """Return the key of the score that selects the best model of a run."""
    return "f1_micro" if record["graph"].get("multi_label") else "accuracy"


def bytes_sent(record: dict[str, Any], rounds: int, steps: int) -> float:
    """Return the bytes that one worker of a run sends in these rounds and steps; 0 where the record does not say."""
    traffic = record.get("traffic") or {}
    return float(traffic.get("bytes_per_round", 0.0) * rounds + traffic.get("bytes_per_step", 0.0) * steps)
