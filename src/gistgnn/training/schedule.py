"""The learning rate at a step: by name, by a function of the progress, or by a scheduler of torch."""

import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gistgnn.errors import users_code
from gistgnn.training.names import find, name_of, parameters_of
from gistgnn.utils.checks import check_number

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

Factor = Callable[[float], float]
"""Returns what lr is multiplied by, of the progress: 0 <= progress < 1."""

MakeScheduler = Callable[..., "LRScheduler"]
"""Returns a scheduler of torch; its first argument is called `optimizer`."""

STEPS = ("total_steps", "T_max")  # arguments of torch's schedulers that are the run's steps if left open


def factor(schedule: str | Factor | MakeScheduler, progress: float) -> float:
    """Return what lr is multiplied by at a share of the run, 0 <= progress < 1.

    Raises:
        InputError: the user's function fails.
    """
    if schedule == "constant":
        return 1.0
    if schedule == "step":
        return 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    function: Any = find("schedule", schedule)
    with users_code(f"the schedule {name_of(schedule)} fails at progress {progress:g}"):
        value = float(function(progress))
    check_number(f"the factor of the schedule {name_of(schedule)} at progress {progress:g}", value)
    return value


def scheduler_of(schedule: str | Factor | MakeScheduler) -> MakeScheduler | None:
    """Return the function that makes a scheduler of torch, if its first argument is called `optimizer`; else None."""
    found: Any = find("schedule", schedule)
    return found if callable(found) and parameters_of(found)[:1] == ["optimizer"] else None


@lru_cache(maxsize=32)
def scheduler_rates(make: MakeScheduler, lr: float, steps: int) -> list[float]:
    """Return the learning rates that a scheduler of torch gives to the steps, with one `step()` after each.

    Sub-GCNs have new optimisers in every round, so the rates are read off once, from an optimiser that trains nothing.
    The arguments `STEPS` are the number of steps, unless the user has set them.

    Raises:
        InputError: it cannot be made, or it needs scores.
    """
    import torch

    from gistgnn.training.optimizer import eager

    optimizer = eager(torch.optim.SGD)([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    given, empty = inspect.signature(make).parameters, (None, inspect.Parameter.empty)
    failure = f"the schedule {name_of(make)} cannot give the rates of {steps} steps"
    with users_code(failure, "expected a scheduler that needs the optimizer and the number of steps alone"):
        scheduler = make(optimizer, **{name: steps for name in STEPS if name in given and given[name].default in empty})
        rates = []
        for _ in range(steps):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
    for value in rates:
        check_number(f"a learning rate of the schedule {name_of(make)}", value)
    return rates


def check_schedule(schedule: Factor | MakeScheduler) -> None:
    """Raise InputError unless a function of the progress gives numbers >= 0; a scheduler is tried when a run begins."""
    if scheduler_of(schedule) is None:
        for progress in (0.0, 0.5):
            factor(schedule, progress)
