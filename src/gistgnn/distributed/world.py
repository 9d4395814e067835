"""The processes of a run: what they do together, one process alone, and the bytes sent."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class Traffic:
    """What this rank has exchanged with the others; sizes are in bytes."""

    rounds: int = 0  # that have ended
    sent: int = 0  # slices sent to other ranks
    received: int = 0  # slices received from other ranks
    seconds: float = 0.0  # spent in exchanging slices
    waited: float = 0.0  # seconds of waiting for the others, and of exchanging small messages
    slices: int = 0  # the slices of all sub-GCNs in these rounds; each counts once
    read: int = 0  # Θ that this rank has sent to rank 0, which evaluates and writes the model


class World:
    """The processes that train one model together.

    They are `Alone`, or the `Ranks` that torchrun has started.
    """

    is_distributed: bool = False  # torchrun has started this process, perhaps with others
    rank: int = 0  # this process's number
    count: int = 1  # W, the number of processes
    leads: bool = True  # this process is rank 0

    def __init__(self) -> None:
        self.traffic = Traffic()  # what this process has exchanged with the others

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in order, on every rank.

        A value is anything that JSON can hold.
        """
        return [value]

    def any(self, flag: bool) -> bool:
        return any(self.gather(flag))

    def lead(self, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """Do some work on rank 0, and return its result on all ranks.

        The result is something that JSON can hold. All ranks raise its GistError.
        """
        # What the other ranks do meanwhile returns when rank 0 is done.
        return work()

    def together(self, work: Callable[[], T]) -> T:
        """Do some work on every rank, and return this rank's result.

        All ranks raise the first rank's GistError.
        """
        return work()

    def load(self, load: Callable[[], T]) -> T:
        """Load a graph; see `load_on_ranks`."""
        return load()

    def remember(self, name: str, value: str) -> None:
        """Keep a value for the ranks that torchrun starts after these; see `Ranks.remember`."""

    def recall(self, name: str) -> str | None:
        """Return what ranks before a restart have remembered.

        Returns None if they have not, or if there was no restart.
        """
        return None

    def talking(self) -> AbstractContextManager[None]:
        """Within the block the ranks exchange something by torch.distributed.

        See `Ranks.talking`.
        """
        return nullcontext()

    def close(self) -> None:
        """Leave the other processes."""


class Alone(World):
    """The only process of a run."""


def load_on_ranks(ranks: World | None, load: Callable[[], T]) -> T:
    """Load a graph on every rank; all ranks call this.

    One rank of every machine loads it first, and downloads what is missing.

    Args:
        ranks: of the run. None for a process alone.
        load: returns the graph.

    Raises:
        InputError: `load` has raised it on one of the ranks.
    """
    return load() if ranks is None else ranks.load(load)


@dataclass(frozen=True)
class Costs:
    """Bytes that a rank sends in a round of ζ steps, on average. It receives as many."""

    gist: float  # the slices of the rank's sub-GCNs, from Θ and back
    data_parallel: float  # the gradients of Θ, averaged after every step
    local_sgd: float  # Θ, averaged once


def costs(
    theta: int, slices: float, ranks: int, local_steps: int, *, copies: int | None = None
) -> Costs:
    """Count the bytes that W ranks send in a round of ζ steps.

    With rows of Θ on every rank, the owners of a slice send it to the rank that trains it, and get
    it back: all ranks send 2 (W - 1)/W Σ_i |slice_i|. All m slices of a d × d matrix hold d²/m
    entries: section 2.3. With several copies of all of Θ, a trained slice goes to all but one. An
    average over all ranks is a ring's: 2 (W - 1)/W |Θ| for each.

    Args:
        theta: the bytes of Θ.
        slices: the bytes of the slices of all sub-GCNs, with their moments.
        ranks: W.
        local_steps: ζ.
        copies: how many copies of all of Θ there are. None if every rank has rows of it.
    """
    other_share = (ranks - 1) / ranks
    gist = 2 * other_share * slices / ranks if copies is None else (copies - 1) * slices / ranks
    average = 2 * other_share * theta
    return Costs(gist=gist, data_parallel=local_steps * average, local_sgd=average)


def communication(
    ranks: World, theta: int, local_steps: int, *, copies: int | None
) -> dict[str, Any]:
    """Gather the traffic of all ranks since the run began; all ranks call this.

    For the arguments see `costs`.
    """
    traffic = ranks.traffic
    rounds = max(traffic.rounds, 1)
    traffic_of_ranks = ranks.gather(asdict(traffic))
    means = {
        name: [traffic_of_rank[name] / rounds for traffic_of_rank in traffic_of_ranks]
        for name in ("sent", "received", "seconds", "waited")
    }
    formula = costs(theta, traffic.slices / rounds, ranks.count, local_steps, copies=copies)
    return {
        "ranks": ranks.count,
        "rounds": traffic.rounds,
        # Of every rank its mean per round: bytes, seconds of exchanging slices, and seconds of
        # waiting, evaluation included.
        **means,
        "formula": asdict(formula),  # The bytes that a rank sends.
        "read": sum(traffic_of_rank["read"] for traffic_of_rank in traffic_of_ranks),
    }
