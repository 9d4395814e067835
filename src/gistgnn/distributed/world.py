"""The processes of a run: what they can do together, and the case of one process."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from gistgnn.errors import DivergedError, GistError, InputError

T = TypeVar("T")


@dataclass
class Traffic:
    """What this rank has exchanged with the others; sizes are in bytes."""

    rounds: int = 0  # that have ended
    sent: int = 0  # slices sent to other ranks
    received: int = 0  # slices received from other ranks
    seconds: float = 0.0  # spent in exchanging slices
    waited: float = 0.0  # seconds of waiting for the others, and of exchanging small messages
    slices: int = 0  # those of all sub-GCNs of all ranks in these rounds; each slice counts once
    read: int = 0  # Θ that this rank has sent to rank 0, which evaluates and writes the model


class World:
    """The processes that train one model together: `Alone`, or the `Ranks` that torchrun has started.

    Attributes:
        rank: this process's number, from 0.
        count: W, the number of processes.
        several: torchrun has started this process, so there may be others.
        first_here: the first rank on this machine.
        traffic: what this process has exchanged with the others.
    """

    several: bool = False
    rank: int = 0
    count: int = 1
    first_here: int = 0

    def __init__(self) -> None:
        self.traffic = Traffic()

    @property
    def leads(self) -> bool:
        """Whether this process is rank 0."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in order, on every rank. A value is anything that JSON can hold."""
        return [value]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on some rank."""
        return any(self.gather(flag))

    def lead(self, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """Do some work on rank 0, and return its result, which JSON can hold, on all ranks.

        The other ranks do something else meanwhile, which returns when rank 0 is done.

        Raises:
            GistError: the work has raised it; all ranks raise the same error.
        """
        result, error = None, None
        if self.leads:
            result, error = _attempt(work)
        else:
            meanwhile()
        shared, message = self.gather([result, error_message(error)])[0]
        raise_first([message], error)
        return cast(T, shared)

    def together(self, work: Callable[[], T]) -> T:
        """Do some work on every rank, and return this rank's result.

        Raises:
            GistError: the work has raised it on some rank; all ranks raise the error of the first such rank.
        """
        result, error = _attempt(work)
        raise_first(self.gather(error_message(error)), error)
        return cast(T, result)

    def share(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make tensors and plain values once on every machine; its ranks read the same memory. All ranks call this."""
        return make()

    def remember(self, name: str, value: str) -> None:
        """Keep a value for the ranks that torchrun starts after these; see `Ranks.remember`."""

    def recall(self, name: str) -> str | None:
        """Return what ranks before a restart have remembered; None: nothing, or there was no restart."""
        return None

    def talking(self) -> AbstractContextManager[None]:
        """Within the block the ranks exchange something by torch.distributed; see `Ranks.talking`."""
        return nullcontext()

    def close(self) -> None:
        """Leave the other processes."""


class Alone(World):
    """The only process of a run."""


def _attempt(work: Callable[[], T]) -> tuple[T | None, GistError | None]:
    try:
        return work(), None
    except GistError as error:
        return None, error


def error_message(error: GistError | None) -> list[Any] | None:
    """Return an error as something that JSON can hold."""
    if error is None:
        return None
    return ["diverged", error.round_number, error.what] if isinstance(error, DivergedError) else ["input", str(error)]


def raise_first(messages: list[list[Any] | None], own: GistError | None) -> None:
    """Raise an error if some rank has one: this rank's own, or else the first of the `error_message`s of all ranks."""
    if message := next(filter(None, messages), None):
        error = own or (DivergedError(*message[1:]) if message[0] == "diverged" else InputError(message[1]))
        error.relayed = True
        raise error
