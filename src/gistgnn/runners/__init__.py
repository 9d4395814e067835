"""Where the sub-GCNs of a round run."""

from collections.abc import Callable

from gistgnn.errors import InputError
from gistgnn.runners.fused import Fused
from gistgnn.runners.in_turn import train_in_turn
from gistgnn.runners.runner import Runner, Schedule, Stretch

RUNNERS: dict[str, Callable[[Callable[[str], None]], Runner]] = {
    "in-turn": lambda _: train_in_turn,
    "fused": Fused,
}
"""The runners by name; each is made with a function that tells the user something."""


def make_runner(name: str, note: Callable[[str], None] = lambda _: None) -> Runner:
    """Return a runner.

    Args:
        name: of `RUNNERS`.
        note: called with what the user should know.

    Raises:
        InputError: there is none of that name.
    """
    if name not in RUNNERS:
        raise InputError(f"runner is '{name}', expected one of {', '.join(RUNNERS)}")
    return RUNNERS[name](note)


__all__ = ["RUNNERS", "Fused", "Runner", "Schedule", "Stretch", "make_runner", "train_in_turn"]
