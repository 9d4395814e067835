"""What reports and tables call things, and how they read a run's record."""

import itertools
from typing import Any

from gistgnn.utils.formats import percent

METHODS = {
    "gist": "GIST",
    "phases": "GIST in phases",
    "data-parallel": "data parallel",
    "local-sgd": "local SGD",
    "ensemble": "ensemble",
}
ONE_DEVICE = "one device"
SCORES = {"accuracy": "accuracy", "f1_micro": "micro F1", "f1_macro": "macro F1"}
SHARES = {
    **SCORES,
    "balanced_accuracy": "balanced accuracy",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
}
NUMBERS = {"r2": "R²", "mae": "mean absolute error", "rmse": "root mean square error"}
COSTLY = 1.0  # points of the score: a speed-up that loses more stands in parentheses, as in the paper's Table 2


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


def main_score(record: dict[str, Any]) -> str:
    """Return the key of the score that selects the best model of a run."""
    default = "f1_micro" if record["graph"].get("multi_label") else "accuracy"
    return str((record.get("metric") or {}).get("name", default))


def score_name(key: str) -> str:
    """Return what a page calls a score; the user's own scores have the names that they have given them."""
    return {**SHARES, **NUMBERS}.get(key, key)


def is_share(record: dict[str, Any], key: str) -> bool:
    """Whether a score of a run is a share from 0 to 1, which pages show in per cent."""
    metric = record.get("metric") or {}
    return bool(metric.get("percent")) if key == metric.get("name") else key in SHARES


def score_text(record: dict[str, Any], key: str, value: float) -> str:
    """Format a score of a run."""
    return percent(value) if is_share(record, key) else f"{value:.4g}"


def bytes_sent(record: dict[str, Any], rounds: int, steps: int) -> float:
    """Return the bytes that one worker of a run sends in these rounds and steps; 0 where the record does not say."""
    traffic = record.get("traffic") or {}
    return float(traffic.get("bytes_per_round", 0.0) * rounds + traffic.get("bytes_per_step", 0.0) * steps)


def method_label(record: dict[str, Any]) -> str:
    """Return how a run trains, in words."""
    config, split = record["config"], sub_gcns_name(record)
    whole = split == "m = 1"
    method = method_name(config.get("method", "gist"), 1 if whole else max(config.get("sub_gcns", 1), 2))
    return f"{method}, {'the full model' if whole else split}"


def model_label(config: dict[str, Any], *, short: bool = False) -> str:
    """Return the name and the widths of a run's model; `short` writes names such as GCN in capitals."""
    name = config["model"]["name"]
    return f"{name.upper() if short and len(name) <= 3 else name} {'-'.join(map(str, config['model']['hidden']))}"
