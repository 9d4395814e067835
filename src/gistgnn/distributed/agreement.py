"""Refuses ranks of a run whose settings, models or graphs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gistgnn.distributed.world import World
from gistgnn.errors import InputError
from gistgnn.utils.checks import shown
from gistgnn.utils.checksums import digest_of

SAME_SETTINGS, SAME_MODEL = "start all ranks with the same settings", "give all ranks the same model"
SAME_GRAPH = "give all ranks the same graph"


def require_same(ranks: World, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse ranks whose values differ, or whose gistgnn or torch is of another version; all ranks call this.

    The ranks exchange a digest. The values themselves are exchanged only where digests differ.

    Args:
        ranks: the processes of the run.
        facts: this rank's values by name, as messages call them, under the advice for ranks that differ in one of them.
            Values are anything that JSON can hold; entries of lists and dicts are compared one by one.

    Raises:
        InputError: a value differs. All ranks raise it. The message has the name of the first such value, its value on
            rank 0, and that on the first rank where it is another.
    """
    if ranks.count == 1:
        return
    every = {"install the same version for all ranks": _versions(), **facts}
    own = {advice: dict(_leaves(values)) for advice, values in every.items()}
    if len(set(ranks.gather(digest_of(own)))) == 1:
        return
    answers = ranks.gather(own)
    for advice in own:
        if found := difference([answer[advice] for answer in answers]):
            raise InputError(f"{found}: {advice}")


def difference(ranks: Sequence[Mapping[str, str]]) -> str | None:
    """Return the first difference between the values of several ranks in words; None: there is none."""
    for name in dict.fromkeys(name for values in ranks for name in values):
        first, *others = (values.get(name, "missing") for values in ranks)
        for rank, other in enumerate(others, 1):
            if other != first:
                return f"{name} is {first} on rank 0 and {other} on rank {rank}"
    return None


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts, numbers and lists of numbers in a value, as messages show them, each with its place."""
    if isinstance(value, (list, tuple)) and any(isinstance(entry, (Mapping, list, tuple, str)) for entry in value):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        if name:
            yield name, "given"
        for key, entry in value.items():
            yield from _leaves(entry, f"{name}.{key}".lstrip("."))
    elif isinstance(value, str):  # a function in a file: the file may lie elsewhere on another machine
        yield name, shown(value.rpartition(".py:")[2])
    else:
        known = value is None or isinstance(value, (bool, int, float, list))
        yield name, shown(value) if known else str(list(value) if isinstance(value, tuple) else value)


def _versions() -> dict[str, str]:
    """Return the versions of gistgnn and torch, without "+cpu" and the like: ranks may have different devices."""
    found = {}
    for name in ("gistgnn", "torch"):
        try:
            found[f"the version of {name}"] = version(name).partition("+")[0]
        except PackageNotFoundError:  # run from its sources
            found[f"the version of {name}"] = "unknown"
    return found
