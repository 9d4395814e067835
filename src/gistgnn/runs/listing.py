"""The runs in some folders, finished or not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError
from gistgnn.fit.result import RESULT
from gistgnn.report.names import main_score, method_name, model_title, score_name, sub_gcns_name
from gistgnn.runs.run_folder import CHECKPOINTS, read_record
from gistgnn.storage.checkpoints import Checkpoints
from gistgnn.utils.formats import duration

FINISHED = "finished"


@dataclass(frozen=True)
class ListedRun:
    """A run in a few words. What is not known is None.

    Args:
        folder: of the run.
        state: "finished", "interrupted", "diverged", "unfinished" (it trains, or was killed) or "unreadable".
        rounds: that are over.
        graph: the name of the graph.
        model: with its widths.
        method: how it is trained, with m.
        score: the name of the score.
        test: the test score of the best model so far.
        train_seconds: of training.
        date: when the result was written, in UTC.
    """

    folder: Path
    state: str
    rounds: int | None = None
    graph: str | None = None
    model: str | None = None
    method: str | None = None
    score: str | None = None
    test: float | None = None
    train_seconds: float | None = None
    date: str | None = None

    @property
    def cells(self) -> list[str]:
        """The cells of the table."""
        score = "" if self.score in (None, "accuracy") else f" {score_name(str(self.score))}"
        test = "" if self.test is None else f"{self.test:.4f}{score}"
        seconds = "" if self.train_seconds is None else duration(self.train_seconds)
        date = (self.date or "")[:16].replace("T", " ")
        state = "" if self.state == FINISHED else self.state
        if self.rounds is not None and self.state in ("interrupted", "unfinished"):
            state += f", round {self.rounds:,}"
        return [str(self.folder), self.graph or "", self.model or "", self.method or "", test, seconds, date, state]


def list_runs(folders: Iterable[Path]) -> list[ListedRun]:
    """Return the runs in folders, at any depth, the oldest result first; those without a result come last."""
    listed = [_describe(place) for place in sorted({place for folder in folders for place in _places(folder)})]
    return sorted(listed, key=lambda each: (each.state == "unfinished", each.date or "", each.folder))


def _places(folder: Path) -> Iterator[Path]:
    for result in folder.rglob(RESULT):
        yield result.parent
    for checkpoints in folder.rglob(CHECKPOINTS):
        if Checkpoints(checkpoints).newest():
            yield checkpoints.parent


def _describe(folder: Path) -> ListedRun:
    if not (folder / RESULT).exists():
        return _unfinished(folder)
    try:
        record = read_record(folder)
    except InputError:
        return ListedRun(folder, "unreadable")
    state = "diverged" if "diverged" in record else "interrupted" if record.get("interrupted") else FINISHED
    method, m = record["config"].get("method", "gist"), sub_gcns_name(record)
    name, score = method_name(method, 1 if m == "m = 1" else 2), main_score(record)
    return ListedRun(
        folder,
        state,
        record.get("rounds"),
        record["graph"]["name"],
        model_title(record["config"]),
        name if m == "m = 1" else f"{name}, {m}",
        score,
        (record.get("test") or {}).get(score),
        record.get("train_seconds"),
        (record.get("provenance") or {}).get("date"),
    )


def _unfinished(folder: Path) -> ListedRun:
    """Describe a run that has checkpoints and no result."""
    state: dict[str, Any] = Checkpoints(folder / CHECKPOINTS).newest_state() or {}
    history = state.get("history") or [{}]
    best: dict[str, Any] = next((entry for entry in history if entry.get("round") == state.get("best_round")), {})
    return ListedRun(
        folder, "unfinished", state.get("rounds"), test=best.get("test"), train_seconds=state.get("train_seconds")
    )
