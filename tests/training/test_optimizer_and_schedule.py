"""Optimisers and learning rates that a user brings."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from gistgnn import Training
from gistgnn.training.optimizer import check_optimizer
from tests.helpers.refusals import refused


def test_an_optimiser_gets_the_settings_that_are_not_zero() -> None:
    parameters = [nn.Parameter(torch.zeros(2))]
    made = Training(1, optimizer=torch.optim.RAdam, lr=0.3, weight_decay=0.1).make_optimizer(parameters)
    assert isinstance(made, torch.optim.RAdam)
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (0.3, 0.1)
    usual = Training(1, optimizer=torch.optim.AdamW).make_optimizer(parameters)
    assert usual.defaults["weight_decay"] == 0.01  # torch's own
    partly = partial(torch.optim.SGD, nesterov=True)
    assert Training(1, optimizer=partly, momentum=0.9).make_optimizer(parameters).defaults["nesterov"]
    assert Training(1, optimizer=partly).as_dict()["optimizer"] == "SGD(nesterov=True)"


def without_lr(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def other_lr(parameters: Iterable[Tensor], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=10 * lr)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (without_lr, "cannot be made"),
        (other_lr, "has the learning rate 0.1, not lr, which is 0.01"),
        (torch.optim.LBFGS, "cannot take a step"),
        (lambda parameters, lr: nn.Linear(2, 2), "gave a Linear"),
    ],
)
def test_what_is_no_optimiser_of_a_round_is_refused(optimizer: Any, message: str) -> None:
    with refused("the optimizer", message):
        check_optimizer(optimizer, 0.01, 0.0, 0.0)


def rates(schedule: Any, steps: int = 20, lr: float = 0.5) -> list[float]:
    training = Training(1, schedule=schedule, lr=lr)
    return [training.rate_at(step, steps) for step in range(steps)]


def test_a_function_of_the_progress() -> None:
    assert rates(lambda progress: 1 - progress) == pytest.approx([0.5 * (1 - k / 20) for k in range(20)])


@pytest.mark.parametrize(
    "make",
    [
        partial(lr_scheduler.StepLR, step_size=3),
        partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=7),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    ],
    ids=["step", "restarts", "lambda"],
)
def test_a_scheduler_of_torch_gives_the_rates_of_a_plain_loop(make: Any) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler, expected = make(optimizer), []
    for _ in range(20):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates(make) == expected


def test_the_number_of_steps_is_filled_in() -> None:
    cosine = [0.25 * (1 + math.cos(math.pi * k / 20)) for k in range(20)]
    assert rates(lr_scheduler.CosineAnnealingLR) == pytest.approx(cosine)
    cycle = rates(partial(lr_scheduler.OneCycleLR, max_lr=0.5, cycle_momentum=False))
    assert max(cycle) == pytest.approx(0.5)
    assert cycle[-1] < cycle[0] < 0.5


def test_what_is_no_schedule_is_refused() -> None:
    with refused("the factor of the schedule", "at progress 0.5 is -0.5"):
        Training(1, schedule=lambda progress: 0.0 - progress)
    with refused("fails at progress 0"):
        Training(1, schedule=lambda progress: 1 / progress)
    with refused("the schedule ReduceLROnPlateau cannot give the rates of 20 steps"):
        rates(lr_scheduler.ReduceLROnPlateau)
    with refused("schedule is 'linear'", "expected one of constant, step, cosine, or a function of the progress"):
        Training(1, schedule="linear")  # type: ignore[arg-type]
    with refused("schedule is '<lambda>', but a budget trains by cosine cycles"):
        Training(budget=1, schedule=lambda progress: 1.0)


def test_settings_survive_json_as_names() -> None:
    training = Training(
        3, optimizer=torch.optim.NAdam, schedule=lambda p: 1.0, loss=nn.CrossEntropyLoss(), metric=rates
    )
    record = training.as_dict()
    assert [record[name] for name in ("optimizer", "schedule", "loss", "metric")] == [
        "NAdam",
        "<lambda>",
        "CrossEntropyLoss",
        "rates",
    ]
    read = Training.from_dict(record)
    assert read.as_dict() == record
    with refused("the optimizer was NAdam, which is not saved with a run: give it again"):
        read.make_optimizer([])
    plain = Training(3)
    assert not plain.as_dict().keys() & {"loss", "metric", "class_weights", "label_smoothing"}
    assert Training.from_dict(plain.as_dict()) == plain
