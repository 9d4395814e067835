"""The runners. A new runner is a file with a class or function of the form of `Runner`, and an entry here.

This module imports nothing slow: the command line reads it.
"""

import importlib
from typing import TYPE_CHECKING

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.runners.runner import Runner

RUNNERS = {
    "in-turn": "gistgnn.runners.in_turn:InTurn",
    "fused": "gistgnn.runners.fused:Fused",
}
"""The classes by name, as "module:Class"."""


def make_runner(name: str) -> "Runner":
    """Return a runner.

    Raises:
        InputError: there is no runner of that name.
    """
    if name not in RUNNERS:
        raise InputError(f"runner is '{name}', expected one of {', '.join(RUNNERS)}")
    module, kind = RUNNERS[name].split(":")
    runner: Runner = getattr(importlib.import_module(module), kind)()
    return runner
