"""Every sampler trains every model that it can, in turn and fused."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_geometric import nn as pyg

from gistgnn import GIST, Graph, Training
from gistgnn.graphs.clustering import cluster
from gistgnn.layout.axes import named_tensors
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import (
    Batch,
    ClusterBatches,
    ClusterSampling,
    FastGCNSampling,
    FullGraph,
    LadiesSampling,
    NeighborSampling,
    SaintEdgeSampling,
    SaintNodeSampling,
    SaintWalkSampling,
    Sampling,
    describe,
    from_description,
    whole_graph,
)
from gistgnn.schedule import StepRange
from gistgnn.subtrain import subtrain
from tests.helpers.logs import logged
from tests.helpers.models import OURS, USERS, C, F, Stack, tiny_graph
from tests.helpers.refusals import refused
from tests.helpers.resuming import fit, make

GRAPH = tiny_graph()


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
    "neighbor": NeighborSampling((3, 3), batch_size=8),
    "saint-node": SaintNodeSampling(batch_size=30),
    "saint-edge": SaintEdgeSampling(batch_size=15),
    "saint-rw": SaintWalkSampling(batch_size=10, walk_length=2),
}
MODELS: dict[str, Callable[[Any], Any]] = {
    "gcn": lambda w: OURS["gcn"](w),
    "graphsage": lambda w: OURS["graphsage"](w, norm="batch"),
    "gat": lambda w: OURS["gat"](w),
    "pyg": lambda w: Stack(w, pyg.SAGEConv),
    "pyg gat": lambda w: pyg.GAT(F, w, 2, C),
}
PAIRS = [
    ("ladies", "gcn"), ("fastgcn", "graphsage"), ("neighbor", "gat"), ("neighbor", "pyg"), ("saint-node", "pyg gat"),
    ("saint-edge", "gcn"), ("saint-edge", "pyg"), ("saint-rw", "graphsage"), ("saint-rw", "gat"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_it_learns(name: str, model: str) -> None:
    runner: Any = "in-turn" if model.startswith("pyg") else "fused"
    gist = GIST(MODELS[model], 16 if model == "pyg gat" else (16,), 2)
    options: dict[str, Any] = {"epochs": 60, "lr": 0.02, "local_steps": 5, "progress": False}
    result = gist.fit(homophilous(), sampler=SAMPLERS[name], runner=runner, **options)
    losses = [entry["loss"] for entry in result.history]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


@pytest.mark.parametrize("kind", [LadiesSampling, FastGCNSampling])
@pytest.mark.parametrize(("model", "said"), [("gat", "attends"), ("pyg", "takes an edge_index")])
def test_what_is_not_defined_is_refused_before_training(kind: Any, model: str, said: str) -> None:
    with refused(f"the model {said}", "does not define", "neighbor"):
        GIST(MODELS[model], (16,), 2).fit(GRAPH, sampler=kind(8, (12, 12)), epochs=1, progress=False)
    with refused("clusters is 25", "from 1 to 24"):
        fit(make(), sampler=ClusterSampling(25, 2))


def test_features_that_are_alone_need_no_edges() -> None:
    """A model of x alone is given all nodes of a batch, of which the first count."""
    build, widths = USERS["features"]
    result = GIST(build, widths, 2).fit(GRAPH, sampler=LadiesSampling(8, (5, 5)), epochs=3, progress=False)
    assert result.progress.rounds


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampling_is_described(name: str) -> None:
    said = describe(SAMPLERS[name])
    assert said is not None
    assert said["name"] == name
    assert from_description(json.loads(json.dumps(said))) == SAMPLERS[name]
    assert from_description(None) is None is describe(None)


# Clusters.


def test_all_clusters_in_one_batch_train_as_the_whole_graph_does() -> None:
    thetas = []
    for sampler in (ClusterSampling(5, 5, "random"), None):
        gist = GIST(OURS["gcn"], (8, 7), 2)
        gist.fit(GRAPH, sampler=sampler, progress=False, epochs=8, local_steps=2)
        thetas.append(gist.theta.copy())
    torch.testing.assert_close(*thetas, rtol=1e-3, atol=1e-4)


def test_an_epoch_takes_as_many_steps_as_there_are_batches(capsys: pytest.CaptureFixture[str]) -> None:
    with logged() as notes:
        result = fit(make(1), sampler=ClusterSampling(7, 2), epochs=3, local_steps=4)
    assert result.progress.steps == 3 * 4
    assert [entry["epoch"] for entry in result.history] == [2, 3]  # evaluated every second round, and at the end
    assert "METIS cuts 24 nodes" in notes[0]
    assert capsys.readouterr().out == ""


def unlabelled(batch: Batch) -> Batch:
    return Batch(batch.x, batch.edges, batch.y, batch.loss_nodes[:0])


def test_a_step_without_training_nodes_changes_nothing() -> None:
    labelled, training = whole_graph(GRAPH), Training(1, weight_decay=0.1)

    def trained(batches: list[Batch]) -> tuple[list[list[float]], Any, Any]:
        torch.manual_seed(0)
        model = OURS["gcn"]((6,)).train()
        optimizer = training.make_optimizer(model.parameters())
        loss = subtrain(model, optimizer, batches, training, lambda k: 0.1)
        counted = [float(s["step"]) for s in optimizer.state.values()]
        return [t.tolist() for t in named_tensors(model).values()], loss, counted

    without = unlabelled(labelled)
    assert trained([without, labelled, without, labelled]) == trained([labelled, labelled])
    assert trained([without, without]) == (trained([])[0], None, [])
    gist = make()
    before, round_ = gist.theta.copy(), gist.begin_round()
    assert not InTurn()(round_, FullGraph(without), Training(9), StepRange(0, 3, 9), seed=0)
    round_.aggregate()
    assert all(torch.equal(tensor, before[name]) for name, tensor in gist.theta.tensors.items())


def test_an_error_in_a_step_ends_the_thread() -> None:
    round_ = make().begin_round()
    sampler = ClusterBatches(whole_graph(GRAPH), cluster(GRAPH.edge_index, 24, 6, "random"), 2)
    round_.subs[1].forward = lambda x, adj: 1 / 0  # type: ignore[method-assign,assignment,misc]
    with pytest.raises(ZeroDivisionError):
        InTurn()(round_, sampler, Training(900, clip_norm=1.0), StepRange(0, 100, 900), seed=0)
    assert [thread for thread in threading.enumerate() if thread.name.startswith("gistgnn-prefetch")] == []
