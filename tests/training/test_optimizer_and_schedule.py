"""Optimisers and learning rates that a user brings."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
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


def test_what_is_no_optimiser_of_a_round_is_refused() -> None:
    wrong: dict[str, Any] = {
        "cannot be made": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "has the learning rate 0.1, not lr, which is 0.01": lambda parameters, lr: torch.optim.SGD(parameters, lr=0.1),
        "cannot take a step": torch.optim.LBFGS,
        "gave a Linear": lambda parameters, lr: nn.Linear(2, 2),
    }
    for message, optimizer in wrong.items():
        with refused("the optimizer", message):
            check_optimizer(Training(1, optimizer=optimizer))


def rates(schedule: Any, steps: int = 20, lr: float = 0.5) -> list[float]:
    training = Training(1, schedule=schedule, lr=lr)
    return [training.rate_at(step, steps) for step in range(steps)]


def test_a_scheduler_of_torch_gives_the_rates_of_a_plain_loop() -> None:
    makes: list[Any] = [
        partial(lr_scheduler.StepLR, step_size=3),
        partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=7),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    ]
    for make in makes:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
        scheduler, expected = make(optimizer), []
        for _ in range(20):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert rates(make) == expected


def test_a_function_is_given_the_progress_and_a_scheduler_the_number_of_steps() -> None:
    assert rates(lambda progress: 1 - progress) == pytest.approx([0.5 * (1 - k / 20) for k in range(20)])
    cosine = [0.25 * (1 + math.cos(math.pi * k / 20)) for k in range(20)]
    assert rates(lr_scheduler.CosineAnnealingLR) == pytest.approx(cosine)
    cycle = rates(partial(lr_scheduler.OneCycleLR, max_lr=0.5, cycle_momentum=False))
    assert max(cycle) == pytest.approx(0.5)
    assert cycle[-1] < cycle[0] < 0.5


def test_what_is_no_schedule_is_refused() -> None:
    wrong: dict[str, Any] = {
        "at progress 0.5 is -0.5": lambda progress: 0.0 - progress,
        "fails at progress 0": lambda progress: 1 / progress,
        "the schedule ReduceLROnPlateau cannot give the rates of 20 steps": lr_scheduler.ReduceLROnPlateau,
        "'linear', expected one of constant, step, cosine, or a function of the progress": "linear",
    }
    for message, schedule in wrong.items():
        with refused(message):
            rates(schedule)
    with refused("schedule is '<lambda>', but a budget trains by cosine cycles"):
        Training(budget=1, schedule=lambda progress: 1.0)


def test_settings_survive_json_as_names() -> None:
    own: dict[str, Any] = {"optimizer": torch.optim.NAdam, "schedule": lambda p: 1.0, "metric": rates}
    record = Training(3, loss=nn.CrossEntropyLoss(), **own).as_dict()
    names = [record[name] for name in ("optimizer", "schedule", "loss", "metric")]
    assert names == ["NAdam", "<lambda>", "CrossEntropyLoss", "rates"]
    with refused("'CrossEntropyLoss', expected one of cross-entropy"):  # a function is not saved with a run
        Training.from_dict(record)
    plain = Training(3)
    assert not plain.as_dict().keys() & {"loss", "metric", "class_weights", "label_smoothing"}
    assert Training.from_dict(plain.as_dict()) == plain
