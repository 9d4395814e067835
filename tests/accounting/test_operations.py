"""How often a run is evaluated, where its settings leave that to what evaluation takes."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import GIST, Phase
from gistgnn.accounting import costs as operations
from gistgnn.accounting.costs import LEAST, LITTLE, SHARE, Operations
from gistgnn.estimate.shapes import RunShape
from gistgnn.evaluation import Evaluation
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn import GraphSAGE
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.schedule import Schedule
from gistgnn.settings import Training
from tests.helpers.fitting import GRAPH

EVERY = {"copies": False, "steps": 80, "rounds": 10**6}


def counted(nodes: int = 10**6, degree: int = 20, width: int = 256, m: int = 4, **other: Any) -> Operations:
    gist = GIST(lambda w: GraphSAGE(100, w, 47), (width, width), m)
    sampling = other.pop("sampling", ClusterSampling(1000, 10))
    own = {"inductive": False, **other}
    evaluation = own.pop("evaluation", Evaluation())
    sizes = GraphSizes(nodes, degree * nodes, nodes // 2)
    return Operations.of_run(gist._full_spec, gist.partition, sizes, sampling, evaluation, **own)


@settings(deadline=None, max_examples=50)
@given(
    nodes=st.integers(10**5, 10**8),
    width=st.sampled_from([8, 64, 1024]),
    m=st.sampled_from([1, 2, 4, 8]),
    steps=st.integers(1, 1000),
)
def test_evaluation_takes_a_tenth_of_training(nodes: int, width: int, m: int, steps: int) -> None:
    run = counted(nodes, width=width, m=m)
    full = run._forward(run.spec, run.graph.nodes, run.graph.edges)
    step = operations.STEP + 3 * run._forward(run._narrow(None), run.batch.nodes[0], run.batch.edges[0])
    every = run.evaluate_every(None, copies=False, steps=steps, rounds=10**9)
    assert full <= SHARE * steps * step * every
    assert every == 1 or full > SHARE * steps * step * (every - 1)


def test_the_numbers_are_those_of_a_model_counted_by_hand() -> None:
    run = counted(nodes=1000, degree=20, width=8, m=4)
    weights = 2 * (100 * 8 + 8 * 8 + 8 * 47)
    assert run._forward(run.spec, 1000, 20_000) == 1000 * weights + operations.SPARSE * 20_000 * 16
    assert run._narrow(None).widths == (2, 2)
    assert run._narrow(2).widths == (4, 4)
    assert run.batch.nodes == (10,)


@pytest.mark.parametrize("rounds", [1, 2, 3, 10, 100])
def test_there_are_three_evaluations_at_least_or_one_in_each_round(rounds: int) -> None:
    every = counted().evaluate_every(None, copies=False, steps=1, rounds=rounds)
    assert every == math.ceil(rounds / LEAST)
    assert math.ceil(rounds / every) >= min(rounds, LEAST)


def test_little_work_is_done_after_every_round() -> None:
    small = counted(nodes=1000, width=16)
    one = small._forward(small.spec, 1000, 20_000)
    rounds = int(LITTLE / one)
    assert small.evaluate_every(None, copies=False, steps=1, rounds=rounds) == 1
    assert small.evaluate_every(None, copies=False, steps=1, rounds=rounds + 1) > 1


def test_a_narrow_model_in_place_of_its_copies_is_scored_more_often() -> None:
    run = counted(m=8)
    every = run.evaluate_every(8, **EVERY)
    assert run.evaluate_every(8, **{**EVERY, "copies": True}) < every / 3


def test_settings_of_the_user_are_kept() -> None:
    run = counted()
    for every, patience in ((7, None), (7, 3)):
        schedule = Schedule(Training(100, 10, patience=patience, evaluate_every=every), 100, 4, run)
        assert schedule.plan(0).evaluate_every == every
    assert Schedule(Training(100, 10, patience=3), 100, 4, run).plan(0).evaluate_every == 1
    assert Schedule(Training(100, 10), 100, 4, run).plan(0).evaluate_every > 1


def test_a_phase_has_its_own() -> None:
    phases = (Phase(4, 50, copies=True), Phase(1, 50))
    schedule = Schedule(Training(local_steps=10, phases=phases, cross_weights="zero"), 100, 4, counted())
    assert len({schedule.plan(t).evaluate_every for t in (0, schedule.rounds - 1)}) == 2


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the evaluation of a tiny graph as dear as that of a large one."""
    monkeypatch.setattr(operations, "LITTLE", 0.0)
    monkeypatch.setattr(operations, "STEP", 0.0)
    monkeypatch.setattr(operations, "SHARE", 0.05)


@pytest.mark.usefixtures("costly")
def test_a_run_is_scored_as_its_plan_says() -> None:
    config = RunConfig("tiny", ModelConfig("graphsage", (16, 8)), 2, training=Training(60, 2))
    result = config.fit(config.trainer(GRAPH.num_features, GRAPH.num_classes), GRAPH, progress=False)
    scored = [entry["round"] for entry in result.history]
    [plan] = RunShape(config, GraphSizes.of_graph(GRAPH)).phases
    every, rounds = plan.first.evaluate_every, result.progress.rounds
    assert 1 < every < rounds / LEAST
    assert scored == sorted({*range(every, rounds + 1, every), rounds})
    assert plan.evaluations == len(scored)
