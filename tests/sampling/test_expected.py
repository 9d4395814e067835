"""Whether batches are about as large as they are said to be before there are any."""

import pytest
import torch

from gistgnn import sampling as kinds
from gistgnn.graphs import load
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.sampling import Batch, Sampling, whole_graph
from tests.sampling.reference import layers_of, random_graph

WHOLE = random_graph(3000, 20_000)  # as the formulas take graphs to be
WHOLE = Batch(WHOLE.x, WHOLE.edges, WHOLE.y, torch.arange(0, 3000, 2), sparse=False)
SIZES = GraphSizes(3000, WHOLE.adj.num_edges, 1500)
SAMPLERS: dict[str, tuple[Sampling, float]] = {  # with the factor by which edges may be more or fewer
    "random": (kinds.ClusterSampling(30, 5, "random"), 1.2),
    "ladies": (kinds.LadiesSampling(batch_size=100, nodes_per_layer=80), 2.0),
    "fastgcn": (kinds.FastGCNSampling(batch_size=100, nodes_per_layer=(200, 80, 80)), 2.5),
    "neighbor": (kinds.NeighborSampling(5, batch_size=40), 1.3),
    "all neighbours": (kinds.NeighborSampling(-1, batch_size=3), 1.3),
    "saint-node": (kinds.SaintNodeSampling(batch_size=400), 1.3),
    "saint-edge": (kinds.SaintEdgeSampling(batch_size=200), 1.3),
    "saint-rw": (kinds.SaintWalkSampling(batch_size=100, walk_length=3), 2.0),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_it_is_about_right(name: str) -> None:
    sampling, factor = SAMPLERS[name]
    expected = sampling.expected(SIZES, 3)
    sampler = sampling.sampler(WHOLE, 0, layers=3)
    assert sampler.steps_per_epoch == pytest.approx(expected.steps, rel=0.2)
    nodes, edges, loss_nodes = [], [], []
    for batch in sampler.batches(0, 5):
        layers = layers_of(batch)
        nodes.append([layer.num_nodes for layer in layers] + [len(batch.y)] * (len(layers) > 1))
        edges.append([layer.num_edges for layer in layers])
        loss_nodes.append(len(batch.loss_nodes))
    found = torch.tensor(nodes).float().mean(dim=0), torch.tensor(edges).float().mean(dim=0)
    torch.testing.assert_close(found[0], torch.tensor(expected.nodes).float(), rtol=0.35, atol=1)
    ratio = found[1] / torch.tensor(expected.edges)
    assert ((ratio > 1 / factor) & (ratio < factor)).all(), (found, expected)
    assert sum(loss_nodes) / 5 == pytest.approx(expected.loss_nodes, rel=0.35)


@pytest.mark.parametrize("sampling", [kinds.NeighborSampling(5, batch_size=40), kinds.LadiesSampling(100, 200)])
def test_on_other_graphs_it_is_not_too_little(sampling: Sampling) -> None:
    digits = load("digits")  # neighbours of neighbours are neighbours
    expected = sampling.expected(GraphSizes(digits.num_nodes, digits.num_edges, int(digits.train.sum())), 3)
    for batch in sampling.sampler(whole_graph(digits), 0, layers=3).batches(0, 5):
        layers = layers_of(batch)
        assert all(layer.num_nodes <= 1.1 * said for layer, said in zip(layers, expected.nodes, strict=False))
        assert all(layer.num_edges <= 1.2 * said for layer, said in zip(layers, expected.edges, strict=True))
