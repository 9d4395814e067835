"""What result.json holds, entry by entry: a file with another type is refused where it is read."""

from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gistgnn.report.names import main_score
from gistgnn.utils.checks import LONGEST_NAME

Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Cost = Annotated[float, Meta(ge=0, le=1e18)]  # seconds or bytes
Scores = dict[Name, float | None]  # None: there is no such score


class _Evaluated(Struct):
    """An entry of the history."""

    round: Count
    epoch: Cost
    step: Count
    train_seconds: Cost
    loss: float | None
    validation: float | None
    test: float | None


class _BestRound(Struct, frozen=True):
    best_round: int = -1


class Saved(Struct):
    """What a checkpoint says of an unfinished run."""

    rounds: Count | None = None
    train_seconds: Cost | None = None
    scores: _BestRound = _BestRound()
    history: list[_Evaluated] = []


def _entries(needed: dict[str, Any], **optional: Any) -> Any:
    """Return the type of a JSON object by its entries; optional ones may be missing, and there may
    be others.
    """
    maybe = [(name, kind | UnsetType, UNSET) for name, kind in optional.items()]
    return msgspec.defstruct("Entries", [*needed.items(), *maybe])


def _list(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


# fmt: off
_MODEL = _entries({"name": str, "hidden": Annotated[list[Count], Meta(min_length=1)]}, shared=bool,
own=bool)
_TRAINING = _entries({"lr": float, "schedule": str})
_CONFIG = _entries(
    {"dataset": str, "model": _MODEL, "training": _TRAINING, "sub_gcns": Positive, "seed": Count,
     "evaluation": dict[str, Any]},
    sampler=dict[str, Any] | str | None, method=Name,
)
_GRAPH = _entries(
    {"name": Name, "nodes": Count, "edges": Count, "features": Count, "classes": Count,
    "multi_label": bool},
    regression=bool, class_names=list[Name],
)
# older: counts
_COVERAGE = _entries({}, never_trained=Annotated[float, Meta(ge=0, le=1)], counts=dict[str, float])
_RECORD = _entries(
    {
        "version": Literal[1], "run": str, "config": _CONFIG, "graph": _GRAPH,
        "files": dict[str, str],
        "history": list[_Evaluated], "test": Scores | None, "validation": Scores | None,
        "last": dict[str, Scores],
        "metric": _entries({"name": Name}, higher_is_better=bool, percent=bool),
        "evaluation": _entries({"exact": bool, "method": str}, parts=Count | None, sample=Count),
        "rounds": Count, "steps": Count, "best_round": int, "local_steps": Count | list[Count],
        "train_seconds": Cost,
        "seconds": dict[str, Cost], "peak_memory_bytes": Cost, "inference_seconds": Cost | None,
        "traffic": _entries({"workers": Positive}, bytes_per_round=Cost, bytes_per_step=Cost),
        "memory": dict[str, Any], "partition": list[dict[str, Any]],
        "coverage": _COVERAGE, "stopped_early": bool,
    },
    stopped_by=str | None, budget=_entries({"reason": str}, sub_gcns=Positive) | None,
    communication=dict[str, Any] | None, interrupted=bool, diverged=str, standardised=bool,
    data_root=str,
    provenance=_entries({}, date=str | None, machine=str | None) | None,
    fingerprint=dict[str, dict[str, Any]], per_round=list[dict[str, float]],
    classes=_list(_entries({"nodes": Count, "f1": float})),
    temperature=Annotated[float, Meta(gt=0)],
)
# fmt: on


def check_record(record: dict[str, Any]) -> None:
    """Raise a ValueError unless the content of a result.json has the types and the scores that are
    read from it.
    """
    graph = msgspec.convert(record, _RECORD).graph
    if graph.class_names and len(graph.class_names) != graph.classes:
        raise ValueError(
            f"the graph has {graph.classes} classes and {len(graph.class_names)} names"
        )
    if not {"never_trained", "counts"} & record["coverage"].keys():
        raise ValueError("coverage has no never_trained")
    if missing := [
        name
        for name in ("test", "validation")
        if record[name] and main_score(record) not in record[name]
    ]:
        raise ValueError(f"{missing[0]} has no {main_score(record)}, the score of the run")
