"""The optimiser of a sub-GCN: by name, or made by a class or a function that the user brings."""

from collections.abc import Callable, Iterable
from functools import cache
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.errors import InputError, users_code
from gistgnn.training.names import find, name_of

MakeOptimizer = Callable[..., Optimizer]
"""Returns an optimiser, called as `make(parameters, lr=...)`, with weight_decay and momentum where they are not 0."""

_CLASSES: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def make_optimizer(
    optimizer: str | MakeOptimizer, parameters: Iterable[Tensor], lr: float, weight_decay: float, momentum: float
) -> Optimizer:
    """Return a new optimiser of the parameters; the arguments are settings of `Training`."""
    make: Any = find("optimizer", optimizer)
    if isinstance(make, str):
        own = {"momentum": momentum} if make == "sgd" else {}
        # fused: one pass over the parameters in a step, on the CPU as well
        return eager(_CLASSES[make])(parameters, lr=lr, weight_decay=weight_decay, fused=True, **own)
    given = {"weight_decay": weight_decay, "momentum": momentum}
    return make(parameters, lr=lr, **{name: value for name, value in given.items() if value})


def check_optimizer(optimizer: str | MakeOptimizer, lr: float, weight_decay: float, momentum: float) -> None:
    """Make an optimiser of one small parameter, and take a step.

    Raises:
        InputError: the user's function does not return an optimiser that a round can use.
    """
    parameter, name = nn.Parameter(torch.zeros(2, 2)), name_of(optimizer)
    advice = "expected a torch.optim class, or a function of (parameters, lr) that returns an optimiser"
    with users_code(f"the optimizer {name} cannot be made", advice):
        made = make_optimizer(optimizer, [parameter], lr, weight_decay, momentum)
    if not isinstance(made, Optimizer):
        raise InputError(f"the optimizer {name} gave a {type(made).__name__}: {advice}")
    if any(group["lr"] != lr for group in made.param_groups):
        rates = ", ".join(f"{group['lr']:g}" for group in made.param_groups)
        raise InputError(
            f"the optimizer {name} has the learning rate {rates}, not lr, which is {lr:g}: pass `lr` on, and give the "
            "rate as lr=..., since every step sets it by the schedule"
        )
    parameter.grad = torch.zeros_like(parameter)
    with users_code(f"the optimizer {name} cannot take a step", "choose one whose step() needs no closure"):
        made.step()


@cache
def eager(kind: Any) -> Callable[..., Optimizer]:
    """Return a class of optimisers that takes the same steps, for training loops that are not compiled.

    torch wraps these methods for its compiler. The wrappers import the compiler, which takes longer than all other
    imports together, when an optimiser is made and when it takes a step.
    """
    methods = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    unwrapped = {name: unwrap(getattr(kind, name)) for name in methods}
    made: Any = type(kind.__name__, (kind,), {**unwrapped, "step": torch.no_grad()(unwrap(kind.step))})
    return made
