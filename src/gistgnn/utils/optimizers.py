"""Optimisers of torch that do not load its compiler."""

from functools import cache
from inspect import unwrap

import torch
from torch.optim import Optimizer


@cache
def eager(kind: type[Optimizer]) -> type[Optimizer]:
    """Return a class of optimisers that takes the same steps, for training loops that are not compiled.

    torch wraps these methods for its compiler. The wrappers import the compiler, which takes longer than all other
    imports together, when an optimiser is made and when it takes a step.
    """
    methods = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    unwrapped = {name: unwrap(getattr(kind, name)) for name in methods}
    return type(kind.__name__, (kind,), {**unwrapped, "step": torch.no_grad()(unwrap(kind.step))})
