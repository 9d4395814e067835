"""Θ as the mean of its sub-GCNs: on block-diagonal Θ, in a change of m, and as copies of one narrow model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.layout.axes import named_tensors
from gistgnn.round import Round
from gistgnn.sampling import Batch, forward, whole_graph
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.settings import Phase, Training
from gistgnn.theta.slices import fill
from gistgnn.utils.random_streams import Stream
from tests.helpers.fitting import GRAPH
from tests.helpers.models import OURS, every_model, layout_of

WHOLE = whole_graph(GRAPH)
DOUBLE = Batch(WHOLE.x.double(), WHOLE.edges, WHOLE.y, WHOLE.loss_nodes)
EXACT = ("gcn none 1", "gcn none 3", "gcn batch 2", "graphsage none 2", "graphsage batch 2")
EXACT += ("pyg gcn None None", "pyg gcn None cat", "pyg gcn batch_norm max", "pyg graphsage None None")
EXACT += ("pyg graphsage None cat", "jumping reversed", "copies of the whole", "features")
"""Models without a layer that mixes blocks nonlinearly."""
COPIED = [name for name in every_model() if name != "jumping over x"]
"""With one, or with ReLU after the readout, as GIN has, models are exact where the parts are copies."""
examples = settings(deadline=None, max_examples=8)


@cache
def built(name: str, widths: tuple[int, ...], m: int) -> GIST:
    build, given_widths = every_model()[name]
    shared = isinstance(given_widths, int)
    return GIST(lambda w: build(w).double(), widths[0] if shared else widths[: len(given_widths)], m)


def begun(name: str, widths: Sequence[int], phase: Phase, seed: int) -> GIST:
    """A model that begins as narrow models, each with values of its own; `widths` are as many as a model may have."""
    gist = built(name, tuple(widths), phase.sub_gcns)
    gist.seed = gist.partition.seed = seed
    torch.manual_seed(seed)
    training = Training(phases=(phase,), cross_weights="zero", local_steps=1, training="each")
    gist._begin_run(training, Schedule(training, 1, 1).plan(0), resumed=False)
    return gist


def plan(m: int, *, copies: int = 0) -> RoundPlan:
    """A round of the first draw."""
    phases = (Phase(m, 1, redraw_every=0, copies=copies),)
    return Schedule(Training(phases=phases, cross_weights="zero"), 1, 1).plan(0)


def shake(round_: Round) -> None:
    """Change everything that a sub-GCN has, as training would; statistics stay positive."""
    with torch.no_grad():
        for sub in round_.subs:
            for parameter in sub.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
            for buffer in sub.buffers():
                buffer += torch.rand(buffer.shape).to(buffer.dtype)
    round_.aggregate()


def output(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return forward(model.eval(), DOUBLE)


def outputs(gist: GIST, m: int) -> list[Tensor]:
    """Those of the m sub-GCNs."""
    return [output(sub) for sub in gist.begin_round(plan(m)).subs]


def close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= 1e-9 * expected.abs().max())


def unchanged(gist: GIST, m: int) -> None:
    """Take the m sub-GCNs out of Θ, and put them back."""
    gist.begin_round(plan(m)).aggregate()


exact = st.sampled_from(EXACT)
three_widths = st.lists(st.integers(8, 13), min_size=3, max_size=3)
seeds = st.integers(0, 99)
TRAINED = st.sampled_from([(2, 1), (3, 1), (4, 2), (6, 3)])  # m, and how many sub-GCNs train


@examples
@given(exact, three_widths, st.sampled_from([1, 2, 3, 4, 8]), seeds)
def test_the_full_model_is_the_mean_of_its_sub_gcns(name: str, widths: list[int], m: int, seed: int) -> None:
    gist = begun(name, widths, Phase(m, 2, redraw_every=0), seed)
    for _ in range(3):
        assert close(output(gist.model()), sum(outputs(gist, m)) / m)
        shake(gist.begin_round(plan(m)))


@examples
@given(exact, three_widths, st.permutations([1, 2, 4, 8]), seeds)
def test_a_change_of_m_changes_no_output(name: str, widths: list[int], order: list[int], seed: int) -> None:
    """Up and down: a sub-GCN is the mean of its parts. What was trained between the parts of a block stays there."""
    gist = begun(name, widths, Phase(8, 1), seed)
    before, parts = output(gist.model()), outputs(gist, 8)
    for m in order:
        unchanged(gist, m)
        assert close(output(gist.model()), before)
        assert all(close(own, sum(parts[r::m]) / (8 // m)) for r, own in enumerate(outputs(gist, m)))
    for fewer, many in ((4, 8), (2, 4), (1, 2)):
        shake(gist.begin_round(plan(many)))
        before, parts = output(gist.model()), outputs(gist, many)
        unchanged(gist, fewer)
        assert close(output(gist.model()), before)
        assert all(close(own, (parts[r] + parts[r + fewer]) / 2) for r, own in enumerate(outputs(gist, fewer)))


@examples
@given(exact, three_widths, st.sampled_from([1, 2, 3, 4]), seeds)
def test_with_weights_between_blocks_a_new_m_keeps_the_model(name: str, widths: list[int], m: int, seed: int) -> None:
    """Random cross weights: the sub-GCNs have the scale of narrow models, and writing them back changes nothing."""
    gist = begun(name, widths, Phase(4, 1), seed)
    training = Training(phases=(Phase(4, 1), Phase(m, 1)))
    gist._begin_run(training, Schedule(training, 1, 1).plan(0), resumed=False)
    before = {name: tensor.clone() for name, tensor in gist.theta.place.tensors.items()}  # type: ignore[attr-defined]
    gist.begin_round(Schedule(training, 1, 1).plan(1)).aggregate()
    for key, tensor in gist.theta.place.tensors.items():  # type: ignore[attr-defined]
        torch.testing.assert_close(tensor, before[key], rtol=1e-12, atol=0)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(COPIED), st.tuples(*[st.integers(2, 5)] * 3), TRAINED, seeds)
def test_copies_are_narrow_models(name: str, sizes: tuple[int, ...], parts: tuple[int, int], seed: int) -> None:
    m, trained = parts
    widths = [units * m * size for units, size in zip(layout_of(name).units, sizes, strict=False)]
    gist = begun(name, widths, Phase(m, 3, copies=trained), seed)
    for _ in range(3):
        narrow = [output(sub) for sub in gist.begin_round(plan(m, copies=trained)).subs]
        stand_in = gist._stand_in(plan(m, copies=trained))
        assert stand_in is not None
        assert close(output(stand_in), output(gist.model()))
        assert close(output(stand_in), sum(narrow) / trained) or (trained > 1 and name not in EXACT)
        for fewer in (each for each in (1, 2, m) if m % each == 0 and trained == 1):
            assert all(close(each, narrow[0]) for each in outputs(gist, fewer))
        round_ = gist.begin_round(plan(m, copies=trained))
        assert len(round_.subs) == trained
        shake(round_)


def narrow_alone(gist: GIST, widths: tuple[int, ...], training: Training) -> Iterator[dict[str, Tensor]]:
    """Ordinary training of a narrow model on the whole graph, in torch alone: its tensors after every two steps."""
    model = gist.build(widths)
    fill(model, replace(gist._full_spec, widths=widths, stream=(0,)).initial_tensors())
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=training.weight_decay, fused=True)
    model.train()
    for step in range(0, int(training.epochs), training.local_steps):
        with Stream(gist.seed, "dropout", step // training.local_steps, 0):
            for k in range(training.local_steps):
                optimizer.param_groups[0]["lr"] = training.rate_at(step + k, training.epochs)
                optimizer.zero_grad()
                functional.cross_entropy(model(WHOLE.x, WHOLE.adj)[GRAPH.train], GRAPH.y[GRAPH.train]).backward()
                optimizer.step()
        yield {name: tensor.detach().clone() for name, tensor in named_tensors(model).items()}


@pytest.mark.parametrize(
    ("model", "norm", "m"), [("gcn", "layer", 4), ("graphsage", "batch", 2), ("gat", "layer", 2), ("gin", "batch", 4)]
)
def test_copies_have_the_trajectory_of_ordinary_training(model: str, norm: str, m: int) -> None:
    """Bit for bit where m is a power of two, so that dividing by it loses nothing."""

    def build(widths: Any) -> nn.Module:
        return OURS[model](widths, dropout=0.4, norm=norm)

    gist = GIST(build, (3 * m, 2 * m), m, seed=7, width_scaling="none")
    phase = Phase(m, 8, lr=0.03, copies=True)
    training = Training(phases=(phase,), cross_weights="zero", local_steps=2, schedule="cosine")
    seen: list[dict[str, Tensor]] = []

    def look() -> None:
        stand_in = gist._stand_in(plan(m, copies=True))
        assert stand_in is not None
        seen.append({name: tensor.detach().clone() for name, tensor in named_tensors(stand_in).items()})

    gist.fit(GRAPH, training, standardise=False, progress=False, callbacks=[InterruptWhen(look)])
    alone = replace(training, phases=(), epochs=8, lr=0.03)
    for own, expected in zip(seen[-4:], narrow_alone(gist, (3, 2), alone), strict=True):
        for name, tensor in expected.items():
            assert torch.equal(own[name], tensor), name
