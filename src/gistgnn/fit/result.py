"""The result of a run, how far the run has come, and the files of a result."""

import json
from dataclasses import dataclass, field, fields, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from gistgnn.errors import InputError
from gistgnn.evaluation.scores import ScoreTable
from gistgnn.nn.scaling import saved_state
from gistgnn.report import REPORT, names, write_report
from gistgnn.storage.folder_lock import FolderLock
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import write_tensors
from gistgnn.storage.whole_files import replacing
from gistgnn.training.metric import Metric
from gistgnn.utils.machine import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_ROUNDS = 1000  # whose numbers are held


@dataclass
class Scores:
    """The scores of a run so far, and its patience; `fit` and a `Loop` count them in the same way.

    Attributes:
        best_round: the round of the best model, counted from 1; -1 before the first evaluation.
        best_score: its validation score; None as long as there is none.
        best: all its scores, by split and name.
        classes: the scores of its classes.
        temperature: of its outputs; see `Result.temperature`.
        last: all scores of the last evaluation.
        evaluations_since_best: those that had a score, and no better one.
    """

    best_round: int = -1
    best_score: float | None = None
    best: ScoreTable = field(default_factory=dict)
    classes: list[dict[str, int | float]] = field(default_factory=list)
    temperature: float | None = None
    last: ScoreTable = field(default_factory=dict)
    evaluations_since_best: int = 0

    def add(self, score: float | None, metric: Metric) -> bool:
        """Count an evaluation, and return whether its score is the best so far; None says nothing
        of the model.
        """
        is_better = metric.better(score, self.best_score)
        if is_better:
            self.best_score = score
            self.evaluations_since_best = 0
        elif score is not None:
            self.evaluations_since_best += 1
        return is_better


@dataclass
class Progress:
    """How far a run has come; a checkpoint holds it."""

    rounds: int = 0
    steps: int = 0
    train_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    # the numbers of rounds; see `add_round`
    per_round: list[dict[str, float]] = field(default_factory=list)
    scores: Scores = field(default_factory=Scores)
    # What ended the run before its last round, so that it is finished: "patience", "max_seconds" or
    # "callback".
    stopped_by: str | None = None
    first_round: int = 0  # of a `Loop`: the rounds that its model had been through before it
    # the loss of one more round, which Θ has been through and nothing has scored yet
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
    def classes(self) -> list[dict[str, int | float]]:
        """The scores of the classes of the best model, in their order: "nodes" and "f1"."""
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
        """Add the numbers of a round. Where there are many rounds, those of every second, fourth,
        ... are held.

        Args:
            entry: the numbers by name. "round" is counted from 1.
        """
        stride = 1
        if len(self.per_round) > 1:
            stride = int(self.per_round[1]["round"] - self.per_round[0]["round"])
        if entry["round"] % stride == 0:
            self.per_round.append(entry)
        if len(self.per_round) > MOST_ROUNDS:
            self.per_round = [held for held in self.per_round if held["round"] % (2 * stride) == 0]

    def add_seconds(self, other: "Progress") -> None:
        """Add the seconds of another run's activities to this one's."""
        for activity, seconds in other.seconds.items():
            self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds


@dataclass(repr=False)
class Result:
    """What `GIST.fit` returns.

    Args:
        model: the user's own module at full width, with the parameters of the best validation
            score.
        progress: history, best and last scores, rounds, steps, seconds.
        interrupted: the run was ended by `Run.interrupt`, a signal or an error, and can be resumed.
        peak_memory_bytes: the most memory the process held.
        evaluation: how the model was scored: "method", "exact" or not, and the method's own values.
        communication: what ranks have exchanged (see `gistgnn.distributed.communication`), or None
            without ranks, and of parts and ensembles, which exchange nothing between rounds.
        inference_seconds: the median time of one pass of the model over the whole graph; None:
            there was no pass.
        traffic: "workers", the number of workers that could train at the same time;
            "bytes_per_round" or "bytes_per_step", the bytes that each would send, by formula.
        memory: bytes that are held during the whole run (see `gistgnn.accounting.costs`).
        partition: the axes, their features and blocks.
        batches: how clusters were chosen: "clusters", "clusters_per_batch", and "label_entropy",
            that of a batch's labels as a share of that of as many random nodes; None: there are
            none.
        budget: for a run with a budget: m, which was chosen, why, the times of steps and the scores
            of trials; else None.
        local_steps: ζ, also where it was chosen; with a budget, of the last cycle.
        coverage: "never_trained", the expected share of the "parameters" that no sub-GCN held in
            any of the "rounds".
        metric: the score that selected the model: "name", "higher_is_better", and "percent" if it
            is a share.
        standardised: the model scales the features that it is called with.
        config: the settings of the run.
        graph: the graph's name, sizes and task.
        diverged: how training diverged, in the result of a `DivergedError`; None: it did not. Any
            other error that ends `fit` has the result so far as its attribute `result`, too.
        run: the id of the run, which its files carry: a digest of its fingerprint.
        fingerprint: what says whether another run is the same: "settings", "model" and "graph",
            each with its entries.
    """

    model: nn.Module
    progress: Progress
    interrupted: bool
    peak_memory_bytes: int
    evaluation: dict[str, Any] = field(default_factory=dict)
    communication: dict[str, Any] | None = None
    inference_seconds: float | None = None
    traffic: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    partition: list[dict[str, Any]] = field(default_factory=list)
    coverage: dict[str, Any] = field(default_factory=dict)
    batches: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    local_steps: int = 1
    metric: dict[str, Any] = field(default_factory=dict)
    standardised: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    graph: dict[str, Any] = field(default_factory=dict)
    diverged: str | None = None
    run: str = ""
    fingerprint: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def test(self) -> dict[str, Any]:
        """The test scores at the best validation score, by name, such as accuracy; empty if there
        are none.

        A score is None where it could not be computed, as ROC AUC where a class is missing.
        """
        return self.progress.best.get("test", {})

    @property
    def validation(self) -> dict[str, Any]:
        """The best validation scores, by name; empty if there was no evaluation. None: see
        `test`.
        """
        return self.progress.best.get("validation", {})

    @property
    def temperature(self) -> float:
        """T: logits / T give the probabilities. It is fitted on validation nodes (Guo et al.,
        2017); else it is 1.
        """
        return self.progress.scores.temperature or 1.0

    @property
    def history(self) -> list[dict[str, Any]]:
        """An entry for each evaluation: round, epoch, step, loss, lr, validation, test,
        train_seconds.

        validation and test are the metric's scores, or None where there is none.
        """
        return self.progress.history

    @property
    def per_round(self) -> list[dict[str, float]]:
        """An entry for each round: round, epoch, train_seconds, loss, and what else the runner
        measured.

        Of a run of more than 1,000 rounds the entries are those of every second, fourth, eighth,
        ... round.
        """
        return self.progress.per_round

    def as_dict(self) -> dict[str, Any]:
        """Return the scores and costs as result.json holds them."""
        progress = (
            "best_round",
            "last",
            "train_seconds",
            "seconds",
            "rounds",
            "steps",
            "stopped_early",
            "stopped_by",
        )
        apart = ("model", "progress", "interrupted", "diverged")
        own = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in apart
        }
        ended = {name: getattr(self.progress.scores, name) for name in ("classes", "temperature")}
        ended |= {name: getattr(self, name) for name in ("interrupted", "diverged")}
        return {
            **{name: own.pop(name) for name in ("run", "config", "graph", "standardised")},
            "test": self.progress.best.get("test"),
            "validation": self.progress.best.get("validation"),
            **{name: getattr(self.progress, name) for name in progress},
            **own,
            "history": self.history,
            "per_round": self.per_round,
            **{name: value for name, value in ended.items() if value},
        }

    def summary(self) -> str:
        """Return the run in a few lines of text: scores, rounds, time, memory."""
        return names.summary(self.as_dict())

    def plot(self) -> "Figure":
        """Draw loss and scores against epochs: a figure of matplotlib, which a notebook shows."""
        from gistgnn.report.pages import curves  # matplotlib is slow to import

        return curves(self.as_dict())

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
        from gistgnn.nn.pyg_models import to_pyg  # imports PyG, which takes a second

        return to_pyg(self.model, edge_weight=has_edge_weight(self.fingerprint))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model, result.json and report.html into a folder; `gistgnn.load_run` reads
        them.

        With ranks, rank 0 saves.

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
        record = self.as_dict()
        origin = provenance(record["config"].get("device", "cpu"))
        with FolderLock(folder):
            write_result(folder, {**record, "provenance": origin}, self.model)
        return folder

    def __repr__(self) -> str:
        return f"Result({names.one_line(self.as_dict())})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


RESULT = "result.json"
MODEL = "model.safetensors"
VERSION = 1  # of result.json


def has_edge_weight(fingerprint: dict[str, dict[str, Any]]) -> bool:
    """Tell whether the graph of a run has weights of edges; no fingerprint: it has none."""
    return "the graph's edge weights" in fingerprint.get("graph", {})


def write_result(folder: Path, record: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """Write the files of a result, result.json last: if it is there, the other files are there
    too.
    """
    # The record comes back with the version, the digests of the files, and the checksum.
    from gistgnn.report.pages import run_page  # matplotlib is slow to import

    with replacing(folder / MODEL) as path:
        # for whoever has this file alone
        described = json.dumps(record.get("fingerprint", {}).get("model", {}))
        # One entry: safetensors writes several in any order, and equal runs write equal files.
        digest = write_tensors(path, saved_state(model), {"model": described})
    write_report(folder / REPORT, run_page(record))
    listed = {"version": VERSION, **record, "files": {MODEL: digest}}
    write_json(folder / RESULT, listed, indent=2)
    return read_json(folder / RESULT, dict[str, Any], "save it again")
