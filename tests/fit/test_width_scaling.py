"""`fit` gives every tensor the rate and the initial values of its width, beside plain PyTorch."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from gistgnn import GIST, Saving, Training, WidthScaling
from gistgnn.baselines import DataParallel, Ensemble, LocalSGD
from gistgnn.nn import GraphSAGE
from gistgnn.sampling import ClusterSampling, forward, whole_graph
from gistgnn.training.optimizer import RATE_FACTOR, update_rule
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta
from tests.helpers.logs import logged
from tests.helpers.models import C
from tests.helpers.models import F as FEATURES
from tests.helpers.refusals import refused

WIDTHS = (32, 48)
STEPS = 6


def plain_loop(kind: Any, steps: int, lr: float, **settings: Any) -> dict[str, Tensor]:
    """Train the model of `gcn` on the whole graph in plain PyTorch, by the table of the paper."""
    torch.manual_seed(0)
    model = GIST(gcn(), WIDTHS, 1, width_scaling="none").model()
    first, second = (width / 128 for width in WIDTHS)
    wide = dict(GIST(gcn(), (128, 128), 1, width_scaling="none").model().named_parameters())
    is_sgd = kind is torch.optim.SGD
    # What a weight sums over, and what it has rows for, in multiples of the base width.
    fans = {
        "convs.0.weight": (1, first),
        "convs.0.bias": (1, first),
        "convs.1.weight": (first, second),
        "convs.1.bias": (1, second),
        "convs.2.weight": (second, 1),
        "convs.2.bias": (1, 1),
    }
    groups = []
    for name, parameter in model.named_parameters():
        fan_in, fan_out = fans[name]
        rate = lr / fan_in * (fan_out if is_sgd else 1)
        decay = settings.get("weight_decay", 0) * lr / rate
        groups.append({"params": [parameter], "lr": rate, "weight_decay": decay, "plain": rate})
    assert wide.keys() == fans.keys()
    scaled = WidthScaling(gcn(), WIDTHS).scale(GIST(gcn(), WIDTHS, 1, width_scaling="none").model())
    # That the initial values are right is shown in tests/layout/test_width_scaling.py.

    model.load_state_dict(scaled.state_dict())
    optimizer = kind(groups, lr=lr)
    batch = whole_graph(GRAPH)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = group["plain"] * (1 - step / steps)
        optimizer.zero_grad()
        F.cross_entropy(forward(model, batch)[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("optimizer", "kind", "settings"),
    [
        ("adam", torch.optim.Adam, {}),
        ("adamw", torch.optim.AdamW, {"weight_decay": 0.1}),
        ("sgd", torch.optim.SGD, {"weight_decay": 0.01}),
        (torch.optim.RMSprop, torch.optim.RMSprop, {}),
    ],
)
@pytest.mark.parametrize("runner", ["in-turn", "fused"])
def test_a_run_is_that_of_plain_pytorch(
    optimizer: Any, kind: Any, settings: Any, runner: Any
) -> None:
    gist = GIST(gcn(), WIDTHS, 1)
    options = {
        "epochs": STEPS,
        "local_steps": STEPS,
        "lr": 0.05,
        "schedule": lambda progress: 1 - progress,
    }
    fit(gist, optimizer=optimizer, runner=runner, **options, **settings)
    expected = plain_loop(kind, STEPS, 0.05, **settings)
    for name, tensor in theta(gist).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6)


def test_a_loop_by_hand_is_the_run_of_fit() -> None:
    options: dict[str, Any] = {"lr": 0.03, "schedule": "constant", "optimizer_state": "reset"}
    of_fit = GIST(gcn(), WIDTHS, 4)
    fit(of_fit, epochs=8 * 4, local_steps=4, training="each", **options)
    by_hand = GIST(gcn(), WIDTHS, 4)
    batch = whole_graph(GRAPH)
    for round_ in by_hand.rounds(8):
        for sub in round_:
            groups = by_hand.parameter_groups(sub, lr=0.03)
            optimizer = torch.optim.Adam(groups, fused=True)
            for _ in range(4):
                optimizer.zero_grad()
                F.cross_entropy(forward(sub, batch)[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
                optimizer.step()
    for name, tensor in theta(by_hand).items():
        torch.testing.assert_close(tensor, theta(of_fit)[name], rtol=1e-4, atol=1e-6)


class Watched(torch.optim.SGD):
    """Notes the groups of every optimiser."""

    made: list[Optimizer] = []  # noqa: RUF012  # cleared by the tests

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr=lr)
        self.made.append(self)


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("runner", ["in-turn", "auto"])
def test_every_sub_gcn_has_the_rates_of_its_own_widths(m: int, runner: Any) -> None:
    Watched.made.clear()
    fit(GIST(gcn(), (32, 32), m), optimizer=Watched, lr=0.5, schedule="constant", runner=runner)
    used = [
        optimizer
        for optimizer in Watched.made
        if optimizer.param_groups[0]["params"][0].shape[0] == 32 // m
    ]
    assert used
    for optimizer in used:
        rates = {
            tuple(p.shape): group["lr"] for group in optimizer.param_groups for p in group["params"]
        }
        width = 32 // m
        assert rates[width, FEATURES] == pytest.approx(0.5 * width / 128)
        assert rates[width, width] == pytest.approx(0.5)
        assert rates[C, width] == pytest.approx(0.5 * 128 / width)


@pytest.mark.parametrize("m", [1, 2])
def test_at_the_base_width_rates_are_plain(m: int) -> None:
    runs = []
    for scaling in ("mup", "none"):
        gist = GIST(gcn(), (8 * m, 8 * m), m, width_scaling=scaling, base_width=8)
        fit(gist, lr=0.02)
        runs.append(theta(gist))
    # With m = 2 the rates of sub-GCNs are plain, and the full model's readout begins smaller.
    assert same(*runs) == (m == 1)


def test_rates_follow_the_base_width_that_is_set() -> None:
    gist = GIST(gcn(), (32, 32), 1, base_width=16)
    factors = {group["lr"] for group in gist.parameter_groups(gist.model(), lr=1.0)}
    assert factors == {1.0, 0.5}


@pytest.mark.parametrize("scheduler", [OneCycleLR, torch.optim.lr_scheduler.CosineAnnealingLR])
def test_a_scheduler_sets_rates_in_the_ratios_of_the_widths(scheduler: Any) -> None:
    def schedule(optimizer: Optimizer, total_steps: int | None = None) -> Any:
        if scheduler is OneCycleLR:
            return OneCycleLR(optimizer, max_lr=0.3, total_steps=total_steps)
        return scheduler(optimizer, T_max=total_steps)

    training = Training(epochs=4, lr=0.1, schedule=schedule)
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    plain = training.make_optimizer(parameters)
    scaled = training.make_optimizer(parameters, [1.0, 0.25, 4.0])
    for step in range(4):
        training.begin_step(plain, step, 4)
        training.begin_step(scaled, step, 4)
        expected = [plain.param_groups[0]["lr"] * factor for factor in (1.0, 0.25, 4.0)]
        assert [group["lr"] for group in scaled.param_groups] == expected


def test_weight_decay_shrinks_by_the_same_share() -> None:
    training = Training(epochs=1, lr=0.1, optimizer="adamw", weight_decay=0.5)
    optimizer = training.make_optimizer(
        [nn.Parameter(torch.zeros(2)) for _ in range(2)], [1.0, 0.25]
    )
    assert [group["lr"] * group["weight_decay"] for group in optimizer.param_groups] == [0.05, 0.05]
    assert [group[RATE_FACTOR] for group in optimizer.param_groups] == [1.0, 0.25]


def with_momentum(parameters: Any, lr: float) -> Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True)


@pytest.mark.parametrize(
    ("optimizer", "rule"),
    [
        ("adam", "adam"),
        ("adamw", "adam"),
        ("sgd", "sgd"),
        (torch.optim.SGD, "sgd"),
        (with_momentum, "sgd"),
        (torch.optim.NAdam, "adam"),
        (torch.optim.RAdam, "adam"),
        (torch.optim.Adamax, "adam"),
        (torch.optim.RMSprop, "adam"),
        (torch.optim.Adagrad, "adam"),
        (torch.optim.Rprop, "adam"),
        (torch.optim.Muon, None),
    ],
)
@pytest.mark.parametrize("lr", [0.01, 1e-9])
def test_how_an_optimiser_steps_is_found_by_trying_it(
    optimizer: Any, rule: str | None, lr: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gistgnn.training.optimizer._RULES", {})
    assert update_rule(Training(epochs=1, lr=lr, optimizer=optimizer)) == rule


def matrices_alone(widths: Any) -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, widths[0], bias=False), nn.ReLU(), nn.Linear(widths[0], C, bias=False)
    )


def test_an_optimiser_of_neither_kind_keeps_plain_rates() -> None:
    runs = []
    for base_width in (16, 64):
        gist = GIST(matrices_alone, (16,), 1, base_width=base_width)
        start = {name: tensor.clone() for name, tensor in theta(gist).items()}
        with logged(logging.WARNING) as notes:
            fit(gist, optimizer=torch.optim.Muon, lr=0.1, epochs=1, local_steps=1)
        assert sum("learning rates do not follow the widths" in note for note in notes) == 1
        runs.append(theta(gist)["2.weight"] - start["2.weight"])
    # Its step is nearly an orthogonal matrix. With Adam's rates one step were four times the other.
    assert float(runs[0].norm()) == pytest.approx(float(runs[1].norm()), rel=0.3)


def sage(widths: Any) -> nn.Module:
    return GraphSAGE(FEATURES, widths, C, norm="layer")


@pytest.mark.parametrize("m", [2, 4])
def test_the_fused_runner_takes_the_steps_of_the_others(m: int) -> None:
    models = []
    for runner in ("in-turn", "auto", "fused"):
        gist = GIST(sage, (32, 32), m)
        fit(gist, runner=runner, lr=0.01)
        models.append(theta(gist))
    assert same(models[0], models[1])
    for name, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[2][name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", [LocalSGD, DataParallel, Ensemble])
def test_methods_to_compare_with_have_the_same_rates(method: Any) -> None:
    Watched.made.clear()
    fit(method(gcn(), (32, 32), 2), optimizer=Watched, lr=0.5, sampler=ClusterSampling(2, 1))
    width = 16 if method is Ensemble else 32
    factors = {
        group[RATE_FACTOR]
        for optimizer in Watched.made
        for group in optimizer.param_groups
        if RATE_FACTOR in group
    }
    assert factors == {width / 128, 1.0, 128 / width}


def test_a_regression_learns_with_scaled_rates() -> None:
    plain, scaled = (
        GIST(lambda w: sage(w), (32, 32), 2, regression=True, width_scaling=scaling).model()
        for scaling in ("none", "mup")
    )
    ratio = (
        scaled.state_dict()["convs.2.weight"].norm() / plain.state_dict()["convs.2.weight"].norm()
    )
    assert float(ratio) == pytest.approx(0.1 * (128 / 32) ** 0.5, rel=0.05)


def test_what_a_run_resumes_from_has_the_same_scaling(tmp_path: Path) -> None:
    saving = Saving(tmp_path, resume=True)
    fit(GIST(gcn(), (16, 16), 2), saving=saving)
    with refused("base_width"):
        fit(GIST(gcn(), (16, 16), 2, base_width=64), saving=saving)
    with refused("width_scaling"):
        fit(GIST(gcn(), (16, 16), 2, width_scaling="none"), saving=saving)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"width_scaling": "sp"}, "width_scaling"),
        ({"width_scaling": None}, "width_scaling"),
        ({"base_width": 0}, "base"),
    ],
)
def test_a_scaling_or_base_width_that_does_not_exist_is_refused(
    options: dict[str, Any], culprit: str
) -> None:
    with refused(culprit):
        GIST(gcn(), (8, 8), 2, **options)


def test_plain_rates_are_one_group() -> None:
    gist = GIST(gcn(), (8, 8), 2, width_scaling="none")
    (sub, _) = gist.begin_round().subs
    (group,) = gist.parameter_groups(sub, lr=0.3, weight_decay=0.2)
    assert (group["lr"], group["weight_decay"]) == (0.3, 0.2)
    assert group["params"] == list(sub.parameters())


def by_dimensions(parameters: Any, lr: float) -> Optimizer:
    parameters = list(parameters)
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() < 2]
    return torch.optim.SGD([{"params": matrices, "weight_decay": 0.1}, {"params": vectors}], lr=lr)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: LambdaLR(optimizer, [lambda k: 1 / (1 + k), lambda k: 0.5**k]),
        partial(OneCycleLR, max_lr=[0.1, 0.02]),
    ],
)
def test_a_scheduler_of_the_user_s_own_groups_sees_these_alone(schedule: Any) -> None:
    training = Training(epochs=5, lr=0.02, optimizer=by_dimensions, schedule=schedule)
    shapes = [(3, 2), (3,), (2, 3), (2,)]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    factors = [1.0, 2.0, 0.25, 1.0]
    plain = training.make_optimizer(parameters)
    scaled = training.make_optimizer(parameters, factors)
    for step in range(5):
        training.begin_step(plain, step, 5)
        training.begin_step(scaled, step, 5)
        plain_rates = {id(p): group["lr"] for group in plain.param_groups for p in group["params"]}
        rates = {id(p): group["lr"] for group in scaled.param_groups for p in group["params"]}
        for parameter, factor in zip(parameters, factors, strict=True):
            assert rates[id(parameter)] == plain_rates[id(parameter)] * factor
    gist = GIST(gcn(), (8, 7), 2)
    fit(gist, optimizer=by_dimensions, schedule=schedule, lr=0.02)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in theta(gist).values())
