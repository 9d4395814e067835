"""The optimiser of a sub-GCN and its learning rate at every step: by name, or by what the user brings."""

import inspect
import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gistgnn.errors import InputError, users_code
from gistgnn.training.names import find_named, named_as, parameters_of
from gistgnn.utils.checks import check_number

MakeOptimizer = Callable[..., Optimizer]
"""Returns an optimiser, called as `make(parameters, lr=...)`, with weight_decay and momentum where they are not 0."""

Factor = Callable[[float], float]
"""Returns what lr is multiplied by, of the progress: 0 <= progress < 1."""

MakeScheduler = Callable[..., LRScheduler]
"""Returns a scheduler of torch; its first argument is called `optimizer`."""

CLASSES: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def check_optimizer(training: Any) -> None:
    """Raise InputError unless the user's function makes an optimiser that can take a step in a round."""
    parameter, name, lr = nn.Parameter(torch.zeros(2, 2)), named_as(training.optimizer), training.lr
    advice = "expected a torch.optim class, or a function of (parameters, lr) that returns an optimiser"
    with users_code(f"the optimizer {name} cannot be made", advice):
        made = training.make_optimizer([parameter])
    if not isinstance(made, Optimizer):
        raise InputError(f"the optimizer {name} gave a {type(made).__name__}: {advice}")
    if any(group["lr"] != lr for group in made.param_groups):
        rates = ", ".join(f"{group['lr']:g}" for group in made.param_groups)
        raise InputError(f"the optimizer {name} has the learning rate {rates}, not lr, which is {lr:g}: pass lr on")
    parameter.grad = torch.zeros_like(parameter)
    with users_code(f"the optimizer {name} cannot take a step", "choose one whose step() needs no closure"):
        made.step()


@cache
def eager(kind: Any) -> Callable[..., Optimizer]:
    """Return a class of optimisers that takes the same steps, for training loops that are not compiled."""
    # torch's wrappers for its compiler import it when an optimiser is made and when it takes a step, which takes longer
    # than all other imports together.
    methods = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    unwrapped = {name: inspect.unwrap(getattr(kind, name)) for name in methods}
    return type(kind.__name__, (kind,), {**unwrapped, "step": torch.no_grad()(inspect.unwrap(kind.step))})


STEPS = ("total_steps", "T_max")  # arguments of torch's schedulers that are the run's steps if left open


def factor(schedule: str | Factor | MakeScheduler, progress: float) -> float:
    """Return what lr is multiplied by at a share of the run, 0 <= progress < 1."""
    if schedule == "constant":
        return 1.0
    if schedule == "step":
        return 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    function: Any = find_named("schedule", schedule)
    with users_code(f"the schedule {named_as(schedule)} fails at progress {progress:g}"):
        value = float(function(progress))
    check_number(f"the factor of the schedule {named_as(schedule)} at progress {progress:g}", value)
    return value


def scheduler_of(schedule: str | Factor | MakeScheduler) -> MakeScheduler | None:
    """Return the function that makes a scheduler of torch, if its first argument is called `optimizer`; else None."""
    found: Any = find_named("schedule", schedule)
    return found if callable(found) and parameters_of(found)[:1] == ["optimizer"] else None


@lru_cache(maxsize=32)
def scheduler_rates(make: MakeScheduler, lr: float, steps: int) -> list[float]:
    """Return the learning rates that a scheduler of torch gives to the steps, with one `step()` after each."""
    # Sub-GCNs have new optimisers in every round, so they are read off once, from an optimiser that trains nothing. The
    # arguments `STEPS` are the number of steps, unless the user has set them.
    optimizer = eager(torch.optim.SGD)([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    given, empty = inspect.signature(make).parameters, (None, inspect.Parameter.empty)
    failure = f"the schedule {named_as(make)} cannot give the rates of {steps} steps"
    with users_code(failure, "expected a scheduler that needs the optimizer and the number of steps alone"):
        scheduler = make(optimizer, **{name: steps for name in STEPS if name in given and given[name].default in empty})
        rates = []
        for _ in range(steps):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
    for value in rates:
        check_number(f"a learning rate of the schedule {named_as(make)}", value)
    return rates
