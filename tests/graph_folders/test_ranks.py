"""Ranks that train on a graph in a folder: each maps it."""

from pathlib import Path
from typing import Any

import torch

from gistgnn import GIST, load
from gistgnn.distributed import Ranks, load_once
from gistgnn.fit.agreement import graph_facts
from gistgnn.graphs.conversion import convert
from gistgnn.nn import GraphSAGE
from gistgnn.sampling import ClusterSampling
from tests.distributed.launch import on_ranks
from tests.helpers.clustered_folders import make_clustered

from .folders import some_graph


def trained(folder: Path, ranks: Ranks | None) -> dict[str, Any]:
    graph = load_once(ranks, lambda: load(folder))
    gist = GIST(lambda widths: GraphSAGE(graph.num_features, widths, graph.num_classes), (8, 8), 2, ranks=ranks)
    gist.fit(graph, epochs=4, local_steps=3, sampler=ClusterSampling(5, 2), progress=False)
    assert "edge_index" not in vars(graph)
    return {name: value.tolist() for name, value in gist.model().state_dict().items()}


def on_rank(ranks: Ranks, folder: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    return trained(Path(folder), ranks)


def test_ranks_read_a_folder_of_clusters_themselves(tmp_path: Path) -> None:
    make_clustered(some_graph(200, 2000), 5, tmp_path / "graph")
    alone = trained(tmp_path / "graph", None)
    assert on_ranks(2, on_rank, str(tmp_path / "graph")) == [alone, alone]


def test_what_ranks_compare_is_that_of_the_graph_in_memory(tmp_path: Path) -> None:
    same, _ = make_clustered(some_graph(200, 2000), 5, tmp_path / "graph")
    assert graph_facts(load(tmp_path / "graph")) == graph_facts(same)


def test_ranks_read_a_folder_without_clusters(tmp_path: Path) -> None:
    convert(some_graph(200, 2000), tmp_path / "graph")
    alone = trained(tmp_path / "graph", None)
    assert on_ranks(2, on_rank, str(tmp_path / "graph")) == [alone, alone]
