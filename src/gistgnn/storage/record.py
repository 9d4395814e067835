"""What result.json holds of a run.

The code that trains fills a `Record`, and whoever reads a run gets one.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta, Struct

from gistgnn.storage.json_files import read_json
from gistgnn.storage.whole_files import reading
from gistgnn.utils.checks import LONGEST_NAME
from gistgnn.utils.machine import Provenance

RESULT = "result.json"
MODEL = "model.safetensors"
VERSION = 2  # of result.json

Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Cost = Annotated[float, Meta(ge=0, le=1e18)]  # seconds or bytes
Share = Annotated[float, Meta(ge=0, le=1)]
Scores = dict[Name, float | None]
"""Scores by name. None stands for one that could not be computed, as ROC AUC without a class."""


class Evaluated(TypedDict):
    """An entry of the history, as callbacks and loggers get it."""

    round: Count
    epoch: Cost
    step: Count  # of a sub-GCN
    loss: float | None
    lr: float
    validation: float | None
    test: float | None
    train_seconds: Cost
    metric: NotRequired[str]  # the name of the score, if one was chosen


class OfClass(TypedDict):
    """How well the best model knows a class."""

    nodes: Count  # of the test set, or without one of the validation set
    f1: float
    # Nodes by the class that was predicted instead, the most frequent five; "-1": none was.
    missed: NotRequired[dict[str, Count]]


class GraphFacts(Struct, omit_defaults=True, kw_only=True):
    """The graph that a run was trained on."""

    name: Name
    nodes: Count
    edges: Count  # both directions
    features: Count
    classes: Count
    multi_label: bool
    class_names: list[Name] = []  # if labels were texts
    regression: bool = False


class MetricFacts(Struct, kw_only=True):
    """The score that selected the model."""

    name: Name
    higher_is_better: bool
    percent: bool  # it is a share from 0 to 1


class Sent(Struct, omit_defaults=True, kw_only=True):
    """What each worker sends, by formula, in bytes."""

    workers: Positive  # that could train at the same time
    bytes_per_round: Cost = 0.0
    bytes_per_step: Cost = 0.0


class AxisBlocks(Struct, kw_only=True):
    """An axis of the partition, with the sizes of its blocks."""

    name: str
    features: Count
    blocks: list[Count]


class Coverage(Struct, kw_only=True):
    """How much of Θ was trained."""

    rounds: Count
    parameters: Count
    never_trained: Share  # expected, of the parameters that no sub-GCN held in any round


class BatchFacts(Struct, kw_only=True):
    """The clusters that were chosen for a graph."""

    clusters: Positive
    clusters_per_batch: Positive
    # Of a batch's labels, as a share of that of as many random nodes; None if not measured.
    label_entropy: float | None


class Choice(Struct, kw_only=True):
    """The width that a run with a budget of time has chosen: that of one of m parts."""

    sub_gcns: Positive  # m
    reason: str
    batch_divisor: Positive  # batches have about 1 / this number of the usual nodes
    step_seconds: dict[int, Cost]  # of a step of one of m parts, by m
    scores: dict[int, float]  # on validation nodes after a trial, by m; more is better


class BudgetFacts(Choice, kw_only=True):
    """What became of a budget of time."""

    cycles: Count  # that ended
    parts: Positive  # different ones, which were joined


class Workers(Struct, kw_only=True):
    """The times of the ranks that have trained a run together, one number for each."""

    ranks: Positive
    train_seconds: list[Cost]
    step_seconds: list[Cost]
    exchange_seconds: list[Cost]


class _Model(Struct):
    name: str
    hidden: Annotated[list[Count], Meta(min_length=1)]


class _Training(Struct):
    lr: float
    schedule: str
    budget: float | None = None


class _Config(Struct):
    """The entries of a run's settings that reports read, whatever has trained it."""

    dataset: str
    method: Name
    sub_gcns: Positive
    seed: Count
    model: _Model
    training: _Training
    evaluation: dict[str, Any]
    sampler: dict[str, Any] | None


# The layout of the file is the order of the fields. Entries with a default are left out where they
# have it.
class Record(Struct, kw_only=True, omit_defaults=True, tag_field="version", tag=VERSION):
    """What a run was, what came of it, and what it cost.

    docs/reference/run-folder.md explains the entries.
    """

    run: str
    config: dict[str, Any]
    graph: GraphFacts
    standardised: bool
    test: Scores
    validation: Scores
    best_round: int
    last: dict[str, Scores]
    train_seconds: Cost
    seconds: dict[str, Cost]
    rounds: Count
    steps: Count
    stopped_early: bool
    stopped_by: Literal["patience", "max_seconds", "callback"] | None
    peak_memory_bytes: Count
    evaluation: dict[str, Any]
    communication: dict[str, Any] | None
    inference_seconds: Cost | None
    traffic: Sent
    memory: dict[str, Count]
    partition: list[AxisBlocks]
    coverage: Coverage
    batches: BatchFacts | None
    budget: BudgetFacts | None
    local_steps: Count
    metric: MetricFacts
    fingerprint: dict[str, dict[str, Any]]
    history: list[Evaluated]
    per_round: list[dict[str, float | None]]
    classes: list[OfClass] = []
    temperature: Annotated[float, Meta(gt=0)] = 1.0
    interrupted: bool = False
    diverged: str | None = None
    workers: Workers | None = None  # of a run of `gistgnn reproduce` on ranks
    data_root: str | None = None
    provenance: Provenance | None = None
    files: dict[str, str] = {}

    @property
    def machine(self) -> str:
        """Where the run trained, in words."""
        if self.provenance is None:
            return "a machine that is not recorded"
        return self.provenance["machine"]


class Saved(Struct):
    """What the checkpoint of a run says of it, as far as `gistgnn list` shows it."""

    rounds: Count | None = None
    train_seconds: Cost | None = None
    scores: dict[str, Any] = {}  # "best_round" among them
    history: list[Evaluated] = []


def read_result(path: Path, advice: str) -> Record:
    """Read a result.json.

    If it is missing, damaged or of another form, the InputError ends with the advice.
    """
    content = read_json(path, dict[str, Any], advice)
    with reading(path, advice):
        return record_of(content)


def record_of(content: dict[str, Any]) -> Record:
    """Return what a result.json holds, also one of version 1.

    Raises:
        ValueError: an entry is missing or of another type, or the file is of a later version.
        KeyError: a file of version 1 has no scores.
    """
    version = content.get("version", 1)
    if version == 1:  # which had null where nothing was scored
        scored = {name: content[name] or {} for name in ("test", "validation")}
        content = {**content, **scored, "version": VERSION}
    elif version != VERSION:
        raise ValueError(f"it has the form {version}, and this gistgnn reads {VERSION}")
    content = {"per_round": [], **content}  # which the first files did not have
    record = msgspec.convert(content, Record, str_keys=True)
    msgspec.convert(record.config, _Config)
    graph = record.graph
    if graph.class_names and len(graph.class_names) != graph.classes:
        raise ValueError(
            f"the graph has {graph.classes} classes and {len(graph.class_names)} names"
        )
    for name, scores in (("test", record.test), ("validation", record.validation)):
        if scores and record.metric.name not in scores:
            raise ValueError(f"{name} has no {record.metric.name}, the score of the run")
    return record
