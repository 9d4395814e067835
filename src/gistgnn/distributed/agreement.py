"""Refuses ranks of a run whose settings, models or graphs differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from gistgnn.distributed.world import World
from gistgnn.errors import InputError
from gistgnn.utils.checks import shown
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
    """Refuse ranks whose values, or versions of gistgnn or torch, differ; all ranks call this."""
    # `facts`: {advice: {name: value}}.
    if ranks.count == 1:
        return
    found = {name: version_of(name) or "unknown" for name in ("gistgnn", "torch")}
    # Without "+cpu" and the like: ranks may have different devices.
    versions = {
        f"the version of {name}": version.partition("+")[0] for name, version in found.items()
    }
    every = {"install the same version for all ranks": versions, **facts}
    own = {advice: dict(_leaves(values)) for advice, values in every.items()}
    answers = ranks.gather(own)
    for advice in own:
        theirs = [answer[advice] for answer in answers]
        for name in dict.fromkeys(name for values in theirs for name in values):
            first, *others = (values.get(name, "missing") for values in theirs)
            for rank, other in enumerate(others, 1):
                if other != first:
                    if is_digest(first.strip("'")) or is_digest(other.strip("'")):
                        raise InputError(f"{name} differ between rank 0 and rank {rank}: {advice}")
                    raise InputError(
                        f"{name} is {first} on rank 0 and {other} on rank {rank}: {advice}"
                    )


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts, numbers and lists of numbers in a value, as messages show them, each with
    its place.
    """
    if isinstance(value, (list, tuple)) and any(
        isinstance(entry, (Mapping, list, tuple, str)) for entry in value
    ):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        if name:
            yield name, "given"
        for key, entry in value.items():
            yield from _leaves(entry, f"{name}.{key}".lstrip("."))
    elif isinstance(
        value, str
    ):  # a function in a file: the file may lie elsewhere on another machine
        yield name, shown(value.rpartition(".py:")[2])
    else:
        known = value is None or isinstance(value, (bool, int, float, list))
        yield (
            name,
            shown(value) if known else str(list(value) if isinstance(value, tuple) else value),
        )
