"""How often a run is evaluated, where its settings leave that to what evaluation takes."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import GIST, Training
from gistgnn.accounting import costs
from gistgnn.accounting.costs import LITTLE, SHARE, Operations, forward_operations
from gistgnn.estimate.shapes import RunShape
from gistgnn.evaluation import Evaluation
from gistgnn.graphs.named import GraphSizes
from gistgnn.nn import GraphSAGE
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.schedule import Schedule
from tests.helpers.fitting import GRAPH

GISTS = {
    width: GIST(lambda w: GraphSAGE(100, w, 47), (width, width), 4)
    for width in (8, 16, 64, 256, 1024)
}


def counted(nodes: int = 10**6, width: int = 256, m: int = 4) -> Operations:
    gist = GISTS[width]
    sizes = GraphSizes(nodes, 20 * nodes, nodes // 2)
    return Operations(
        gist.full_spec,
        gist.partition.split_into(m),
        sizes,
        ClusterSampling(1000, 10),
        Evaluation(),
        inductive=False,
    )


def forward(width: int, nodes: float, m: int = 1) -> float:
    """Of GraphSAGE on a graph of degree 20, by hand."""
    d = width // m
    return nodes * 2 * (100 * d + d * d + d * 47) + costs.SPARSE * 20 * nodes * 2 * d


@settings(deadline=None, max_examples=20)
@given(
    nodes=st.integers(10**5, 10**8),
    width=st.sampled_from([8, 64, 1024]),
    m=st.sampled_from([1, 2, 4, 8]),
    steps=st.integers(1, 1000),
)
def test_evaluation_takes_a_tenth_of_training(nodes: int, width: int, m: int, steps: int) -> None:
    run = counted(nodes, width, m)
    full = forward(width, nodes)
    assert forward_operations(GISTS[width].full_spec, nodes, 20 * nodes) == full
    narrow = replace(GISTS[width].full_spec, widths=(width // m,) * 2)
    step = costs.STEP + 3 * forward_operations(narrow, run.batch.nodes[0], run.batch.edges[0])
    for rounds in (10**3, 10**9):
        interval = run.evaluate_every(steps=steps, rounds=rounds)
        payable = SHARE * rounds * steps * step
        evaluations = math.ceil(rounds / interval)
        assert evaluations == 1 or evaluations * full <= payable
        assert interval == 1 or math.ceil(rounds / (interval - 1)) * full > payable


def test_there_is_one_evaluation_at_least_or_one_in_each_round() -> None:
    for rounds in (1, 2, 3, 10, 100):
        assert counted().evaluate_every(steps=1, rounds=rounds) == rounds
    few = int(LITTLE / forward(16, 1000))  # So many evaluations take little together.
    assert counted(1000, 16).evaluate_every(steps=1, rounds=few) == 1
    assert counted(1000, 16).evaluate_every(steps=1, rounds=few + 1) > 1


def test_settings_of_the_user_are_kept() -> None:
    run = counted()
    cases: tuple[tuple[dict[str, Any], int], ...] = (
        ({"evaluate_every": 7, "patience": 3}, 7),
        ({"patience": 3}, 1),
    )
    for options, interval in cases:
        assert Schedule(Training(100, 10, **options), 100, 4, run).evaluate_every == interval
    assert Schedule(Training(100, 10), 100, 4, run).evaluate_every > 1


def test_a_run_is_scored_as_its_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # With these values the tiny graph is treated as a large one.
    for name, value in (("LITTLE", 0.0), ("STEP", 0.0), ("SHARE", 0.05)):
        monkeypatch.setattr(costs, name, value)
    config = RunConfig("tiny", ModelConfig("graphsage", (16, 8)), 2, training=Training(60, 2))
    result = config.fit(
        config.trainer(GRAPH.num_features, GRAPH.num_classes), GRAPH, progress=False
    )
    scored = [entry["round"] for entry in result.history]
    plan = RunShape(config, GraphSizes.of_graph(GRAPH))
    interval = plan.schedule.evaluate_every
    rounds = result.progress.rounds
    assert 1 < interval < rounds / 3
    assert scored == sorted({*range(interval, rounds + 1, interval), rounds})
    assert plan.evaluations == len(scored)
