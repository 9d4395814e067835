"""Where the sub-GCNs of a round run."""

from collections.abc import Callable

from gistgnn.errors import InputError
from gistgnn.runners.fused import Fused
from gistgnn.runners.in_turn import train_in_turn
from gistgnn.runners.runner import Runner, Schedule, Stretch

RUNNERS: dict[str, Callable[[], Runner]] = {
    "in-turn": lambda: train_in_turn,
    "fused": Fused,
}
"""The runners by name."""


def make_runner(name: str) -> Runner:
    """Return a runner.

    Args:
        name: of `RUNNERS`.

    Raises:
        InputError: there is none of that name.
    """
    if name not in RUNNERS:
        raise InputError(f"runner is '{name}', expected one of {', '.join(RUNNERS)}")
    return RUNNERS[name]()


__all__ = ["RUNNERS", "Fused", "Runner", "Schedule", "Stretch", "make_runner", "train_in_turn"]
