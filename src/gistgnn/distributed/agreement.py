"""What all ranks of a run must have in common, and the refusal where they differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gistgnn.distributed.world import World
from gistgnn.errors import InputError

SAME_SETTINGS = "start all ranks with the same settings"
_LONGEST = 80  # characters of a value in a message
_ABSENT = object()


@dataclass(frozen=True)
class Facts:
    """Some values that have to be the same on all ranks.

    Args:
        values: by name, as messages call them: anything that JSON can hold. Entries of lists and dicts are compared one
            by one.
        advice: what to do where they differ.
    """

    values: Mapping[str, Any]
    advice: str = SAME_SETTINGS


def require_same(ranks: World, *facts: Facts) -> None:
    """Refuse ranks whose values differ, or whose gistgnn or torch is of another version; all ranks call this.

    The ranks exchange a digest. The values themselves are exchanged only where digests differ.

    Args:
        ranks: the processes of the run.
        facts: this rank's values. Where several differ, the message names the first.

    Raises:
        InputError: a value differs. All ranks raise it. The message has the value's name, its value on rank 0, and that
            on the first rank where it is another.
    """
    if ranks.count == 1:
        return
    every = (Facts(_versions(), "install the same version for all ranks"), *facts)
    own = [dict(_leaves(each.values)) for each in every]
    digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
    if len(set(ranks.gather(digest))) == 1:
        return
    answers = ranks.gather(own)
    for place, each in enumerate(every):
        if found := difference([answer[place] for answer in answers]):
            raise InputError(f"{found}: {each.advice}")


def difference(ranks: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the first difference between the values of several ranks in words; None: there is none."""
    for name in dict.fromkeys(name for values in ranks for name in values):
        first = ranks[0].get(name, _ABSENT)
        for rank, values in enumerate(ranks):
            if _shown(other := values.get(name, _ABSENT)) != _shown(first):
                return f"{name} is {_cut(first)} on rank 0 and {_cut(other)} on rank {rank}"
    return None


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers, texts and short lists in a value, each with a name that says where it is."""
    if isinstance(value, Mapping):
        if name:
            yield name, "given"
        for key, entry in value.items():
            yield from _leaves(entry, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        plain = all(isinstance(entry, (bool, int, float)) for entry in value)
        if plain and len(repr(value)) <= _LONGEST:
            yield name, list(value)
            return
        yield name, "given"
        for place, entry in enumerate(value):
            yield from _leaves(entry, f"{name}[{place}]")
    elif isinstance(value, str):
        yield name, _without_folder(value)
    else:
        yield name, value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _without_folder(text: str) -> str:
    """Return the name of a function in a file: the file may lie elsewhere on another machine."""
    return text.rpartition(".py:")[2]


def _shown(value: Any) -> str:
    return "missing" if value is _ABSENT else repr(value)


def _cut(value: Any) -> str:
    text = _shown(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _versions() -> dict[str, str]:
    """Return the versions of gistgnn and torch, without "+cpu" and the like: ranks may have different devices."""
    found = {}
    for name in ("gistgnn", "torch"):
        try:
            found[f"the version of {name}"] = version(name).partition("+")[0]
        except PackageNotFoundError:  # run from its sources
            found[f"the version of {name}"] = "unknown"
    return found
