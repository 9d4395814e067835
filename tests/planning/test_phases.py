"""Plans of runs with phases, beside real runs."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

from gistgnn.graphs import Graph
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.phases import Phase
from gistgnn.planning import Network, PhasedPlan, Resources, make_plan, peak_bytes, require_room, spread
from gistgnn.planning.ledger import DISK, Ledger
from gistgnn.planning.phases import Total, phase_options
from gistgnn.planning.rates import Rates
from gistgnn.planning.rehearsal import Rehearsal, rehearse
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from tests.helpers.refusals import refused

N, F, C = 300, 16, 4
COPIES, APART, KEPT, WHOLE = Phase(4, 12, copies=True), Phase(4, 16), Phase(4, 16, redraw_every=0), Phase(1, 4)
LARGE = 2**50
AMPLE = Resources(host=LARGE, gpu=None, disk=LARGE, base=0)


def graph() -> Graph:
    nodes = torch.arange(N)
    x = torch.nn.functional.one_hot(nodes % C, F) + 0.5 * torch.randn(N, F, generator=torch.Generator().manual_seed(0))
    source = torch.arange(5 * N) % N
    train, val, test = (nodes % 3 == k for k in range(3))
    return Graph.build(x, torch.stack([source, source.flip(0)]), nodes % C, train=train, val=val, test=test)


GRAPH = graph()
SIZES = GraphSizes.of_graph(GRAPH)


def run_of(*phases: Phase, width: int = 16, **training: Any) -> RunConfig:
    settings_ = {"cross_weights": "zero", "local_steps": 2, "lr": 0.001, **training}
    model = ModelConfig("graphsage", (width, width))
    return RunConfig("own", model, training=Training(phases=phases, **settings_))


def plan_of(run: RunConfig, resources: Resources = AMPLE, store: str = "memory") -> PhasedPlan:
    plan = make_plan(run, SIZES, resources, stores=[store], timed=False)
    assert isinstance(plan, PhasedPlan)
    return plan


class Observed(Ledger):
    """Counts the tensors of code that runs on tensors with values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in tree_leaves(out):
            if isinstance(made, torch.Tensor) and made.layout is torch.strided:
                self._enter(made)
        return out


def observed(run: RunConfig) -> int:
    """The most bytes that a real run holds."""
    with Observed() as ledger:
        copy = graph()
        run.fit(run.trainer(F, C), copy, progress=False)
    return ledger.account("cpu").peak


UNPHASED = replace(
    run_of(WHOLE), sub_gcns=4, training=Training(8, local_steps=2, training="each", lr=0.001, redraw_every=2)
)


@pytest.mark.parametrize(
    "run",
    [
        run_of(COPIES, width=512),
        run_of(COPIES, APART, width=512),
        run_of(COPIES, replace(APART, redraw_every=2), WHOLE, width=512),
        run_of(WHOLE, APART, width=512, optimizer_state="carry"),
        run_of(APART, replace(APART, sub_gcns=2), width=512, cross_weights="random"),
        replace(UNPHASED, model=ModelConfig("graphsage", (512, 512))),
    ],
    ids=["copies", "parting", "all", "whole first", "random between blocks", "kept blocks"],
)
@pytest.mark.parametrize("runner", ["in-turn", "fused"])
def test_the_peak_is_that_of_a_real_run(run: RunConfig, runner: str) -> None:
    run = replace(run, runner=runner)
    found = max(each.peak("cpu") for each in rehearse(run, SIZES))
    assert 0.97 < found / observed(run) < 1.03


def test_copies_take_one_sub_gcn_and_all_slices() -> None:
    copies, apart, whole = rehearse(run_of(COPIES, APART, WHOLE, width=1024), SIZES)
    [kept] = rehearse(run_of(KEPT, width=1024), SIZES)
    assert len(copies.slices) == len(apart.slices) == 4
    assert copies.slices == apart.slices
    assert whole.slices == [whole.theta]
    assert copies.peak("cpu") < kept.peak("cpu") < whole.peak("cpu")
    assert [any(each.carried) for each in (copies, apart, kept, whole)] == [True, False, True, True]
    assert copies.scoring.top - copies.scoring.before < (apart.scoring.top - apart.scoring.before) / 3


def test_later_phases_do_not_change_earlier_ones() -> None:
    phases = (COPIES, APART, WHOLE)
    whole = rehearse(run_of(*phases, width=256), SIZES, "disk")
    for count in (1, 2):
        first = rehearse(run_of(*phases[:count], width=256), SIZES, "disk")
        assert [found.stages for found in first] == [found.stages for found in whole[:count]]


def test_one_phase_of_the_full_model_is_a_run_without_phases() -> None:
    [phase] = rehearse(run_of(Phase(1, 4), width=256), SIZES)
    [plain] = rehearse(replace(run_of(WHOLE, width=256), training=Training(4, local_steps=2)), SIZES)
    assert phase.stages == plain.stages
    assert phase.step == plain.step


def seconds_of(found: list[Rehearsal]) -> tuple[list[Any], Total]:
    rates = Rates(defaultdict(lambda: 1e9), defaultdict(lambda: 1e8), 1e9, 1e9, 1e6, (0.0, 0.0))
    options = phase_options("memory", found, AMPLE.limits, rates)
    return options, Total.of(options)


@settings(max_examples=5, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 9), st.booleans()), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from(["split", "each"]),
)
def test_seconds_bytes_and_counts_add_up(parts: list[tuple[int, int, bool]], every: int, training: str) -> None:
    phases = [Phase(m, epochs, copies=copies and k == 0) for k, (m, epochs, copies) in enumerate(parts)]
    run = run_of(*phases, evaluate_every=every, training=training)
    options, total = seconds_of(rehearse(run, SIZES))
    result = run.fit(run.trainer(F, C), GRAPH, progress=False)
    assert total.rounds == sum(option.rounds for option in options) == result.progress.rounds
    assert total.evaluations == len(result.progress.history)
    assert total.moved == sum(option.rounds * option.moved_by_all for option in options)
    times = [option.seconds["phase"] + option.evaluations * option.seconds["evaluation"] for option in options]
    assert total.seconds == pytest.approx(sum(times))
    for option, phase in zip(options, phases, strict=True):
        trained = 1 if phase.copies else phase.sub_gcns
        steps = run.training.steps(1, trained, phase.epochs) * trained
        assert option.seconds["phase"] == pytest.approx(option.seconds["epoch"] * phase.epochs)
        assert option.seconds["phase"] > steps * option.seconds["step"]


def test_copies_read_one_slice_and_write_all() -> None:
    found = rehearse(run_of(COPIES, APART, width=64), SIZES)
    (copies, apart), _ = seconds_of(found)
    assert copies.moved_by_all == copies.moved == 5 * (found[0].slices[0] + found[0].carried[0])
    assert apart.moved_by_all == 4 * apart.moved == 8 * found[1].slices[0]
    assert copies.seconds["round"] < apart.seconds["round"]


def test_the_plan_says_where_every_phase_fits() -> None:
    run = run_of(COPIES, APART, WHOLE, width=1024)
    ample = plan_of(run)
    assert [option.peaks["cpu"] for option in ample.options] == sorted(option.peaks["cpu"] for option in ample.options)
    assert ample.totals[0].peaks["cpu"] == ample.options[-1].peaks["cpu"] == peak_bytes(run, SIZES)
    assert ample.choice == ample.totals[0]
    assert ample.advice == "every phase fits with the parameters in memory (--store memory)"
    tight = plan_of(run, replace(AMPLE, host=ample.options[1].peaks["cpu"]))
    assert [option.fits for option in tight.options] == [True, True, False]
    assert tight.totals[0].lacking == ("cpu",)
    assert tight.choice is None
    said = "nothing fits: with the parameters in memory, phase 3 (m = 1) lacks memory; give it more sub-GCNs"
    assert tight.advice.startswith(said)


def test_the_refusal_names_the_phase() -> None:
    run = run_of(COPIES, APART, WHOLE, width=512)
    copies, _, whole = plan_of(run).options
    parting = run_of(COPIES, KEPT, width=512)
    files = plan_of(run, store="disk").totals[0].peaks
    require_room(run, SIZES, replace(AMPLE, host=whole.peaks["cpu"]))
    with refused("phase 3 (m = 1) needs ", " stage), ", "--store disk would fit; --memory GIB"):
        require_room(run, SIZES, replace(AMPLE, host=(files["cpu"] + whole.peaks["cpu"]) // 2))
    with refused("phase 2 (m = 4) needs "):
        require_room(parting, SIZES, replace(AMPLE, host=plan_of(parting).options[1].peaks["cpu"] - 1))
    with refused(
        "phase 1 (m = 4, copies) needs ", "no store would fit; give this phase more sub-GCNs, or make --hidden"
    ):
        require_room(run, SIZES, replace(AMPLE, host=copies.peaks["cpu"] // 8))
    with refused("phase 1 (m = 4, copies) needs ", "of the disk"):
        require_room(replace(run, store="disk"), SIZES, replace(AMPLE, disk=files[DISK] // 8))


def test_phases_are_not_projected_on_ranks() -> None:
    with refused("ranks are given, but a run with phases cannot be projected on them: leave --ranks out"):
        spread(run_of(APART), SIZES, [2], Network(1e9))


@pytest.mark.parametrize(
    ("phases", "said"),
    [((Phase(17, 2),), "sub_gcns is 17"), ((replace(COPIES, sub_gcns=3),), "3 equal blocks")],
)
def test_phases_that_cannot_be_are_refused(phases: tuple[Phase, ...], said: str) -> None:
    with refused(said):
        rehearse(run_of(*phases), SIZES)
