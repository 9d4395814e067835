"""A run in a few words, from its record: for the terminal and for notebooks."""

from typing import Any

from markupsafe import Markup

from gistgnn.report.names import main_score, method_label, model_title, score_keys, score_name, score_text
from gistgnn.utils.formats import duration, percent, plural, size

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
    return ", ".join([*scores, *place, times(record)])


def times(record: dict[str, Any]) -> str:
    """Return the time of training and, with preparing, evaluating and saving, that of the whole run."""
    training, whole = record["train_seconds"], sum(record["seconds"].values())
    return f"{duration(training)} of training" + (f", {duration(whole)} in all" if whole > training else "")


def facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a run was and what came of it, as names and values."""
    found = [("run", f"{record['graph']['name']}, {model_title(record['config'])}, {method_label(record)}")]
    for split in ("test", "validation"):
        if scores := record[split]:
            texts = (f"{score_name(key)} {score_text(record, key, scores[key])}" for key in score_keys([scores]))
            found.append((split, ", ".join(texts)))
    if record["test"]:
        found.append(("best", f"round {record['best_round']} of {record['rounds']}"))
    zeta = ", ".join(map(str, record["local_steps"]))
    steps = f"{plural(record['rounds'], 'round')} (ζ = {zeta}), {plural(record['steps'], 'step')}"
    found.append(("training", f"{steps}, {times(record)}"))
    found.append(("peak memory", size(record["peak_memory_bytes"])))
    if never := record["coverage"]["counts"].get("0"):
        found.append(("never trained", f"{percent(never)} of the parameters"))
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


def html_table(record: dict[str, Any]) -> str:
    """Return the facts of a run as a table for a notebook."""
    rows = Markup("").join(
        Markup("<tr><th style='text-align:left'>{}</th><td style='text-align:left'>{}</td></tr>").format(*fact)
        for fact in facts(record)
    )
    return str(Markup("<table>") + rows + Markup("</table>"))
