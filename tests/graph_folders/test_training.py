"""A graph in a folder trains to the model of the same graph in memory, byte for byte."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.nn import GraphSAGE as PyGSage

from gistgnn import GIST, load
from gistgnn.distributed import Ranks, load_on_ranks
from gistgnn.evaluation import Evaluation
from gistgnn.fit.identity import graph_facts
from gistgnn.graphs import Graph
from gistgnn.graphs.conversion import convert
from gistgnn.nn import GCN, GraphSAGE
from gistgnn.sampling import ClusterSampling, NeighborSampling
from tests.distributed.launch import on_ranks
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.fitting import same

from .folders import some_graph

NAME = "synthetic:amazon2m@0.001"


@pytest.fixture(scope="module")
def memory_and_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Path]:
    """A graph in memory, and the folder that is made of it."""
    folder = tmp_path_factory.mktemp("graphs") / "made"
    convert(NAME, folder)
    return load(NAME), folder


def trained(
    graph: Graph,
    model: Any = GraphSAGE,
    widths: tuple[int, ...] = (16, 16),
    epochs: int = 2,
    **options: Any,
) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    gist = GIST(lambda widths: model(graph.num_features, widths, graph.num_classes), widths, 2)
    result = gist.fit(graph, epochs=epochs, local_steps=2, progress=False, **options)
    return gist.model().state_dict(), result.history


BY_SUMS = ClusterSampling(20, 5, precompute=True)
WAYS: dict[str, dict[str, Any]] = {
    "whole graph, GCN": {"model": GCN, "epochs": 6},
    "clusters": {"sampler": ClusterSampling(20, 5), "evaluation": Evaluation("layers")},
    "clusters, precomputed": {"sampler": BY_SUMS, "evaluation": Evaluation("parts", parts=8)},
    "clusters, precomputed, inductive": {"sampler": BY_SUMS, "inductive": True},
    "neighbours": {"sampler": NeighborSampling(5, 512), "epochs": 1},
    "takes an edge_index": {
        "model": lambda f, widths, c: PyGSage(f, *widths, 2, c),
        "widths": (16,),
        "epochs": 4,
    },
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_folder_trains_as_memory_does(way: str, memory_and_folder: tuple[Graph, Path]) -> None:
    graph, folder = memory_and_folder
    stored = load(folder)
    parameters, history = trained(graph, **WAYS[way])
    parameters_of_folder, history_of_folder = trained(stored, **WAYS[way])
    assert same(parameters, parameters_of_folder)
    scores = [entry["validation"] for entry in history]
    assert scores == [entry["validation"] for entry in history_of_folder]
    if way != "takes an edge_index":
        assert "edge_index" not in vars(stored)  # nothing has asked for it


def trained_on(ranks: Ranks | None, folder: Path) -> dict[str, Any]:
    graph = load_on_ranks(ranks, lambda: load(folder))
    gist = GIST(
        lambda widths: GraphSAGE(graph.num_features, widths, graph.num_classes),
        (8, 8),
        2,
        ranks=ranks,
    )
    gist.fit(graph, epochs=4, local_steps=3, sampler=ClusterSampling(5, 2), progress=False)
    assert "edge_index" not in vars(graph)
    return {name: value.tolist() for name, value in gist.model().state_dict().items()}


@pytest.mark.parametrize("clustered", [True, False])
def test_ranks_map_a_folder_themselves(clustered: bool, tmp_path: Path) -> None:
    graph = some_graph(200, 2000)
    folder = tmp_path / "graph"
    if clustered:
        in_memory, _ = make_clustered(graph, 5, folder)
    else:
        in_memory = graph
        convert(graph, folder)
    facts = graph_facts(load(folder))  # what ranks compare
    clusters = facts.pop("the graph's clusters", None)
    assert (clusters is not None) == clustered
    assert facts == graph_facts(in_memory)
    assert on_ranks(2, trained_on, folder) == [trained_on(None, folder)] * 2
