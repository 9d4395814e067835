"""What reports and tables call things, and how they count them."""

from typing import Any

METHODS = {"gist": "GIST", "data-parallel": "data parallel", "local-sgd": "local SGD", "ensemble": "ensemble"}
ONE_DEVICE = "one device"
COSTLY = 1.0  # points of the score: a speed-up that loses more stands in parentheses, as in the paper's Table 2


def called(method: str, m: int) -> str:
    """What a way to train is called: with one sub-GCN, worker or member it is ordinary training."""
    return ONE_DEVICE if m == 1 else METHODS.get(method, method)


def chosen(record: dict[str, Any]) -> str:
    """Which score says which model of a run is best."""
    return "f1_micro" if record["graph"].get("multi_label") else "accuracy"


def sent(record: dict[str, Any], rounds: int, steps: int) -> float:
    """Bytes that one worker of a run sends in some rounds, in which it takes some steps; 0 where that is not known."""
    traffic = record.get("traffic") or {}
    return float(traffic.get("bytes_per_round", 0.0) * rounds + traffic.get("bytes_per_step", 0.0) * steps)
