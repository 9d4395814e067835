"""Batches of clusters that are made on a GPU are those of the host; the GPU is a pretended one."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn.graphs import CSR, Graph
from gistgnn.sampling import Batch, ClusterBatches, edges_on_gpu, whole_graph
from gistgnn.sampling.clusters import cluster
from tests.helpers.models import tiny_graph
from tests.helpers.pretended_gpu import pretended_gpu

GRAPH = tiny_graph(60)


def with_data(graph: Graph) -> Graph:
    count = graph.edges.num_edges
    rng = torch.Generator().manual_seed(1)
    data = {
        "edge_weight": torch.rand(count, generator=rng),
        "edge_attr": torch.rand(count, 3, generator=rng),
    }
    masks = {"train": graph.train, "val": graph.val, "test": graph.test}
    edge_index = graph.edges.edge_index()
    return Graph.build(graph.x, edge_index, graph.y, **masks, num_classes=graph.num_classes, **data)


def batches(graph: Graph, device: str, **options: Any) -> Iterator[Batch]:
    full_batch = whole_graph(graph.to(torch.device(device)))
    clusters = cluster(full_batch.csr, len(graph.x), 12, "random", 0)
    made = ClusterBatches(full_batch, clusters, 5, 0, **options)
    assert (made.largest_batch is None) == (
        device == "cpu" or bool((graph.edges.row == graph.edges.col).any())
    )
    yield from made.batches(0, 9)


def values(batch: Batch) -> dict[str, Tensor]:
    pattern = batch.adj.pattern
    tensors = {
        "x": batch.x,
        "y": batch.y,
        "loss_nodes": batch.loss_nodes,
        "rowptr": pattern.rowptr,
        "col": pattern.col,
    }
    tensors |= batch.edge_data
    if batch.product is not None:
        tensors["product"] = batch.product("mean")
    return {name: tensor.cpu() for name, tensor in tensors.items()}


@pytest.mark.parametrize("dense", [2048, 0], ids=["dense counts", "sparse counts"])
@pytest.mark.parametrize("data", [False, True], ids=["", "edge data"])
@pytest.mark.parametrize(
    "options", [{"precompute": False}, {}, {"alone": True, "precompute": False}], ids=str
)
def test_batches_made_on_a_gpu_are_those_of_the_host(
    options: dict[str, Any], data: bool, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edges_on_gpu, "_MOST_IN_DENSE", dense)
    graph = with_data(GRAPH) if data else GRAPH
    runs = []
    for device in ("cpu", "cuda:0"):
        with pretended_gpu() if device != "cpu" else nullcontext():
            made = batches(graph, device, **options)
            runs.append([(values(batch), batch.adj.pattern.loops) for batch in made])
    for (expected, _), (actual, loops) in zip(*runs, strict=True):
        assert actual.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(actual[name], tensor), name
        pattern = CSR(expected["rowptr"], expected["col"])
        assert loops == int((pattern.row == pattern.col).sum())
