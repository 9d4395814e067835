"""The fused runner does what the in-turn runner does, where it can."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from gistgnn import GIST, DivergedError, Saving
from gistgnn.graphs.clustering import cluster
from gistgnn.layout.axes import named_tensors
from gistgnn.runners.fused import Fused
from gistgnn.runners.in_turn import InTurn
from gistgnn.runners.registry import make_runner
from gistgnn.runners.stack import Stack
from gistgnn.sampling import Batch, ClusterBatches, FullGraph, Sampler, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import loss_of
from tests.helpers.logs import logged
from tests.helpers.models import OURS, PYG, USERS, C, Case, F, some_models, tiny_graph
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, make, state
from tests.helpers.resuming import fit as fit_resumable

from .comparing import DOUBLE, FULL, SGD, WHOLE, in_double, runners_agree, trained

FEW = Batch(DOUBLE.x, DOUBLE.edges, DOUBLE.y, DOUBLE.loss_nodes[:2])
BAGS = functional.one_hot(WHOLE.y % C, F).double() * (WHOLE.x > 1.5)  # few of them not zero
SAMPLERS: dict[str, Sampler] = {
    "full": FullGraph(DOUBLE),
    "clusters": ClusterBatches(DOUBLE, cluster(WHOLE.edge_index, 24, 6, "random"), 3),
    "some without training nodes": ClusterBatches(FEW, cluster(WHOLE.edge_index, 24, 4, "random"), 1),
    "sparse": FullGraph(Batch(BAGS, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes)),
    "multi-label": FullGraph(in_double(whole_graph(tiny_graph(multi_label=True)))),
}


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    return Training(
        9,
        optimizer="sgd",
        lr=0.1,
        momentum=draw(st.sampled_from([0.0, 0.9])),
        weight_decay=draw(st.sampled_from([0.0, 0.1])),
        clip_norm=draw(st.sampled_from([None, 0.05])),
        optimizer_state=draw(st.sampled_from(["reset", "carry"])),
        schedule=draw(st.sampled_from(["constant", "step"])),
    )


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(list(OURS)),
    norm=st.sampled_from(["none", "layer", "batch"]),
    widths=st.lists(st.integers(4, 9), min_size=1, max_size=2).map(tuple),
    m=st.integers(2, 4),
    steps=st.integers(1, 3),
    sampler=st.sampled_from(list(SAMPLERS)),
    training=trainings(),
    whole=st.sampled_from([(), (0,)]),
)
def test_it_equals_the_in_turn_runner(
    name: str,
    norm: str,
    widths: tuple[int, ...],
    m: int,
    steps: int,
    sampler: str,
    training: Training,
    whole: tuple[int, ...],
) -> None:
    case: Case = partial(OURS[name], norm=norm), widths
    assert runners_agree(case, m, SAMPLERS[sampler], training, steps, whole=whole) == []


@pytest.mark.parametrize(
    "name", ["pyg gcn layer_norm cat", "pyg graphsage None max", "pyg gin batch_norm None", *USERS]
)
def test_it_equals_the_in_turn_runner_for_other_models(name: str) -> None:
    training = Training(9, optimizer="sgd", lr=0.05, momentum=0.9, optimizer_state="carry", clip_norm=1.0)
    assert runners_agree(some_models()[name], 3, SAMPLERS["full"], training) == []


@pytest.mark.parametrize("name", ["gat", "gin"])
def test_adam_carries_its_moments(name: str) -> None:
    """No norm follows a bias here: every gradient is more than rounding."""
    case: Case = partial(OURS["graphsage"], norm="none"), (9, 7)
    training = Training(9, optimizer="adam" if name == "gat" else "adamw", weight_decay=0.1, optimizer_state="carry")
    assert runners_agree(case, 4, SAMPLERS["full"], training) == []
    assert runners_agree((PYG[name], 12), 3, SAMPLERS["full"], training) == []


class Frozen(nn.Module):
    """A first layer that is not trained, and a number of its own for all sub-GCNs."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter, self.out = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.enter.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.enter(x).relu()) * self.scale


def test_frozen_parameters_stay() -> None:
    assert (
        runners_agree((Frozen, (9,)), 4, SAMPLERS["full"], Training(9, optimizer="sgd", lr=0.1, weight_decay=0.1)) == []
    )
    gist = GIST(Frozen, (9,), 4)
    before = gist.theta.copy()
    left, _ = trained(Fused(), gist, FULL, Training(9, weight_decay=0.1))
    assert torch.equal(left["enter.weight"], before["enter.weight"])
    assert not torch.equal(left["out.weight"], before["out.weight"])


class Counting(nn.Module):
    """Puts a new tensor in its buffer's place at every call, instead of changing the old one."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter, self.out = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)
        self.register_buffer("mean", torch.zeros(widths[0]))

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x).relu()
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(dim=0)
        return self.out(h - self.mean)


def test_buffers_that_are_replaced_are_kept() -> None:
    assert runners_agree((Counting, (9,)), 2, SAMPLERS["full"], SGD) == []
    left, _ = trained(Fused(), GIST(Counting, (9,), 2), FULL, SGD)
    assert left["mean"].abs().min() > 0


# Dropout.


def test_every_sub_gcn_has_masks_of_its_own() -> None:
    """Two sub-GCNs that hold the same parameters part at the first step."""
    gist = GIST(lambda w: OURS["gcn"](w, dropout=0.5), (9, 7), 2, whole=[0, 1])
    round_ = gist.begin_round()
    Fused()(round_, FULL, SGD, StepRange(0, 1, 9), 0)
    first, second = (named_tensors(sub) for sub in round_)
    assert not torch.equal(first["convs.1.weight"], second["convs.1.weight"])


@pytest.mark.parametrize("name", OURS)
def test_with_dropout_outputs_and_gradients_have_the_same_mean(name: str) -> None:
    """The means of 300 draws, of one module and of the same module in a stack, differ by their sampling errors."""
    draws, each = 300, 50
    torch.manual_seed(0)
    model = OURS[name]((6,), dropout=0.5).train()
    sums: dict[str, list[Tensor]] = {}
    for _ in range(draws // each):
        stack = Stack([model] * each)
        logits = stack.logits(WHOLE)
        loss_of(logits, WHOLE).sum().backward()
        sums.setdefault("fused logits", []).append(logits.detach())
        sums.setdefault("fused gradient", []).append(stack.parameters["convs.1.weight"].grad)  # type: ignore[arg-type]
    for _ in range(draws):
        model.zero_grad()
        logits = model(WHOLE.x, WHOLE.adj)
        loss_of(logits, WHOLE).backward()
        sums.setdefault("own logits", []).append(logits.detach()[None])
        sums.setdefault("own gradient", []).append(model.get_parameter("convs.1.weight").grad[None])  # type: ignore[index]
    for what in ("logits", "gradient"):
        fused, own = (torch.cat(sums[f"{kind} {what}"]).double() for kind in ("fused", "own"))
        error = ((fused.var(dim=0) + own.var(dim=0)) / draws).sqrt()
        assert (((fused.mean(dim=0) - own.mean(dim=0)).abs()) <= 5 * error + 1e-6).all()
        torch.testing.assert_close(fused.std(dim=0).mean(), own.std(dim=0).mean(), rtol=0.1, atol=0)


def test_dropout_follows_the_seed_and_the_round() -> None:
    def left(number: int, seed: int) -> list[list[float]]:
        gist = GIST(lambda w: OURS["gcn"](w, dropout=0.5), (8, 7), 2)
        gist.next_round = number
        round_ = gist.begin_round()
        Fused()(round_, FULL, SGD, StepRange(0, 2, 9), seed)
        return [t.tolist() for sub in round_ for t in named_tensors(sub).values()]

    first = left(0, 0)
    torch.manual_seed(9)
    assert left(0, 0) == first
    assert left(0, 1) != first


def test_the_baseline_is_the_in_turn_runner_s_and_nothing_is_said() -> None:
    build = partial(OURS["gcn"], dropout=0.5)
    with logged() as notes:
        fused, losses = trained(Fused(), GIST(build, (8, 7)), FULL, Training(9))
    expected, own = trained(InTurn(), GIST(build, (8, 7)), FULL, Training(9))
    assert all(torch.equal(fused[name], expected[name]) for name in expected)
    assert losses == own
    assert notes == []


# Runs.


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Any) -> None:
    options: dict[str, Any] = {"runner": "fused", "optimizer_state": "carry"}
    unbroken = make()
    expected = state(unbroken, fit_resumable(unbroken, **options))
    saving = Saving(tmp_path / "checkpoints", resume=True)
    fit_resumable(make(), callbacks=after(2), saving=saving, **options)
    resumed = make()
    assert state(resumed, fit_resumable(resumed, saving=saving, **options)) == expected


@pytest.mark.parametrize("runners", [("fused", "in-turn"), ("in-turn", "fused")])
def test_another_runner_may_go_on(tmp_path: Path, runners: tuple[str, str]) -> None:
    """Without dropout, with the same Θ but for rounding."""
    saving = Saving(tmp_path / "checkpoints", resume=True)

    def fitted(stop: int, runner: str) -> GIST:
        gist = GIST(OURS["graphsage"], (9, 10), 3)
        options: dict[str, Any] = {"optimizer": "sgd", "optimizer_state": "carry", "momentum": 0.9, "lr": 0.05}
        gist.fit(
            tiny_graph(),
            epochs=36,
            local_steps=2,
            progress=False,
            callbacks=after(stop),
            saving=saving,
            runner=runner,
            **options,
        )
        return gist

    fitted(3, runners[0])
    resumed = fitted(1000, runners[1])
    saving = Saving(tmp_path / "others")
    expected = fitted(1000, "in-turn")
    assert resumed.next_round == expected.next_round == 6
    for name, tensor in expected.theta.tensors.items():  # type: ignore[attr-defined]
        torch.testing.assert_close(resumed.theta.tensors[name], tensor, rtol=1e-4, atol=1e-5)  # type: ignore[attr-defined]


def test_a_loss_that_is_not_finite_names_the_sub_gcn() -> None:
    round_ = GIST(OURS["gcn"], (9,), 4).begin_round()  # blocks of 3, 2, 2, 2
    with torch.no_grad():
        for broken in (2, 3):
            named_tensors(round_.subs[broken])["convs.1.bias"].fill_(float("inf"))
    losses = Fused()(round_, FULL, SGD, StepRange(0, 2, 9), 0)
    with refused("round 1", "loss of sub-GCN 2", error=DivergedError):
        round_.aggregate(losses)


def test_a_round_without_training_nodes() -> None:
    gist = GIST(OURS["gcn"], (8,), 2)
    before = gist.theta.copy()
    round_ = gist.begin_round()
    nothing = FullGraph(Batch(WHOLE.x, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes[:0]))
    losses = Fused()(round_, nothing, Training(9), StepRange(0, 3, 9), 0)
    assert not losses
    assert round_.aggregate(losses) == 0.0
    assert all(torch.equal(tensor, before[name]) for name, tensor in gist.theta.tensors.items())


def test_unknown_runners_are_refused() -> None:
    with refused("runner is 'ray'", "auto, in-turn, fused"):
        make_runner("ray")
    with refused("runner is 'ray'"):
        GIST(OURS["gcn"], (8,), 2).fit(tiny_graph(), runner="ray", epochs=1)
