"""What result.json holds, entry by entry: a file with another type is refused where it is read."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gistgnn.report.names import main_score
from gistgnn.utils.checks import LONGEST_NAME

Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Cost = Annotated[float, Meta(ge=0, le=1e18)]  # seconds or bytes
Scores = dict[Name, float]


class _Model(Struct):
    name: str
    hidden: Annotated[list[Count], Meta(min_length=1)]
    shared: bool = False
    own: bool = False


class _Phase(Struct):
    sub_gcns: Count
    copies: bool = False
    lr: float | None = None
    schedule: str | None = None


class _Training(Struct):
    lr: float
    schedule: str
    phases: list[_Phase] = []


class _Budget(Struct):
    training: _Training
    reason: str


class _Config(Struct):
    dataset: str
    model: _Model
    training: _Training
    sub_gcns: Positive
    seed: Count
    evaluation: dict[str, Any]
    sampler: dict[str, Any] | str | None = None
    method: Name = "gist"


class _Graph(Struct):
    name: Name
    nodes: Count
    edges: Count
    features: Count
    classes: Count
    multi_label: bool
    regression: bool = False
    class_names: list[Name] | msgspec.UnsetType = msgspec.UNSET


class _Evaluated(Struct):
    """An entry of the history."""

    round: Count
    epoch: Cost
    step: Count
    train_seconds: Cost
    loss: float | None
    validation: float
    test: float | None


class Saved(Struct):
    """What a checkpoint says of an unfinished run."""

    rounds: Count | None = None
    train_seconds: Cost | None = None
    best_round: int = -1
    history: list[_Evaluated] = []


class _Metric(Struct):
    name: Name
    higher_is_better: bool = True
    percent: bool = False


class _Evaluation(Struct):
    exact: bool
    method: str
    parts: Count | None = None
    sample: Count | msgspec.UnsetType = msgspec.UNSET


class _Traffic(Struct):
    workers: Positive
    bytes_per_round: Cost = 0.0
    bytes_per_step: Cost = 0.0


class _Coverage(Struct):
    counts: dict[str, float]


class _Class(Struct):
    nodes: Count
    f1: float


class _Provenance(Struct):
    date: str | None = None
    machine: str | None = None


class RunRecord(Struct):
    """The entries of a result.json that gistgnn reads; there may be others."""

    version: Literal[1]
    run: str
    config: _Config
    graph: _Graph
    files: dict[str, str]
    history: list[_Evaluated]
    test: Scores | None
    validation: Scores | None
    last: dict[str, Scores]
    metric: _Metric
    evaluation: _Evaluation
    rounds: Count
    steps: Count
    best_round: int
    local_steps: list[Count]
    train_seconds: Cost
    seconds: dict[str, Cost]
    peak_memory_bytes: Cost
    inference_seconds: Cost | None
    traffic: _Traffic
    memory: dict[str, Any]
    partition: list[dict[str, Any]]
    coverage: _Coverage
    stopped_early: bool
    stopped_by: str | None = None
    budget: _Budget | None = None
    communication: dict[str, Any] | None = None
    interrupted: bool = False
    diverged: str | msgspec.UnsetType = msgspec.UNSET
    standardised: bool | msgspec.UnsetType = msgspec.UNSET
    data_root: str | msgspec.UnsetType = msgspec.UNSET
    provenance: _Provenance | None = None
    classes: list[_Class] = []


def check_record(record: dict[str, Any]) -> None:
    """Raise a ValueError unless the content of a result.json has the types and the scores that are read from it."""
    graph = msgspec.convert(record, RunRecord).graph
    if graph.class_names and len(graph.class_names) != graph.classes:
        raise ValueError(f"the graph has {graph.classes} classes and {len(graph.class_names)} names")
    if record["test"] and any(entry["test"] is None for entry in record["history"]):
        raise ValueError("the history has no test score")
    if missing := [name for name in ("test", "validation") if record[name] and main_score(record) not in record[name]]:
        raise ValueError(f"{missing[0]} has no {main_score(record)}, the score of the run")
