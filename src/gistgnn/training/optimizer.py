"""The optimiser of a sub-GCN and its learning rate at every step, by name or the user's own."""

import inspect
import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gistgnn.errors import InputError, users_code
from gistgnn.training.names import UpdateRule, find_named, named_as, parameters_of
from gistgnn.utils.checks import check_number

MakeOptimizer = Callable[..., Optimizer]
"""Returns an optimiser, called as `make(parameters, lr=...)`, with weight_decay and momentum where
they are not 0.
"""

Factor = Callable[[float], float]
"""Returns what lr is multiplied by, of the progress: 0 <= progress < 1."""

MakeScheduler = Callable[..., LRScheduler]
"""Returns a scheduler of torch; its first argument is called `optimizer`."""

CLASSES: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def check_optimizer(training: Any, model: nn.Module | None = None) -> None:
    """Raise InputError unless the user's function makes an optimiser that can take a step."""
    optimizer_name = named_as(training.optimizer)
    lr = training.first_lr
    dimensions = {"a matrix": 2}
    if model is not None:
        dimensions = {name: parameter.dim() for name, parameter in model.named_parameters()}
    # Small parameters with as many dimensions as the model's stand for these: Muon takes matrices
    # alone.
    parameters = {
        name: nn.Parameter(torch.zeros([2] * count)) for name, count in dimensions.items()
    }
    advice = (
        "expected a torch.optim class, or a function of (parameters, lr) that returns an optimiser"
    )
    if refused := _list_refused(training, parameters):
        tensors = ", ".join(refused[:3])
        if len(refused) > 3:
            tensors += " and others"
        advice = (
            f"it refuses {tensors}: give a function of (parameters, lr) with another "
            "optimiser for these, or take adamw"
        )
    with users_code(f"the optimizer {optimizer_name} cannot be made", advice):
        made = training.make_optimizer(parameters.values())
    if not isinstance(made, Optimizer):
        raise InputError(f"the optimizer {optimizer_name} gave a {type(made).__name__}: {advice}")
    if any(group["lr"] != lr for group in made.param_groups):
        rates = ", ".join(f"{group['lr']:g}" for group in made.param_groups)
        raise InputError(
            f"the optimizer {optimizer_name} has the learning rate {rates}, not lr, which is "
            f"{lr:g}: pass lr on"
        )
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    with users_code(
        f"the optimizer {optimizer_name} cannot take a step",
        "choose one whose step() needs no closure",
    ):
        made.step()
    if training.keeps_moments:
        _check_moments(made, parameters, f"the optimizer {optimizer_name}")


def _check_moments(
    optimizer: Optimizer, parameters: Mapping[str, nn.Parameter], subject: str
) -> None:
    """Refuse an optimiser whose moments have other shapes than their parameters.

    Args:
        optimizer: has taken a step.
        parameters: those that it trains, by name.
        subject: what the message calls the optimiser.
    """
    for name, parameter in parameters.items():
        for key, state in optimizer.state.get(parameter, {}).items():
            if isinstance(state, torch.Tensor) and state.dim() and state.shape != parameter.shape:
                raise InputError(
                    f"{subject} keeps '{key}' of {name}, whose shape is not the parameter's, so "
                    "rounds cannot carry it: give optimizer_state='reset', or take adamw"
                )


def _list_refused(training: Any, parameters: Mapping[str, nn.Parameter]) -> list[str]:
    """Return the parameters of which no optimiser can be made, if one can be made of others."""
    # Whether an optimiser takes parameters with this number of dimensions.
    is_taken: dict[int, bool] = {}
    for parameter in parameters.values():
        if parameter.dim() not in is_taken:
            is_taken[parameter.dim()] = False
            with suppress(Exception):  # A user's function may raise anything.
                training.make_optimizer([parameter])
                is_taken[parameter.dim()] = True
    if not any(is_taken.values()):
        return []
    return [name for name, parameter in parameters.items() if not is_taken[parameter.dim()]]


# Entries of a group of parameters whose learning rate is multiplied by a factor: the factor, the
# group's settings without it, and the number of the group that it was split from.
RATE_FACTOR = "rate_factor"
PLAIN = "plain_settings"
PLAIN_GROUP = "plain_group"


def scale_rates(optimizer: Optimizer, rate_factors: Mapping[Tensor, float]) -> None:
    """Multiply the learning rate of every parameter by its factor, in groups of one factor each.

    The weight decay of a group is divided by the factor: the product of the two is what shrinks a
    weight in a step, and it stays the same (Yang et al., "Tensor Programs V", appendix B).
    """
    if all(factor == 1.0 for factor in rate_factors.values()):
        return
    scaled_groups = []
    for number, group in enumerate(optimizer.param_groups):
        parameters_by_factor: dict[float, list[Tensor]] = {}
        for parameter in group["params"]:
            factor = rate_factors.get(parameter, 1.0)
            parameters_by_factor.setdefault(factor, []).append(parameter)
        plain = {name: group[name] for name in ("lr", "weight_decay") if name in group}
        for factor, parameters in parameters_by_factor.items():
            scaled = {name: _scale_setting(name, value, factor) for name, value in plain.items()}
            origin = {RATE_FACTOR: factor, PLAIN: plain, PLAIN_GROUP: number}
            scaled_groups.append(group | scaled | origin | {"params": parameters})
    optimizer.param_groups[:] = scaled_groups


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a group.

    A rate that is a tensor stays the same tensor, which a recorded step reads.
    """
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _scale_setting(setting: str, value: Any, factor: float) -> Any:
    """Return a setting of a group whose learning rate is multiplied by a factor."""
    if setting == "lr":
        return value * factor
    if setting == "weight_decay":
        return value / factor
    return value


def update_rule(training: Any) -> UpdateRule | None:
    """Return how a step of the optimiser follows from the gradient.

    Its learning rate by width depends on this.

    An optimiser of the user's own is tried. Its step on an entry has to depend on the gradient of
    that entry alone. Then it is "sgd" if the step is proportional to the gradient, "adam" if it
    does not depend on the gradient's scale, and None if neither holds, such as for Muon, whose
    steps are orthogonal matrices.
    """
    if training.optimizer in CLASSES:
        return "sgd" if training.optimizer == "sgd" else "adam"
    if isinstance(training.optimizer, Hashable) and training.optimizer in _RULES:
        return _RULES[training.optimizer]
    rule = None
    # A user's function may raise anything, and `check_optimizer` tells what it is.
    with suppress(Exception):
        rule = _try_rule(training)
    if isinstance(training.optimizer, Hashable):
        if len(_RULES) >= MOST_RECORDS:
            _RULES.clear()
        _RULES[training.optimizer] = rule
    return rule


_RULES: dict[Any, UpdateRule | None] = {}
_TRIED_STEPS = 10  # The first steps of some optimisers, such as RAdam, are not like later ones.
_GRADIENT = ((0.5, -1.0, 2.0), (1.5, 1.0, -0.5))
_ALIKE = 0.02  # Steps count as the same up to this relative difference.


def _try_rule(training: Any) -> UpdateRule | None:
    """Return the rule of `update_rule`, by steps of an optimiser on a small matrix."""
    plain = replace(training, weight_decay=0.0)
    gradient = torch.tensor(_GRADIENT)
    other_entry = gradient.clone()
    other_entry[0, 0] = -3.0
    step = _measure_last_step(plain, gradient)
    step_with_other_entry = _measure_last_step(plain, other_entry)
    if not _are_alike(step_with_other_entry.view(-1)[1:], step.view(-1)[1:]):
        return None
    larger_step = _measure_last_step(plain, 4 * gradient)
    if _are_alike(larger_step, step):
        return "adam"
    return "sgd" if _are_alike(larger_step, 4 * step) else None


def _are_alike(step: Tensor, other: Tensor) -> bool:
    """Whether two steps count as the same, however small the learning rate makes both."""
    return torch.allclose(step, other, rtol=_ALIKE, atol=0.0)


def _measure_last_step(training: Any, gradient: Tensor) -> Tensor:
    """Return the change of a matrix in the last of some steps with the same gradient."""
    matrix = nn.Parameter(torch.zeros_like(gradient))
    optimizer = training.make_optimizer([matrix])
    before = matrix.detach().clone()
    for _ in range(_TRIED_STEPS):
        before = matrix.detach().clone()
        matrix.grad = gradient.clone()
        optimizer.step()
    return matrix.detach() - before


@cache
def eager(kind: Any) -> Callable[..., Optimizer]:
    """Return a class of optimisers that takes the same steps without torch's compiler."""
    # The wrappers that torch has for its compiler import it when an optimiser is made and when it
    # takes a step, which takes longer than all other imports together.
    methods = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    unwrapped = {name: inspect.unwrap(getattr(kind, name)) for name in methods}
    return type(
        kind.__name__, (kind,), {**unwrapped, "step": torch.no_grad()(inspect.unwrap(kind.step))}
    )


MOST_RECORDS = 32  # At most so many schedulers, or update rules, are remembered.
TRIED = 100  # A scheduler is tried for so many steps before a run.
# Arguments of torch's schedulers that are the run's steps if left open.
STEPS = ("total_steps", "T_max")


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
    return check_number(
        f"the factor of the schedule {named_as(schedule)} at progress {progress:g}", value
    )


def scheduler_of(schedule: str | Factor | MakeScheduler) -> MakeScheduler | None:
    """Return the function that makes a scheduler of torch, or None if it makes none.

    It makes one if its first argument is called `optimizer`.
    """
    function: Any = find_named("schedule", schedule)
    return function if callable(function) and parameters_of(function)[:1] == ["optimizer"] else None


class Recorded:
    """What a scheduler of torch sets in every step of a run, by group of parameters.

    Sub-GCNs have new optimisers in every round, so a scheduler is run once, on an optimiser with
    the same groups that trains nothing. Its arguments `STEPS` are the number of steps, unless the
    user has set them.

    Attributes:
        columns: for every group the values of each setting that the scheduler changes, such as
            "lr", "momentum" or "betas", one for each step; and always "lr".
    """

    def __init__(self, make: MakeScheduler, optimizer: Optimizer, steps: int) -> None:
        still_copy = eager(_Still)(_unsplit_groups(optimizer), optimizer.defaults)
        unscheduled = [_read_settings(group) for group in still_copy.param_groups]
        self.columns: list[dict[str, list[Any]]] = [{"lr": []} for _ in unscheduled]
        arguments = inspect.signature(make).parameters
        empty = (None, inspect.Parameter.empty)
        left_open = [
            name for name in STEPS if name in arguments and arguments[name].default in empty
        ]
        failure = f"the schedule {named_as(make)} cannot give the rates of {steps} steps"
        with users_code(
            failure, "expected a scheduler that needs the optimizer and the number of steps alone"
        ):
            scheduler = make(still_copy, **dict.fromkeys(left_open, steps))
            if getattr(scheduler, "optimizer", still_copy) is not still_copy:
                raise InputError(
                    f"the schedule {named_as(make)} is of another optimizer: make it of the one it "
                    "is given"
                )
            for step in range(steps):
                for column, group, settings in zip(
                    self.columns, still_copy.param_groups, unscheduled, strict=True
                ):
                    self._record(column, group, settings, step)
                still_copy.step()
                scheduler.step()
        for rate in (rate for column in self.columns for rate in column["lr"]):
            check_number(f"a learning rate of the schedule {named_as(make)}", rate)

    @staticmethod
    def _record(
        column: dict[str, list[Any]], group: dict[str, Any], unscheduled: dict[str, Any], step: int
    ) -> None:
        """Add the values of a group in one step; `unscheduled` are those without the scheduler."""
        for name, unchanged in unscheduled.items():
            value = float(group[name]) if name == "lr" else group[name]
            if name not in column and value is not unchanged and value != unchanged:
                column[name] = [unchanged] * step  # Until now the scheduler has not changed it.
            if name in column:
                column[name].append(value)

    def set(self, optimizer: Optimizer, step: int) -> None:
        """Give an optimiser the settings of a step, counted from 0.

        After the last step they stay.
        """
        for number, group in enumerate(optimizer.param_groups):
            for name, values in self.columns[group.get(PLAIN_GROUP, number)].items():
                value = values[min(step, len(values) - 1)]
                group[name] = _scale_setting(name, value, group.get(RATE_FACTOR, 1.0))


class _Still(Optimizer):
    """Has the groups and defaults of another optimiser, and changes nothing."""

    def __init__(self, groups: list[dict[str, Any]], defaults: dict[str, Any]) -> None:
        super().__init__(
            [{**group, "params": [nn.Parameter(torch.zeros(1))]} for group in groups], defaults
        )

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # there is no closure
        """Do nothing."""


def _read_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return what a group of an optimiser has beside its parameters.

    The factor of its learning rate is left out.
    """
    hidden = ("params", "param_names", RATE_FACTOR, PLAIN, PLAIN_GROUP)
    settings = {name: value for name, value in group.items() if name not in hidden}
    return settings | group.get(PLAIN, {})


def _unsplit_groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the settings of an optimiser's groups as they were before `scale_rates` split them."""
    settings_by_group: dict[int, dict[str, Any]] = {}
    for number, group in enumerate(optimizer.param_groups):
        settings_by_group.setdefault(group.get(PLAIN_GROUP, number), _read_settings(group))
    return list(settings_by_group.values())


_RECORDS: dict[tuple[Any, ...], Recorded] = {}
_RECORD_OF: WeakKeyDictionary[Optimizer, Recorded] = WeakKeyDictionary()


def recorded(make: MakeScheduler, optimizer: Optimizer, steps: int) -> Recorded:
    """Return what a scheduler sets in the steps of a run.

    The optimiser has not taken a step yet.
    """
    if optimizer not in _RECORD_OF:
        key = make, repr(_unsplit_groups(optimizer)), steps
        if key not in _RECORDS:
            if len(_RECORDS) >= MOST_RECORDS:
                _RECORDS.clear()
            _RECORDS[key] = Recorded(make, optimizer, steps)
        _RECORD_OF[optimizer] = _RECORDS[key]
    return _RECORD_OF[optimizer]


def check_schedule(training: Any) -> None:
    """Raise InputError unless a scheduler that the user brings can be run."""
    if make := scheduler_of(training.schedule):
        recorded(make, training.make_optimizer([nn.Parameter(torch.zeros(2, 2))]), TRIED)
