"""Edge data through whole runs: samplers and evaluation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, Graph
from gistgnn.evaluation import Evaluation, predict
from gistgnn.graphs.clustering import cluster
from gistgnn.sampling import Batch, LadiesSampling, forward, whole_graph
from tests.helpers.edges import MODELS, Relational, Weighted, edge_graph, only, weighted
from tests.helpers.fitting import fit, same, theta
from tests.helpers.logs import logged
from tests.helpers.models import OURS, PYG, tiny_graph
from tests.helpers.refusals import refused

from .test_samplers import SAMPLERS

GRAPH = edge_graph()
EVERY = {"full": None, **SAMPLERS}
BY_LAYERS = ("ladies", "fastgcn")


def trained(build: Callable[[Any], nn.Module], graph: Graph, sampler: Any = None, **options: Any) -> dict[str, Tensor]:
    gist = GIST(build, (8,), 2)
    fit(gist, graph, sampler=sampler, epochs=4, lr=0.05, **options)
    return theta(gist)


@pytest.mark.parametrize("name", EVERY)
def test_weights_of_one_change_nothing_and_others_do(name: str) -> None:
    sampler, graph = EVERY[name], tiny_graph(30)
    for build in (OURS["gcn"], OURS["graphsage"], *[Weighted] * (name not in BY_LAYERS)):
        plain = trained(build, graph, sampler)
        assert same(plain, trained(build, weighted(graph, ones=True), sampler))
        assert not same(plain, trained(build, weighted(graph), sampler))


@pytest.mark.parametrize("model", MODELS)
def test_models_of_edge_data_train(model: str) -> None:
    used = MODELS[model]((8,)).name
    graph, other = only(GRAPH, used), replace(GRAPH, **{used: GRAPH.edge_data[used].flip(0)})
    for sampler in (EVERY[name] for name in EVERY if name not in BY_LAYERS):
        with logged() as messages:
            one = trained(MODELS[model], graph, sampler)
        assert not [message for message in messages if used in message]
        assert not same(one, trained(MODELS[model], only(other, used), sampler))


@pytest.mark.parametrize("model", [*MODELS, "gcn"])
def test_evaluation_by_parts_layers_and_of_the_whole(model: str) -> None:
    net = (OURS["gcn"] if model == "gcn" else MODELS[model])((8,)).eval()
    batch = whole_graph(GRAPH)
    clusters = cluster(GRAPH.edge_index, GRAPH.num_nodes, 4, "metis", 0)
    inside = clusters.assignment[GRAPH.edge_index[0]] == clusters.assignment[GRAPH.edge_index[1]]
    data = {name: value[inside] for name, value in GRAPH.edge_data.items()}
    alone = Batch(GRAPH.x, GRAPH.edge_index[:, inside], GRAPH.y, batch.loss_nodes, edge_data=data)
    with torch.no_grad():
        expected, of_parts = forward(net, batch), forward(net, alone)
    for how in (None, Evaluation("parts", parts=1), *[Evaluation("layers", memory=2**26)] * (model == "gcn")):
        torch.testing.assert_close(predict(net, batch, how), expected)
    torch.testing.assert_close(predict(net, batch, Evaluation("parts", parts=4)), of_parts)


def test_what_cannot_work_is_refused_and_what_is_not_used_is_told_once() -> None:
    with refused("the model takes an edge_index", "LADIES"):
        trained(Weighted, weighted(tiny_graph()), LadiesSampling(nodes_per_layer=(6, 6), batch_size=4))
    with refused("Relational.forward needs edge_type, and the graph has none"):
        trained(Relational, tiny_graph())
    with refused("evaluation by layers is for the models of gistgnn.nn"):
        trained(Relational, GRAPH, evaluation=Evaluation("layers"))
    with logged() as messages:
        fit(GIST(OURS["gat"], (8,), 2), only(GRAPH, "edge_weight", "edge_type"), epochs=4)
    assert sum("makes no use of it" in message for message in messages) == 2
    with logged() as messages:
        fit(GIST(PYG["gcn"], 8, 2), only(GRAPH, "edge_weight"), epochs=4)
    assert not any("edge_weight" in message for message in messages)
