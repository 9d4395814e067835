"""What reports and tables call things, and a run in a few words.

The words are from a run's record, for the terminal and for notebooks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gistgnn.nn import MODELS
from gistgnn.storage.record import Record
from gistgnn.utils.formats import duration, percent, plural, size

_METHODS = {
    "gist": "GIST",
    "budget": "a budget",
    "parts": "parts",
    "data-parallel": "data parallel",
    "local-sgd": "local SGD",
    "ensemble": "ensemble",
}
ONE_DEVICE = "one device"
# Scores that are shares from 0 to 1, and those that are other numbers.
_SHARES = {
    "accuracy": "accuracy",
    "f1_micro": "micro F1",
    "f1_macro": "macro F1",
    "f1_parts": "mean F1 of parts",
    "balanced_accuracy": "balanced accuracy",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
}
_NUMBERS = {"r2": "R²", "mae": "mean absolute error", "rmse": "root mean square error"}
# Points of the score: a speed-up that loses more stands in parentheses, as in the paper's Table 2.
COSTLY = 1.0


def model_title(name: str, hidden: Sequence[int]) -> str:
    """Return a model with the widths of its hidden layers, such as "GraphSAGE 256-256"."""
    # A model is called as its class, the user's own as its function.
    title = MODELS.object_name(name) if name in MODELS else name.rpartition(":")[2]
    return f"{title} {'-'.join(map(str, hidden))}"


def model_of(record: Record) -> str:
    """Return the model of a run with its widths."""
    model = record.config["model"]
    return model_title(model["name"], model["hidden"])


def score_keys(rows: Iterable[Mapping[str, float | None]]) -> list[str]:
    """Return the keys of some scores.

    Micro F1 is left out where it is the accuracy: with one label per node.

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
    """Return the name of a training method.

    With one sub-GCN, worker or member it is ordinary training.
    """
    return ONE_DEVICE if m == 1 and method != "budget" else _METHODS.get(method, method)


def method_of(record: Record) -> str:
    """Return how a run is trained: "budget", otherwise the method of its configuration."""
    config = record.config
    return "budget" if config["training"].get("budget") else str(config["method"])


def sub_gcns_of(record: Record) -> int:
    """Return m of a run, also where a budget has chosen it."""
    return int(record.config["sub_gcns"]) if record.budget is None else record.budget.sub_gcns


def settings_used(record: Record) -> dict[str, Any]:
    """Return the configuration of a run with the settings that were used.

    Settings that were chosen in the run are filled in.
    """
    config = record.config
    sampler = config["sampler"]
    if sampler and sampler["name"] == "auto":
        sampler = {**sampler, "name": "full"}
        if record.batches is not None:
            counts = {
                "clusters": record.batches.clusters,
                "clusters_per_batch": record.batches.clusters_per_batch,
            }
            sampler = {**sampler, "name": "clusters", **counts}
    return {
        **config,
        "sub_gcns": sub_gcns_of(record),
        "training": {**config["training"], "local_steps": record.local_steps},
        "sampler": sampler,
        "standardise": record.standardised,
    }


def rate_name(record: Record) -> str:
    """Return the learning rate and its schedule: "0.005, cosine"."""
    training = record.config["training"]
    return f"{training['lr']:g}, {training['schedule']}"


def is_joined(record: Record) -> bool:
    """Whether the model is narrow models side by side, with weights of zero between them."""
    return method_of(record) in ("parts", "budget")


def scored_split(*records: Record) -> str:
    """Return the split that runs are judged by.

    It is "validation" if one of them has no test set, else "test".
    """
    lacks_test = any(record.validation and not record.test for record in records)
    return "validation" if lacks_test else "test"


def scores_of(record: Record) -> dict[str, Mapping[str, float | None]]:
    """Return the scores of the best model by split, those of the test set first.

    Splits without scores are left out.
    """
    tables = {"test": record.test, "validation": record.validation}
    return {split: scores for split, scores in tables.items() if scores}


def history_of(record: Record, split: str) -> list[float | None]:
    """Return the score of a run on a split at every evaluation; None where there is none."""
    if split == "test":
        return [entry["test"] for entry in record.history]
    return [entry["validation"] for entry in record.history]


def score_name(key: str) -> str:
    """Return what a page calls a score.

    The user's own scores have the names that they have given them.
    """
    return {**_SHARES, **_NUMBERS}.get(key, key)


def is_share(record: Record, key: str) -> bool:
    """Whether a score of a run is a share from 0 to 1, which pages show in per cent."""
    return record.metric.percent if key == record.metric.name else key in _SHARES


def score_text(record: Record, key: str, value: float | None) -> str:
    """Format a score of a run; "-" where there is none."""
    if value is None:
        return "-"
    return percent(value) if is_share(record, key) else f"{value:.4g}"


def bytes_sent(record: Record, rounds: int, steps: int) -> float:
    """Return the bytes that one worker of a run sends in these rounds and steps."""
    traffic = record.traffic
    return traffic.bytes_per_round * rounds + traffic.bytes_per_step * steps


def method_label(record: Record) -> str:
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


def one_line(record: Record) -> str:
    """Return the scores, the round and the time of a run."""
    key = record.metric.name
    scores = [
        f"{split} {score_name(key)} {score_text(record, key, table[key])}"
        for split, table in scores_of(record).items()
    ]
    round_ = f"round {record.best_round} of {record.rounds}" if scores else "no score"
    return ", ".join([*scores, round_, with_times(record)])


def with_times(record: Record) -> str:
    """Return the time of training and, if it is longer, that of the whole run.

    The whole run also prepares, evaluates and saves.
    """
    training = f"{duration(record.train_seconds)} of training"
    seconds = sum(record.seconds.values())
    return f"{training}, {duration(seconds)} in all" if seconds > record.train_seconds else training


def facts(record: Record) -> list[tuple[str, str]]:
    """Return what a run was, what it scored and how it was trained, as names and values."""
    rows = [("run", f"{record.graph.name}, {model_of(record)}, {method_label(record)}")]
    for split, scores in scores_of(record).items():
        texts = (
            f"{score_name(key)} {score_text(record, key, scores[key])}"
            for key in score_keys([scores])
        )
        rows.append((split, ", ".join(texts)))
    if record.validation:
        rows.append(("best", f"round {record.best_round} of {record.rounds}"))
    training = training_facts(record)
    training.append(("peak memory", size(record.peak_memory_bytes)))
    if never := record.coverage.never_trained:
        name = "zero between blocks" if is_joined(record) else "never trained"
        training.append((name, f"{percent(never)} of the parameters"))
    return rows + training


def training_facts(record: Record) -> list[tuple[str, str]]:
    """Return how a run was trained, as names and values."""
    rows = []
    if batches := record.batches:
        text = f"{batches.clusters_per_batch:,} of {batches.clusters:,} clusters"
        if batches.label_entropy is not None:
            share = percent(batches.label_entropy)
            text += f", whose labels have {share} of the entropy of random nodes"
        rows.append(("batches", text))
    if record.budget:
        rows.append(("chosen", record.budget.reason))
    rounds = f"{plural(record.rounds, 'round')} of ζ = {plural(record.local_steps, 'local step')}"
    steps = plural(record.steps, "step")
    training = f"{rounds}, {steps}, learning rate {rate_name(record)}, {with_times(record)}"
    rows.append(("training", training))
    if seconds := record.inference_seconds:
        rows.append(("inference", f"{duration(seconds)} for one pass over the graph"))
    if record.stopped_by is not None:
        rows.append(("ended early", STOPPED[record.stopped_by]))
    if record.evaluation.get("exact") is False:
        rows.append(("scores", "estimates, since the graph was evaluated in parts"))
    return rows


def summary(record: Record) -> str:
    """Return the facts of a run as lines of text."""
    rows = facts(record)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
