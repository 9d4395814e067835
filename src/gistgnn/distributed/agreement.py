"""Work that one rank does for all, or all do together: what fails on one of them is raised on every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from gistgnn.distributed.ranks import Ranks
from gistgnn.errors import DivergedError, GistError, InputError

T = TypeVar("T")


def lead(ranks: Ranks | None, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
    """Do some work on rank 0, and give all ranks what it returns.

    Args:
        ranks: all of them call this; None: this process is alone.
        work: returns what JSON can hold.
        meanwhile: what the other ranks do; it returns when rank 0 is done.

    Raises:
        InputError: on rank 0 what the work raises; elsewhere the same message.
    """
    if ranks is None:
        return work()
    found, error = None, None
    if ranks.leads:
        try:
            found = work()
        except GistError as caught:
            error = caught
    else:
        meanwhile()
    said = ranks.gather([found, words_of(error)])[0]
    raise_first([said[1]], error)
    return said[0]


def together(ranks: Ranks | None, work: Callable[[], T]) -> T:
    """Do some work on every rank; the error of the first rank that has one is raised in all.

    Raises:
        InputError: what the work raises on any rank.
    """
    if ranks is None:
        return work()
    found: T | None = None
    error = None
    try:
        found = work()
    except GistError as caught:
        error = caught
    raise_first(ranks.gather(words_of(error)), error)
    return cast(T, found)


def words_of(error: GistError | None) -> list[Any] | None:
    """An error as JSON."""
    if error is None:
        return None
    return ["diverged", error.round_number, error.what] if isinstance(error, DivergedError) else ["input", str(error)]


def raise_first(said: list[list[Any] | None], own: GistError | None) -> None:
    """Raise what some ranks have to say of their errors: this rank's own one, or the first."""
    if words := next(filter(None, said), None):
        error = own or (DivergedError(*words[1:]) if words[0] == "diverged" else InputError(words[1]))
        error.relayed = True
        raise error
