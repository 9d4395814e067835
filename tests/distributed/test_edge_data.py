"""Ranks see the edge data that one process sees."""

import torch
from torch import Tensor

from gistgnn import GIST
from gistgnn.distributed import Ranks, load_on_ranks
from gistgnn.sampling import ClusterSampling
from tests.helpers.edges import MODELS, edge_graph, only

from .launch import on_ranks


def trained(ranks: Ranks | None) -> dict[str, Tensor]:
    build = MODELS["GINE"]
    graph = load_on_ranks(ranks, lambda: only(edge_graph(30), build((4,)).name))
    gist = GIST(build, (8,), 2, ranks=ranks)
    sampler = ClusterSampling(clusters=4, clusters_per_batch=2, method="random")
    gist.fit(graph, sampler=sampler, inductive=True, epochs=4, local_steps=2, progress=False)
    return gist.theta.copy()


def test_two_ranks_train_as_one() -> None:
    expected = trained(None)
    for found in on_ranks(2, trained):
        assert all(torch.equal(value, expected[name]) for name, value in found.items())
