"""The runners. A new runner is a file with a class of the form of `Runner`, and an entry here.

This module imports nothing slow: the command line reads it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gistgnn.errors import InputError
from gistgnn.utils.checks import shown
from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.runners.runner import Runner

RunnerName = Literal["auto", "in-turn", "fused"]
"""The names below, for type checkers; a test compares them."""

RUNNERS: "Registry[Callable[[], Runner]]" = Registry(
    {
        "auto": "gistgnn.runners.auto:Auto",
        "in-turn": "gistgnn.runners.in_turn:InTurn",
        "fused": "gistgnn.runners.fused:Fused",
    }
)


def make_runner(name: str) -> "Runner":
    """Return a runner.

    Raises:
        InputError: there is no runner of that name.
    """
    if not isinstance(name, str) or name not in RUNNERS:
        raise InputError(f"runner is {shown(name)}, expected one of {', '.join(RUNNERS)}")
    return RUNNERS[name]()
