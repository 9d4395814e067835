"""Whole runs with every sampler, with edge data, and of the training nodes alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from gistgnn import GIST, Graph, Result, Saving, sampling
from gistgnn.graphs.csr import CSR
from gistgnn.sampling import ClusterSampling, Sampling
from tests.helpers import edges
from tests.helpers.edges import Weighted, edge_graph, only, weighted
from tests.helpers.fitting import fit, same, theta
from tests.helpers.logs import logged
from tests.helpers.models import OURS, C, F, Stack, tiny_graph
from tests.helpers.resuming import after, state

SMALL = tiny_graph(30)
GRAPH = edge_graph()


def homophilous() -> Graph:
    """A graph whose edges are within classes, so that every model can learn it."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(60) % C
    source = torch.randint(60, (150,), generator=rng)
    target = (source + C * torch.randint(1, 20, (150,), generator=rng)) % 60
    edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)
    x = torch.randn(60, F, generator=rng)
    x[torch.arange(60), y] += 1.5
    nodes = torch.arange(60)
    return Graph.build(
        x, edges, y, train=nodes < 30, val=(nodes >= 30) & (nodes < 45), test=nodes >= 45
    )


SAMPLERS: dict[str, Sampling] = {
    "ladies": sampling.LadiesSampling(batch_size=8, nodes_per_layer=12),
    "fastgcn": sampling.FastGCNSampling(batch_size=8, nodes_per_layer=20),
    "neighbor": sampling.NeighborSampling((3, 3), batch_size=8),
    "saint-node": sampling.SaintNodeSampling(batch_size=30),
    "saint-edge": sampling.SaintEdgeSampling(batch_size=15),
    "saint-rw": sampling.SaintWalkSampling(batch_size=10, walk_length=2),
    "clusters": sampling.ClusterSampling(6, 2),
    "clusters independent": sampling.ClusterSampling(6, 2, batches="independent"),
}
MODELS: dict[str, Callable[[Any], Any]] = {
    "gcn": OURS["gcn"],
    "graphsage": lambda w: OURS["graphsage"](w, norm="batch"),
    "gat": OURS["gat"],
    "pyg": lambda w: Stack(w, pyg.SAGEConv),
    "pyg gat": lambda w: pyg.GAT(F, w, 2, C),
}
PAIRS = [
    ("ladies", "gcn"), ("fastgcn", "graphsage"), ("neighbor", "gat"), ("neighbor", "pyg"),
    ("saint-node", "pyg gat"),
    ("saint-edge", "gcn"), ("saint-edge", "pyg"), ("saint-rw", "graphsage"), ("saint-rw", "gat"),
    ("clusters", "gcn"),
    ("clusters independent", "graphsage"),
]  # fmt: skip


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_a_run_with_a_sampler_learns_and_goes_on_after_a_stop(
    name: str, model: str, tmp_path: Path
) -> None:
    def trained(**options: Any) -> tuple[GIST, Result]:
        gist = GIST(MODELS[model], 16 if model == "pyg gat" else (16,), 2)
        runner: Any = "in-turn" if model.startswith("pyg") else "fused"
        settings: dict[str, Any] = {
            "epochs": 60,
            "lr": 0.02,
            "local_steps": 5,
            "optimizer_state": "carry",
            **options,
        }
        return gist, gist.fit(
            homophilous(), sampler=SAMPLERS[name], runner=runner, progress=False, **settings
        )

    unbroken = trained()
    saving = Saving(tmp_path, resume=True)
    losses = [entry["loss"] for entry in unbroken[1].history]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert trained(saving=saving, callbacks=after(2))[1].interrupted
    assert state(*trained(saving=saving)) == state(*unbroken)


EVERY = {"full": None, **SAMPLERS}
BY_LAYERS = ("ladies", "fastgcn")


def theta_of(
    build: Callable[[Any], nn.Module], graph: Graph, sampler: Any = None, **options: Any
) -> dict[str, Tensor]:
    gist = GIST(build, (8,), 2)
    fit(gist, graph, sampler=sampler, epochs=4, lr=0.05, **options)
    return theta(gist)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", EVERY)
def test_edge_weights_of_one_change_nothing_and_others_do(name: str) -> None:
    sampler = EVERY[name]
    graph = tiny_graph(30)
    for build in (OURS["gcn"], OURS["graphsage"], *[Weighted] * (name not in BY_LAYERS)):
        plain = theta_of(build, graph, sampler)
        assert same(plain, theta_of(build, weighted(graph, ones=True), sampler))
        assert not same(plain, theta_of(build, weighted(graph), sampler))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("model", edges.MODELS)
def test_models_of_edge_data_train(model: str) -> None:
    used = edges.MODELS[model]((8,)).name
    graph = only(GRAPH, used)
    other = replace(GRAPH, **{used: GRAPH.edge_data[used].flip(0)})
    for sampler in (EVERY[name] for name in EVERY if name not in BY_LAYERS):
        with logged() as messages:
            one = theta_of(edges.MODELS[model], graph, sampler)
        assert not [message for message in messages if used in message]
        assert not same(one, theta_of(edges.MODELS[model], only(other, used), sampler))


WAYS = [
    ("auto", None),
    ("fused", ClusterSampling(5, 2)),
    ("in-turn", ClusterSampling(5, 2, precompute=False)),
]


def without_the_rest(graph: Graph) -> Graph:
    """The graph with other features of the nodes outside training, and other edges at them."""
    inside = graph.train[graph.edge_index].all(dim=0)
    x = torch.where(graph.train[:, None], graph.x, 100 * torch.randn_like(graph.x))
    outside = (~graph.train).nonzero().squeeze(1)
    outside_edges = torch.stack([outside, outside.roll(1)])
    pairs = torch.cat([graph.edge_index[:, inside], outside_edges], dim=1)
    return replace(
        graph, x=x, edges=CSR.of(pairs[:, pairs[1].argsort(stable=True)], graph.num_nodes)
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("runner", "sampler"), WAYS)
def test_the_rest_of_the_graph_changes_scores_and_nothing_else(
    runner: str, sampler: ClusterSampling | None
) -> None:
    def trained(graph: Graph, **options: Any) -> tuple[dict[str, Tensor], list[Any]]:
        gist = GIST(lambda w: OURS["graphsage"](w, dropout=0.3), (8,), 2)
        result = fit(gist, graph, sampler=sampler, runner=runner, lr=0.05, **options)
        return theta(gist), [(entry["validation"], entry["test"]) for entry in result.history]

    other = without_the_rest(SMALL)
    inductive, scores = trained(SMALL, inductive=True)
    inductive_of_other, other_scores = trained(other, inductive=True)
    assert same(inductive, inductive_of_other)
    assert scores != other_scores
    assert not same(trained(SMALL)[0], inductive)
    assert not same(trained(SMALL)[0], trained(other)[0])
