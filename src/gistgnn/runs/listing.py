"""The runs in some folders, finished or not."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError
from gistgnn.fit.result import RESULT
from gistgnn.report.names import main_score, method_name, model_title, sub_gcns_name
from gistgnn.runs.run_folder import CHECKPOINTS, read_record
from gistgnn.storage.checkpoints import Checkpoints

Listed = dict[str, Any]
"""A run in a few words, as `gistgnn list --json` prints it; what is not known is None.

Its state is "finished", "interrupted", "diverged", "unfinished" (it trains, or was killed) or "unreadable".
"""


def list_runs(folders: Iterable[Path]) -> list[Listed]:
    """Return the runs in folders, at any depth, the oldest result first; those without a result come last."""
    places = {result.parent for folder in folders for result in folder.rglob(RESULT)}
    saved = (checkpoints for folder in folders for checkpoints in folder.rglob(CHECKPOINTS))
    places |= {checkpoints.parent for checkpoints in saved if Checkpoints(checkpoints).newest()}
    listed = [_finished(place) if (place / RESULT).exists() else _unfinished(place) for place in sorted(places)]
    return sorted(listed, key=lambda run: (run["state"] == "unfinished", run["date"] or "", run["folder"]))


def _listed(folder: Path, state: str, **known: Any) -> Listed:
    names = ("rounds", "graph", "model", "method", "score", "test", "train_seconds", "date")
    return {"folder": str(folder), "state": state, **{name: known.get(name) for name in names}}


def _finished(folder: Path) -> Listed:
    """Describe a run that has a result, of what it had reached at least."""
    try:
        record = read_record(folder)
    except InputError:
        return _listed(folder, "unreadable")
    state = "diverged" if "diverged" in record else "interrupted" if record.get("interrupted") else "finished"
    m, score = sub_gcns_name(record), main_score(record)
    name = method_name(record["config"].get("method", "gist"), 1 if m == "m = 1" else 2)
    return _listed(
        folder,
        state,
        rounds=record.get("rounds"),
        graph=record["graph"]["name"],
        model=model_title(record["config"]),
        method=name if m == "m = 1" else f"{name}, {m}",
        score=score,
        test=(record.get("test") or {}).get(score),
        train_seconds=record.get("train_seconds"),
        date=(record.get("provenance") or {}).get("date"),
    )


def _unfinished(folder: Path) -> Listed:
    """Describe a run that has checkpoints and no result."""
    state: dict[str, Any] = Checkpoints(folder / CHECKPOINTS).newest_state() or {}
    history = state.get("history") or [{}]
    best: dict[str, Any] = next((entry for entry in history if entry.get("round") == state.get("best_round")), {})
    known = {"rounds": state.get("rounds"), "test": best.get("test"), "train_seconds": state.get("train_seconds")}
    return _listed(folder, "unfinished", **known)
