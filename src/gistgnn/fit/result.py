"""The result of a run, its progress, and the files of a result."""

import json
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from torch import nn

from gistgnn.errors import InputError
from gistgnn.evaluation.scores import ScoreTable
from gistgnn.nn.scaling import saved_state
from gistgnn.report import REPORT, names, write_report
from gistgnn.storage.folder_lock import FolderLock
from gistgnn.storage.json_files import write_json
from gistgnn.storage.record import MODEL, RESULT, Record
from gistgnn.storage.tensors import write_tensors
from gistgnn.storage.whole_files import replacing
from gistgnn.training.metric import Metric
from gistgnn.utils.machine import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_ROUNDS = 1000  # The numbers of about so many rounds are kept.


@dataclass
class Scores:
    """The scores of a run so far, and its patience; `fit` and a `Loop` count them in the same way.

    Attributes:
        best_round: the round of the best model, counted from 1; -1 before the first evaluation.
        best_score: the validation score of the best model; None as long as there is none.
        best: all scores of the best model, by split and name.
        classes: the scores of the classes, of the best model.
        temperature: of the best model's outputs; see `Result.temperature`.
        last: all scores of the last evaluation.
        evaluations_since_best: how many evaluations since the best one had a score.
    """

    best_round: int = -1
    best_score: float | None = None
    best: ScoreTable = field(default_factory=dict)
    classes: list[dict[str, Any]] = field(default_factory=list)
    temperature: float | None = None
    last: ScoreTable = field(default_factory=dict)
    evaluations_since_best: int = 0

    def add(self, score: float | None, metric: Metric, rounds: int) -> bool:
        """Count an evaluation, and return whether its model is the best so far.

        Args:
            score: of the validation nodes. None says nothing of the model, and is not counted.
            metric: says which of two scores is better.
            rounds: how many rounds are over.
        """
        is_better = metric.better(score, self.best_score)
        if is_better:
            self.best_score = score
            self.best_round = rounds
            self.evaluations_since_best = 0
        elif score is not None:
            self.evaluations_since_best += 1
        return is_better

    def is_out_of_patience(self, patience: int | None) -> bool:
        """Whether this many evaluations in a row have had no better score; None has no limit."""
        return patience is not None and self.evaluations_since_best >= patience


@dataclass
class Progress:
    """How far a run has come, as its checkpoints hold it.

    Attributes:
        rounds: the rounds that are over.
        steps: the steps of all sub-GCNs together.
        train_seconds: the time of the rounds.
        seconds: the time by activity, such as "evaluate".
        history: an entry for each evaluation.
        per_round: the numbers of the rounds; see `add_round`.
        scores: of the best model and of the last one.
        stopped_by: what ended the run before its last round, so that it is finished all the same:
            "patience", "max_seconds" or "callback".
        first_round: in a `Loop`, the rounds that its model had been through before it.
        pending_loss: the loss of one more round, which Θ has been through, but which is not scored.
    """

    rounds: int = 0
    steps: int = 0
    train_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    per_round: list[dict[str, float]] = field(default_factory=list)
    scores: Scores = field(default_factory=Scores)
    stopped_by: str | None = None
    first_round: int = 0
    pending_loss: float | None = None

    @property
    def stopped_early(self) -> bool:
        """Whether the run ended before its last round, and is finished all the same."""
        return self.stopped_by is not None

    @property
    def best_round(self) -> int:
        """The round of the best model, counted from 1; -1 before the first evaluation."""
        return self.scores.best_round

    @property
    def best_score(self) -> float | None:
        """The best validation score; None as long as there is none."""
        return self.scores.best_score

    @property
    def best(self) -> ScoreTable:
        """All scores of the best model, by split and name."""
        return self.scores.best

    @property
    def last(self) -> ScoreTable:
        """All scores of the last evaluation, by split and name."""
        return self.scores.last

    @property
    def classes(self) -> list[dict[str, Any]]:
        """The scores of the classes of the best model, by number: "nodes", "f1" and "missed"."""
        return self.scores.classes

    def copy(self) -> "Progress":
        """Return a copy that does not change when this one goes on."""
        return replace(
            self,
            history=[*self.history],
            per_round=[*self.per_round],
            seconds={**self.seconds},
            scores=replace(self.scores),
        )

    def add_round(self, entry: dict[str, float]) -> None:
        """Add the numbers of a round.

        Where there are many rounds, those of every second, fourth, ... round are kept.

        Args:
            entry: the numbers by name. "round" is counted from 1.
        """
        stride = 1
        if len(self.per_round) > 1:
            stride = int(self.per_round[1]["round"] - self.per_round[0]["round"])
        if entry["round"] % stride == 0:
            self.per_round.append(entry)
        if len(self.per_round) > MOST_ROUNDS:
            self.per_round = [
                numbers for numbers in self.per_round if numbers["round"] % (2 * stride) == 0
            ]

    def entries(self) -> dict[str, Any]:
        """Return the entries of a `Record` that say how far the run came."""
        scores = self.scores
        return {
            "test": scores.best.get("test", {}),
            "validation": scores.best.get("validation", {}),
            "best_round": scores.best_round,
            "last": scores.last,
            "classes": scores.classes,
            "temperature": scores.temperature or 1.0,
            "train_seconds": self.train_seconds,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "steps": self.steps,
            "stopped_early": self.stopped_early,
            "stopped_by": self.stopped_by,
            "history": self.history,
            "per_round": self.per_round,
        }

    def add_seconds(self, other: "Progress") -> None:
        """Add the seconds of another run's activities to this one's."""
        for activity, seconds in other.seconds.items():
            self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds


class Result(Record, kw_only=True, weakref=True):
    """What `GIST.fit` returns: the model, and the record of its run.

    The attributes are `model` and the entries of
    [result.json](run-folder.md#resultjson), by the same names: `result.rounds`,
    `result.coverage.never_trained`. Those that the file leaves out are None, empty or False.

    Args:
        model: the user's own module at full width, with the parameters of the best validation
            score.
        test: the test scores at the best validation score, by name, such as accuracy; empty if
            there are none. A score is None where it could not be computed, as ROC AUC where a
            class is missing.
        validation: the best validation scores, by name; empty if there was no evaluation.
        history: an entry for each evaluation: round, epoch, step, loss, lr, validation, test,
            train_seconds. validation and test are the metric's scores, or None where there is
            none.
        per_round: an entry for each round: round, epoch, train_seconds, loss, and what else the
            runner measured. Of a run of more than 1,000 rounds the entries are those of every
            second, fourth, eighth, ... round.
        temperature: T: logits / T give the probabilities. It is fitted on validation nodes (Guo
            et al., 2017); else it is 1.
        interrupted: the run was ended by `Run.interrupt`, a signal or an error, and can be resumed.
        diverged: how training diverged, in the result of a `DivergedError`; None if it did not.
            Any other error that ends `fit` has the result so far as its attribute `result`, too.
    """

    model: nn.Module
    test: dict[str, Any]
    validation: dict[str, Any]

    @property
    def progress(self) -> Progress:
        """How far the run came, in the form of `Loop.progress`."""
        best = {"validation": self.validation, "test": self.test}
        classes: list[Any] = self.classes
        later = [entry for entry in self.history if entry["round"] > self.best_round]
        scores = Scores(
            best_round=self.best_round,
            best_score=self.validation.get(self.metric.name),
            best={split: table for split, table in best.items() if table},
            classes=classes,
            temperature=self.temperature,
            last=self.last,
            evaluations_since_best=sum(entry["validation"] is not None for entry in later),
        )
        same = ("rounds", "steps", "train_seconds", "seconds", "history", "per_round", "stopped_by")
        entries: dict[str, Any] = {name: getattr(self, name) for name in same}
        return Progress(**entries, scores=scores)

    def record(self) -> Record:
        """Return the record of the run, without the model."""
        return Record(**{name: getattr(self, name) for name in Record.__struct_fields__})

    def as_dict(self) -> dict[str, Any]:
        """Return the record as result.json holds it."""
        record: dict[str, Any] = msgspec.to_builtins(self.record(), str_keys=True)
        return record

    def summary(self) -> str:
        """Return the run in a few lines of text: scores, rounds, time, memory."""
        return names.summary(self)

    def plot(self) -> "Figure":
        """Draw loss and scores against epochs: a figure of matplotlib, which a notebook shows."""
        from gistgnn.report.pages import curves  # This imports matplotlib, which is slow.

        return curves(self)

    def to_pyg(self) -> nn.Module:
        """Return the model as a module that needs no gistgnn, but only PyG and torch.

        It takes the features as the graph has them, and the edges: ``(x, edge_index)``, and
        ``edge_weight`` if the graph has weights and the model reads them; and returns the logits:
        [N, C]. For what it is made of see `gistgnn.nn.to_pyg`; for files, `gistgnn export`.

        Example:
            >>> model = result.to_pyg()
            >>> logits = model(graph.x, graph.edge_index)

        Raises:
            InputError: the model is an ensemble, or a class of the user's own that cannot stand
                behind a scaling of the features.
        """
        from gistgnn.nn.pyg_models import to_pyg  # This imports PyG, which takes a second.

        return to_pyg(self.model, edge_weight=has_edge_weight(self.fingerprint))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model, result.json and report.html into a folder.

        `gistgnn.load_run` reads them. With ranks, rank 0 saves.

        Args:
            folder: made if it is not there.
            overwrite: replace a result that is in the folder.

        Returns:
            The folder.

        Raises:
            InputError: the folder holds a result, another process writes it, or it cannot be
                written.
        """
        folder = Path(folder)
        if (folder / RESULT).exists() and not overwrite:
            raise InputError(
                f"{folder} already holds a result: choose another folder, or overwrite=True"
            )
        record = self.record()
        record.provenance = provenance(self.config.get("device", "cpu"))
        with FolderLock(folder):
            write_result(folder, record, self.model)
        return folder

    def __repr__(self) -> str:
        return f"Result({names.one_line(self)})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def has_edge_weight(fingerprint: dict[str, dict[str, Any]]) -> bool:
    """Tell whether the graph of a run has weights of edges; no fingerprint: it has none."""
    return "the graph's edge weights" in fingerprint.get("graph", {})


def write_result(folder: Path, record: Record, model: nn.Module) -> None:
    """Write the files of a result, result.json last, as it says that the others are complete."""
    from gistgnn.report.pages import run_page  # This imports matplotlib, which is slow.

    with replacing(folder / MODEL) as path:
        # Whoever has this file alone can read what the model is. It is one entry, as safetensors
        # writes several in any order, and equal runs are to write equal files.
        described = json.dumps(record.fingerprint.get("model", {}))
        digest = write_tensors(path, saved_state(model), {"model": described})
    write_report(folder / REPORT, run_page(record, folder))
    listed = msgspec.structs.replace(record, files={MODEL: digest})
    write_json(folder / RESULT, listed, indent=2)
