"""What reports and tables call things; a run in a few words, from its record, for the terminal and
for notebooks.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gistgnn.utils.formats import duration, percent, plural, size

_METHODS = {
    "gist": "GIST", "budget": "a budget", "parts": "parts", "data-parallel": "data parallel",
    "local-sgd": "local SGD",
    "ensemble": "ensemble",
}  # fmt: skip
ONE_DEVICE = "one device"
_MODELS = {"gcn": "GCN", "graphsage": "GraphSAGE", "gat": "GAT", "gatv2": "GATv2", "gin": "GIN"}
_SHARES = {
    "accuracy": "accuracy", "f1_micro": "micro F1", "f1_macro": "macro F1", "f1_parts": "mean F1 "
                                                                                        "of parts",
    "balanced_accuracy": "balanced accuracy", "roc_auc": "ROC AUC", "average_precision": "average "
                                                                                         "precision",
}  # fmt: skip
_NUMBERS = {"r2": "R²", "mae": "mean absolute error", "rmse": "root mean square error"}
# points of the score: a speed-up that loses more stands in parentheses, as in the paper's Table 2
COSTLY = 1.0


def model_title(config: dict[str, Any]) -> str:
    """Return a model with the widths of its hidden layers, such as "GraphSAGE 256-256", from a
    run's configuration.
    """
    name = config["model"]["name"]  # the user's own is called as its function
    return (
        f"{_MODELS.get(name, name.rpartition(':')[2])} "
        f"{'-'.join(map(str, config['model']['hidden']))}"
    )


def score_keys(rows: Iterable[Mapping[str, float | None]]) -> list[str]:
    """Return the keys of some scores. Micro F1 is left out where it is the accuracy: with one label
    per node.

    With several labels, the accuracy is the share of nodes whose labels are all right, and comes
    last.
    """
    rows = list(rows)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    same = all(row.get("f1_micro") == row.get("accuracy") for row in rows)
    if same:
        return [key for key in keys if key != "f1_micro"]
    return sorted(keys, key=lambda key: key == "accuracy")


def method_name(method: str, m: int) -> str:
    """Return the name of a training method; with one sub-GCN, worker or member it is ordinary
    training.
    """
    return ONE_DEVICE if m == 1 and method != "budget" else _METHODS.get(method, method)


def method_of(record: dict[str, Any]) -> str:
    """Return how a run is trained: "budget", otherwise the method of its configuration."""
    config = record["config"]
    return "budget" if config["training"].get("budget") else str(config.get("method", "gist"))


def sub_gcns_of(record: dict[str, Any]) -> int:
    """Return m of a run, also where a budget has chosen it."""
    budget = record.get("budget") or {}
    return int(budget.get("sub_gcns", record["config"]["sub_gcns"]))


def settings_used(record: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run with the settings that were used, also where they were
    chosen.
    """
    config = record["config"]
    sampler = record["config"].get("sampler")
    if sampler and sampler["name"] == "auto":
        batches = record.get("batches") or {}
        counts = {
            name: batches[name] for name in ("clusters", "clusters_per_batch") if name in batches
        }
        sampler = {**sampler, "name": "clusters" if counts else "full", **counts}
    training = {**config["training"], "local_steps": local_steps_of(record)}
    used = {
        "sampler": sampler,
        "standardise": record.get("standardised", config.get("standardise")),
    }
    return {**config, "sub_gcns": sub_gcns_of(record), "training": training, **used}


def local_steps_of(record: dict[str, Any]) -> int:
    """Return ζ of a run; of one of an earlier version that had several, the first."""
    steps = record["local_steps"]
    return int(steps[0] if isinstance(steps, list) else steps)


def rate_name(record: dict[str, Any]) -> str:
    """Return the learning rate and its schedule: "0.005, cosine"."""
    training = record["config"]["training"]
    return f"{training['lr']:g}, {training['schedule']}"


def is_joined(record: dict[str, Any]) -> bool:
    """Whether the model is narrow models side by side, with weights of zero between them."""
    return method_of(record) in ("parts", "budget")


def never_trained(record: dict[str, Any]) -> float:
    """Return the share of the parameters that was never trained."""
    coverage = record["coverage"]
    if "counts" in coverage:  # an older record, with the share of every number of rounds
        return float(coverage["counts"].get("0", 0.0))
    return float(coverage["never_trained"])


def main_score(record: dict[str, Any]) -> str:
    """Return the key of the score that selects the best model of a run."""
    default = "f1_micro" if record["graph"].get("multi_label") else "accuracy"
    return str((record.get("metric") or {}).get("name", default))


def scored_split(*records: dict[str, Any]) -> str:
    """Return the split that runs are judged by: "validation" if one of them has no test set, else
    "test".
    """
    return (
        "validation"
        if any(not record["test"] and record["validation"] for record in records)
        else "test"
    )


def score_name(key: str) -> str:
    """Return what a page calls a score; the user's own scores have the names that they have given
    them.
    """
    return {**_SHARES, **_NUMBERS}.get(key, key)


def is_share(record: dict[str, Any], key: str) -> bool:
    """Whether a score of a run is a share from 0 to 1, which pages show in per cent."""
    metric = record.get("metric") or {}
    return bool(metric.get("percent")) if key == metric.get("name") else key in _SHARES


def score_text(record: dict[str, Any], key: str, value: float | None) -> str:
    """Format a score of a run; "-" where there is none."""
    if value is None:
        return "-"
    return percent(value) if is_share(record, key) else f"{value:.4g}"


def bytes_sent(record: dict[str, Any], rounds: int, steps: int) -> float:
    """Return the bytes that one worker of a run sends in these rounds and steps; 0 where the record
    does not say.
    """
    traffic = record.get("traffic") or {}
    return float(
        traffic.get("bytes_per_round", 0.0) * rounds + traffic.get("bytes_per_step", 0.0) * steps
    )


def method_label(record: dict[str, Any]) -> str:
    """Return how a run trains, in words."""
    m = sub_gcns_of(record)
    method = method_name(method_of(record), m)
    return method if m == 1 else f"{method}, m = {m}"


STOPPED = {
    "patience": "because the validation score did not get better any more",
    "max_seconds": "because its time was up",
    "callback": "because a callback asked for it",
}
"""Why a run ended before its last round, by `stopped_by`."""


def one_line(record: dict[str, Any]) -> str:
    """Return the scores, the round and the time of a run."""
    key = main_score(record)
    scores = [
        f"{split} {score_name(key)} {score_text(record, key, record[split][key])}"
        for split in ("test", "validation")
        if record[split]
    ]
    place = [f"round {record['best_round']} of {record['rounds']}"] if scores else ["no score"]
    return ", ".join([*scores, *place, with_times(record)])


def with_times(record: dict[str, Any]) -> str:
    """Return the time of training and, with preparing, evaluating and saving, that of the whole
    run.
    """
    training = record["train_seconds"]
    whole = sum(record["seconds"].values())
    return f"{duration(training)} of training" + (
        f", {duration(whole)} in all" if whole > training else ""
    )


def facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a run was and what came of it, as names and values."""
    found = [
        (
            "run",
            f"{record['graph']['name']}, {model_title(record['config'])}, {method_label(record)}",
        )
    ]
    for split in ("test", "validation"):
        if scores := record[split]:
            texts = (
                f"{score_name(key)} {score_text(record, key, scores[key])}"
                for key in score_keys([scores])
            )
            found.append((split, ", ".join(texts)))
    if record["validation"]:
        found.append(("best", f"round {record['best_round']} of {record['rounds']}"))
    if batches := record.get("batches"):
        text = f"{batches['clusters_per_batch']:,} of {batches['clusters']:,} clusters"
        if (share := batches.get("label_entropy")) is not None:
            text += f", whose labels have {percent(share)} of the entropy of random nodes"
        found.append(("batches", text))
    if budget := record.get("budget"):
        found.append(("chosen", budget["reason"]))
    zeta = local_steps_of(record)
    rounds = f"{plural(record['rounds'], 'round')} (ζ = {zeta}), {plural(record['steps'], 'step')}"
    found.append(("training", f"{rounds}, learning rate {rate_name(record)}, {with_times(record)}"))
    if seconds := record["inference_seconds"]:
        found.append(("inference", f"{duration(seconds)} for one pass over the graph"))
    found.append(("peak memory", size(record["peak_memory_bytes"])))
    if never := never_trained(record):
        name = "zero between blocks" if is_joined(record) else "never trained"
        found.append((name, f"{percent(never)} of the parameters"))
    if record["stopped_early"]:
        found.append(("ended early", STOPPED[record["stopped_by"] or "patience"]))
    if record["evaluation"]["exact"] is False:
        found.append(("scores", "estimates, since the graph was evaluated in parts"))
    return found


def summary(record: dict[str, Any]) -> str:
    """Return the facts of a run as lines of text."""
    found = facts(record)
    width = max(len(name) for name, _ in found)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in found)
