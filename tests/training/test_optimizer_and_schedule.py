"""Optimisers and learning rates that a user brings."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from gistgnn import GIST, Training
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import Adjacency
from gistgnn.training.optimizer import check_optimizer, check_schedule
from tests.helpers.fitting import GRAPH, fit, gcn, theta
from tests.helpers.refusals import refused


def test_an_optimiser_gets_the_settings_that_are_not_zero() -> None:
    parameters = [nn.Parameter(torch.zeros(2))]
    made = Training(1, optimizer=torch.optim.RAdam, lr=0.3, weight_decay=0.1).make_optimizer(
        parameters
    )
    assert isinstance(made, torch.optim.RAdam)
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (0.3, 0.1)
    usual = Training(1, optimizer=torch.optim.AdamW).make_optimizer(parameters)
    assert usual.defaults["weight_decay"] == 0.01, "torch has this default"
    partly = partial(torch.optim.SGD, nesterov=True)
    assert (
        Training(1, optimizer=partly, momentum=0.9).make_optimizer(parameters).defaults["nesterov"]
    )
    assert Training(1, optimizer=partly).as_dict()["optimizer"] == "SGD(nesterov=True)"


def test_what_is_no_optimiser_of_a_round_is_refused() -> None:
    wrong: dict[str, Any] = {
        "cannot be made": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "the learning rate 0.1, not lr": lambda parameters, lr: torch.optim.SGD(parameters, lr=0.1),
        "cannot take a step": torch.optim.LBFGS,
        "gave a Linear": lambda parameters, lr: nn.Linear(2, 2),
    }
    for message, optimizer in wrong.items():
        with refused("the optimizer", message):
            check_optimizer(Training(1, optimizer=optimizer))
    model = gcn(norm="batch")((8, 8))
    # Muon takes matrices alone.
    with refused("the optimizer Muon", "convs.0.bias"):
        check_optimizer(Training(1, optimizer=torch.optim.Muon), model)
    check_optimizer(Training(1, optimizer=torch.optim.Muon), nn.Linear(3, 3, bias=False))
    with refused("Adafactor", "convs.0.weight", "optimizer_state='reset'"):
        check_optimizer(Training(1, optimizer=torch.optim.Adafactor), model)
    check_optimizer(Training(1, optimizer=torch.optim.Adafactor, optimizer_state="reset"), model)


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
        scheduler = make(optimizer)
        expected = []
        for _ in range(20):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert rates(make) == expected


def by_groups(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Weights decay, and the learning rate of biases has another course than that of weights."""
    parameters = list(parameters)
    groups = [[p for p in parameters if (p.dim() > 1) == matrices] for matrices in (True, False)]
    return torch.optim.SGD(
        [{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1]}], lr=lr, momentum=0.8
    )


class Decaying(lr_scheduler.LRScheduler):
    """Changes what torch's own schedulers leave."""

    def get_lr(self) -> list[float]:
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.2 / (1 + self.last_epoch)
        return list(self.base_lrs)


SCHEDULERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "momentum of sgd": (
        partial(lr_scheduler.OneCycleLR, max_lr=0.1),
        torch.optim.SGD,
        {"momentum": 0.9},
    ),
    "momentum that sgd did not have": (
        partial(lr_scheduler.OneCycleLR, max_lr=0.1),
        torch.optim.SGD,
        {},
    ),
    "betas": (partial(lr_scheduler.OneCycleLR, max_lr=0.05), torch.optim.AdamW, {}),
    "cycles": (
        partial(
            lr_scheduler.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=3, mode="triangular2"
        ),
        torch.optim.SGD,
        {"momentum": 0.5},
    ),
    "one after another": (
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [
                lr_scheduler.ConstantLR(optimizer, 0.1, 4),
                lr_scheduler.ExponentialLR(optimizer, 0.9),
            ],
            milestones=[4],
        ),
        torch.optim.RMSprop,
        {},
    ),
    "groups": (
        lambda optimizer: lr_scheduler.LambdaLR(
            optimizer, [lambda k: 1 / (1 + k), lambda k: 0.5**k]
        ),
        by_groups,
        {},
    ),
    "two maxima": (partial(lr_scheduler.OneCycleLR, max_lr=[0.1, 0.02]), by_groups, {}),
    "decay": (Decaying, torch.optim.AdamW, {}),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_sets_all_that_it_sets_in_a_plain_loop(name: str) -> None:
    """A plain loop of torch has the same rates, momentum, betas and decay of every group."""
    make, optimizer_of, options = SCHEDULERS[name]
    gist = GIST(gcn(), (8, 7), 1, seed=4, width_scaling="none")
    steps = 14
    model = gist.model().train()
    adjacency = Adjacency(GRAPH.edge_index, GRAPH.num_nodes)
    optimizer = optimizer_of(model.parameters(), lr=0.02, **options)
    if isinstance(make, partial) and make.func is lr_scheduler.OneCycleLR:
        scheduler = make(optimizer, total_steps=steps)
    else:
        scheduler = make(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(GRAPH.x, adjacency)[GRAPH.train]
        nn.functional.cross_entropy(out, GRAPH.y[GRAPH.train]).backward()
        optimizer.step()
        scheduler.step()
    fit(
        gist, epochs=steps, local_steps=4, lr=0.02, schedule=make, optimizer=optimizer_of, **options
    )
    tensors = theta(gist)
    for key, expected in named_tensors(model).items():
        torch.testing.assert_close(
            tensors[key], expected.detach(), msg=lambda text, key=key: f"{key}: {text}"
        )


def test_named_optimisers_have_the_scheduler_s_momentum_in_every_runner() -> None:

    def trained(runner: Any, schedule: Any) -> dict[str, Tensor]:
        gist = GIST(gcn(), (8, 8), 2, seed=1)
        fit(gist, epochs=12, runner=runner, optimizer="adam", schedule=schedule)
        return theta(gist)

    schedule = partial(lr_scheduler.OneCycleLR, max_lr=0.05)
    in_turn = trained("in-turn", schedule)
    for runner in ("auto", "fused"):
        for name, tensor in trained(runner, schedule).items():
            torch.testing.assert_close(tensor, in_turn[name])
    without_momentum = trained("in-turn", partial(schedule, cycle_momentum=False))
    assert any(
        not torch.allclose(tensor, in_turn[name], atol=1e-4)
        for name, tensor in without_momentum.items()
    )


def test_a_function_is_given_the_progress_and_a_scheduler_the_number_of_steps() -> None:
    assert rates(lambda progress: 1 - progress) == pytest.approx(
        [0.5 * (1 - k / 20) for k in range(20)]
    )
    cosine = [0.25 * (1 + math.cos(math.pi * k / 20)) for k in range(20)]
    assert rates(lr_scheduler.CosineAnnealingLR) == pytest.approx(cosine)
    cycle = rates(partial(lr_scheduler.OneCycleLR, max_lr=0.5, cycle_momentum=False))
    assert max(cycle) == pytest.approx(0.5)
    assert cycle[-1] < cycle[0] < 0.5


def test_what_is_no_schedule_is_refused() -> None:
    plateau = lr_scheduler.ReduceLROnPlateau
    wrong: dict[str, Any] = {
        "at progress 0.5 is -0.5": lambda progress: 0.0 - progress,
        "fails at progress 0": lambda progress: 1 / progress,
        "the schedule ReduceLROnPlateau cannot give the rates of 20 steps": plateau,
        "'linear', expected one of constant, step, cosine, or a function of the progress": "linear",
    }
    for message, schedule in wrong.items():
        with refused(message):
            rates(schedule)
    elsewhere = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    for schedule in (
        lr_scheduler.ReduceLROnPlateau,
        lambda optimizer: lr_scheduler.StepLR(elsewhere, 3),
    ):
        with refused("the schedule"):
            check_schedule(Training(1, schedule=schedule))
    with refused("schedule is '<lambda>'", "budget"):
        Training(budget=1, schedule=lambda progress: 1.0)


def test_settings_survive_json_as_names() -> None:
    settings: dict[str, Any] = {
        "optimizer": torch.optim.NAdam,
        "schedule": lambda p: 1.0,
        "metric": rates,
    }
    record = Training(3, loss=nn.CrossEntropyLoss(), **settings).as_dict()
    names = [record[name] for name in ("optimizer", "schedule", "loss", "metric")]
    assert names == ["NAdam", "<lambda>", "CrossEntropyLoss", "rates"]
    # A function is not saved with a run.
    with refused("loss", "'CrossEntropyLoss'"):
        Training(**record)
    plain = Training(3)
    assert not plain.as_dict().keys() & {"loss", "metric", "class_weights", "label_smoothing"}
    assert Training(**plain.as_dict()) == plain
