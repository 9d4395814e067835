"""Refuses ranks of a run whose settings, models or graphs differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from gistgnn.distributed.world import World
from gistgnn.errors import InputError
from gistgnn.utils.checks import on_one_line, shortened
from gistgnn.utils.machine import version_of
from gistgnn.utils.tensors import is_digest

SAME_SETTINGS = "start all ranks with the same settings"
ADVICE = {
    "settings": SAME_SETTINGS,
    "model": "give all ranks the same model",
    "graph": "give all ranks the same graph",
}
"""What to do about a difference, by the part of a fingerprint."""


def require_same(ranks: World, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse ranks whose values, or versions of gistgnn or torch, differ; all ranks call this.

    Args:
        ranks: of the run.
        facts: the values by name, by what to do if one of them differs.

    Raises:
        InputError: a value differs. It names the first one, and two ranks.
    """
    if ranks.count == 1:
        return
    installed = {name: version_of(name) or "unknown" for name in ("gistgnn", "torch")}
    # Without "+cpu" and the like: ranks may have different devices.
    versions = {
        f"the version of {name}": version.partition("+")[0] for name, version in installed.items()
    }
    all_facts = {"install the same version for all ranks": versions, **facts}
    rank_facts = {
        advice: dict(_list_leaves(rank_values)) for advice, rank_values in all_facts.items()
    }
    answers = ranks.gather(rank_facts)
    for advice in rank_facts:
        theirs = [answer[advice] for answer in answers]
        for name in dict.fromkeys(name for rank_values in theirs for name in rank_values):
            first, *other_values = (rank_values.get(name, "missing") for rank_values in theirs)
            for rank, value in enumerate(other_values, 1):
                if value != first:
                    raise InputError(f"{_difference(name, first, value, rank)}: {advice}")


def _difference(name: str, first: str, value: str, rank: int) -> str:
    """Say how the value of a rank differs from that of rank 0."""
    has_digest = is_digest(first.strip("'")) or is_digest(value.strip("'"))
    if has_digest or shortened(first) == shortened(value):
        return f"{name} differ between rank 0 and rank {rank}"
    return f"{name} is {shortened(first)} on rank 0 and {shortened(value)} on rank {rank}"


def _list_leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts, numbers and lists of numbers in a value, with their names.

    The values are whole texts: what a message cuts off may be where two ranks differ.
    """
    if isinstance(value, (list, tuple)) and any(
        isinstance(entry, (Mapping, list, tuple, str)) for entry in value
    ):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        if name:
            yield name, "given"
        for key, entry in value.items():
            yield from _list_leaves(entry, f"{name}.{key}".lstrip("."))
    elif isinstance(value, str):
        # Of a function in a file only the name counts: on another machine the file may lie
        # elsewhere.
        yield name, on_one_line(value.rpartition(".py:")[2])
    elif isinstance(value, (list, tuple)):
        yield name, on_one_line(list(value))
    else:
        is_plain = value is None or isinstance(value, (bool, int, float))
        yield name, on_one_line(value) if is_plain else str(value)
