"""What a run holds is freed when it is over, and not only when Python next looks for cycles of references."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from gistgnn import GIST
from gistgnn.evaluation import Evaluation
from gistgnn.sampling import ClusterSampling
from gistgnn.settings import Phase
from tests.helpers.models import OURS, tiny_graph

SETTINGS: dict[str, dict[str, Any]] = {
    "whole graph": {"epochs": 2},
    "clusters": {"epochs": 2, "sampler": ClusterSampling(8, 2), "inductive": True},
    "shown": {"epochs": 2, "progress": True},
    "layers": {"epochs": 2, "evaluation": Evaluation("layers"), "runner": "fused"},
    "phases": {"phases": [Phase(2, 2, copies=True), Phase(1, 1)], "redraw_every": 0, "cross_weights": "zero"},
}


@pytest.fixture
def no_search_for_cycles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_search_for_cycles")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_finished_run_holds_no_memory(settings: dict[str, Any]) -> None:
    graph = tiny_graph()
    gist = GIST(OURS["gcn"], (8, 8), 2)
    result = gist.fit(graph, **{"local_steps": 2, "progress": False, **settings})
    held = [weakref.ref(each) for each in (graph.x, gist, gist.theta, result)]
    del graph, gist, result
    assert [reference() for reference in held] == [None] * 4
