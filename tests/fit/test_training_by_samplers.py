"""Every sampler trains every model that it can, in turn, fused, resumed and on ranks alike."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric import nn as pyg

from gistgnn import GIST, Graph, Saving
from gistgnn.sampling import (
    ClusterSampling,
    FastGCNSampling,
    LadiesSampling,
    NeighborSampling,
    SaintEdgeSampling,
    SaintNodeSampling,
    SaintWalkSampling,
    Sampling,
    describe,
    from_description,
)
from tests.helpers.models import OURS, USERS, C, F, Stack, tiny_graph
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make, state

GRAPH = tiny_graph(60)


def homophilous() -> Graph:
    """A graph whose edges are within classes, so that every model can learn it."""
    rng, y = torch.Generator().manual_seed(0), torch.arange(60) % C
    source = torch.randint(60, (150,), generator=rng)
    target = (source + C * torch.randint(1, 20, (150,), generator=rng)) % 60
    edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)
    x = torch.randn(60, F, generator=rng)
    x[torch.arange(60), y] += 1.5
    nodes = torch.arange(60)
    return Graph.build(x, edges, y, train=nodes < 30, val=(nodes >= 30) & (nodes < 45), test=nodes >= 45)


SAMPLERS: dict[str, Sampling] = {
    "ladies": LadiesSampling(batch_size=8, nodes_per_layer=12),
    "fastgcn": FastGCNSampling(batch_size=8, nodes_per_layer=20),
    "neighbor": NeighborSampling(3, batch_size=8),
    "saint-node": SaintNodeSampling(batch_size=30),
    "saint-edge": SaintEdgeSampling(batch_size=15),
    "saint-rw": SaintWalkSampling(batch_size=10, walk_length=2),
}
CLUSTERS: dict[str, Sampling] = {
    "shared": ClusterSampling(6, 2),
    "independent": ClusterSampling(6, 2, batches="independent"),
    "random": ClusterSampling(6, 4, "random"),
    "unlabelled": ClusterSampling(24, 1),  # most batches hold no training node
}
BY_LAYERS_WEIGHED = ("ladies", "fastgcn")
MODELS: dict[str, Callable[[Any], Any]] = {
    "gcn": lambda w: OURS["gcn"](w),
    "graphsage": lambda w: OURS["graphsage"](w, norm="batch"),
    "gat": lambda w: OURS["gat"](w),
    "pyg": lambda w: Stack(w, pyg.SAGEConv),
    "pyg gat": lambda w: pyg.GAT(F, w, 2, C),
}
PAIRS = [
    (name, model)
    for name in SAMPLERS
    for model in MODELS
    if not (name in BY_LAYERS_WEIGHED and model in ("gat", "pyg", "pyg gat"))
]
OPTIONS: dict[str, Any] = {"epochs": 12, "local_steps": 3, "optimizer_state": "carry"}


def sampling(name: str, model: str) -> Sampling:
    """With a number for each layer where the model does not say how many it has."""
    return NeighborSampling((3, 3), batch_size=8) if (name, model) == ("neighbor", "pyg") else SAMPLERS[name]


@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_it_learns(name: str, model: str) -> None:
    runner = "in-turn" if model.startswith("pyg") else "fused"
    gist = GIST(MODELS[model], 16 if model == "pyg gat" else (16,), 2)
    result = gist.fit(
        homophilous(), sampler=sampling(name, model), runner=runner, epochs=60, lr=0.02, local_steps=5, progress=False
    )
    losses = [entry["loss"] for entry in result.history]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


@pytest.mark.parametrize("name", BY_LAYERS_WEIGHED)
@pytest.mark.parametrize(("model", "said"), [("gat", "attends"), ("pyg", "takes an edge_index")])
def test_what_is_not_defined_is_refused_before_training(name: str, model: str, said: str) -> None:
    chosen = type(SAMPLERS[name])(batch_size=8, nodes_per_layer=(12, 12))  # type: ignore[call-arg]
    with refused(f"the model {said}", "does not define", "neighbor"):
        GIST(MODELS[model], (16,), 2).fit(GRAPH, sampler=chosen, epochs=1, progress=False)


def test_features_that_are_alone_need_no_edges() -> None:
    """A model of x alone is given all nodes of a batch, of which the first count."""
    build, widths = USERS["features"]
    fit_options: dict[str, Any] = {"epochs": 3, "progress": False}
    assert GIST(build, widths, 2).fit(GRAPH, sampler=LadiesSampling(8, (5, 5)), **fit_options).progress.rounds


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("sampler", [*SAMPLERS.values(), *CLUSTERS.values()], ids=[*SAMPLERS, *CLUSTERS])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path, m: int, sampler: Sampling) -> None:
    options = {**OPTIONS, "sampler": sampler}
    unbroken = make(m)
    expected = state(unbroken, fit(unbroken, **options))
    saving = Saving(tmp_path / "checkpoints", resume=True)
    fit(make(m), callbacks=after(1), saving=saving, **options)
    resumed = make(m)
    assert state(resumed, fit(resumed, saving=saving, **options)) == expected


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampling_is_described(name: str) -> None:
    chosen = SAMPLERS[name]
    said = describe(chosen)
    assert said is not None
    assert said["name"] == name
    assert from_description(json.loads(json.dumps(said))) == chosen
    assert from_description(None) is None is describe(None)
    assert from_description({"clusters": 50}) == from_description(
        {"name": "clusters", "clusters": 50}
    )  # of earlier versions
