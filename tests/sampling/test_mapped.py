"""A graph that is mapped from a folder of clusters trains and is evaluated as the same graph in memory."""

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import GIST, load
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.budget import Costs
from gistgnn.evaluation.scores import evaluate
from gistgnn.graphs import Graph
from gistgnn.graphs.clustering import Clusters
from gistgnn.graphs.standardise import Standardisation
from gistgnn.nn import MODELS, adjacency
from gistgnn.sampling import Batch, ClusterSampling, NeighborSampling, whole_graph
from gistgnn.sampling.clusters import ClusterBatches
from tests.graph_folders.folders import some_graph
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.refusals import refused

OPERATORS = ("gcn", "mean", "sum")


@contextlib.contextmanager
def little_memory(columns: int, nodes: int, entries: int = 11) -> Iterator[None]:
    """Āx is computed so many columns at a time, and so many entries of its rows are read at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gistgnn.sampling.batch.available_bytes", lambda _: 2 * 4 * nodes * columns)
        patch.setattr(adjacency, "ENTRIES", entries)
        yield


def in_memory(graph: Graph, folder: Path) -> tuple[Batch, Clusters]:
    """The same graph in memory, and its clusters, which are ranges of nodes there too."""
    ptr = load(folder).cluster_ptr
    assert ptr is not None
    return whole_graph(graph), Clusters(torch.arange(graph.num_nodes), ptr)


def weighted(seed: int, edges: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"edge_weight": rng.random(edges).astype(np.float32), "edge_attr": rng.random((edges, 2)).astype(np.float32)}


graphs = st.builds(
    lambda nodes, edges, seed, weights: some_graph(nodes, edges, seed, **(weighted(seed, edges) if weights else {})),
    st.integers(12, 50),
    st.integers(1, 300),
    st.integers(0, 2**16),
    st.booleans(),
)
few = settings(max_examples=25, deadline=None)


@few
@given(graphs, st.integers(1, 9), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_batches_are_those_of_the_graph_in_memory(
    graph: Graph, count: int, per_batch: int, precompute: bool, columns: int
) -> None:
    with tempfile.TemporaryDirectory() as name, little_memory(columns, graph.num_nodes):
        folder = Path(name) / "graph"
        same, _ = make_clustered(graph, count, folder)
        whole, clusters = in_memory(same, folder)
        per_batch = min(per_batch, len(clusters))
        one = ClusterBatches(whole, clusters, per_batch, 3, precompute=precompute)
        other = ClusterBatches(whole_graph(load(folder)), None, per_batch, 3, precompute=precompute)
        assert one.steps_per_epoch == other.steps_per_epoch
        for left, right in zip(one.batches(0, 7), other.batches(0, 7), strict=True):
            assert_same_batch(left, right)
            for operator in OPERATORS if precompute else ():
                assert left.product is not None
                assert right.product is not None
                assert torch.equal(left.product(operator), right.product(operator)), operator


def assert_same_batch(left: Batch, right: Batch) -> None:
    assert torch.equal(left.x, right.x)
    assert torch.equal(left.y, right.y)
    assert torch.equal(left.loss_nodes, right.loss_nodes)
    assert torch.equal(left.edge_index, right.edge_index)
    assert left.edge_data.keys() == right.edge_data.keys()
    for name, value in left.edge_data.items():
        assert torch.equal(value, right.edge_data[name]), name


@few
@given(graphs, st.integers(1, 60))
def test_rows_of_operators_are_those_of_the_graph_in_memory(graph: Graph, step: int) -> None:
    with tempfile.TemporaryDirectory() as name, little_memory(1, 1):
        same, _ = make_clustered(graph, 3, Path(name) / "graph")
        one, other = whole_graph(same).adj, whole_graph(load(Path(name) / "graph")).adj
        assert torch.equal(one.attention.rowptr.long(), other.attention_rowptr)
        chosen = torch.randperm(graph.num_nodes)[:step].sort().values
        for operator in OPERATORS:
            left, right = getattr(one, operator).to_dense()[chosen], other.rows(operator, chosen).to_dense()
            assert torch.equal(left, right), operator
        for start in range(0, graph.num_nodes, step):
            nodes = slice(start, min(start + step, graph.num_nodes))
            for operator in OPERATORS:
                left, right = one.rows(operator, nodes), other.rows(operator, nodes)
                assert torch.equal(left.to_dense(), right.to_dense()), operator
            left, right = one.attention_rows(nodes), other.attention_rows(nodes)
            assert torch.equal(left.col, right.col)
            assert torch.equal(left.rowptr, right.rowptr)
        for operator in OPERATORS:  # the whole is the same, too
            assert torch.equal(getattr(one, operator).value, getattr(other, operator).value)


def evaluated(
    name: str, edges: int, folder: Path, memory: float | None, wanted: torch.Tensor
) -> tuple[torch.Tensor, Any, list[tuple[slice | torch.Tensor, torch.Tensor]]]:
    """The output in memory, and the inference and its pieces for the folder, with so many times the least memory."""
    x = np.random.default_rng(1).normal(size=(len(wanted), 24)).astype(np.float32)
    same, _ = make_clustered(some_graph(len(wanted), edges, x=x), 9, folder)
    torch.manual_seed(0)
    model = MODELS[name](24, (20, 12), 3).eval()
    whole, stored = whole_graph(same), whole_graph(load(folder))
    with torch.no_grad():
        expected = Evaluation("whole").prepare(model, whole).logits(model)
        room = None if memory is None else round(memory * Costs(model, stored, 0).least)
        inference = Evaluation("auto", room).prepare(model, stored, wanted=wanted)
        return expected, inference, list(inference.outputs(model))


@pytest.mark.parametrize("little", [False, True])
@pytest.mark.parametrize("name", list(MODELS))
def test_evaluation_is_that_of_the_graph_in_memory(name: str, little: bool, tmp_path: Path) -> None:
    everything = torch.ones(400, dtype=torch.bool)
    expected, inference, pieces = evaluated(name, 3000, tmp_path / "graph", 1.5 if little else None, everything)
    assert inference.describe()["method"] == "layers"
    assert (len(pieces) > 1) == little
    found = torch.cat([values for _, values in pieces])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))


@pytest.mark.parametrize(
    ("name", "little"), [*((name, False) for name in MODELS), ("gcn", True), ("graphsage", True), ("gin", True)]
)
def test_nodes_that_nobody_needs_are_not_computed(name: str, little: bool, tmp_path: Path) -> None:
    wanted = torch.zeros(3000, dtype=torch.bool)
    wanted[torch.randperm(3000)[:40]] = True
    expected, inference, pieces = evaluated(name, 4000, tmp_path / "graph", 1.3 if little else None, wanted)
    logits = torch.full_like(expected, torch.nan)
    for nodes, values in pieces:
        logits[nodes] = values
    torch.testing.assert_close(logits[wanted], expected[wanted], rtol=1e-5, atol=1e-6)
    if not name.startswith("gat"):  # attention is computed for all nodes
        assert torch.equal(inference.nodes, wanted)
        assert bool(logits[~wanted].isnan().all())
        assert sum(len(each) for each in inference._required) < 3000


def test_parts_are_the_clusters_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same, _ = make_clustered(some_graph(200, 2000), 7, tmp_path / "graph")
    whole, clusters = in_memory(same, tmp_path / "graph")
    monkeypatch.setattr("gistgnn.evaluation.by_parts.cluster", lambda *_: clusters)
    model, stored = MODELS["graphsage"](3, (8,), 3).eval(), whole_graph(load(tmp_path / "graph"))
    with torch.no_grad():
        one, other = (Evaluation("parts", parts=7).prepare(model, batch).logits(model) for batch in (whole, stored))
    assert torch.equal(one, other)
    with refused("parts is 5, but the folder of the graph has 7 clusters", "set parts to 7"):
        Evaluation("parts", parts=5).prepare(model, stored)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_run_is_that_of_the_graph_in_memory(
    dtype: str, scaled: bool, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = load("amazon-computers", shared_data)
    same, _ = make_clustered(graph.with_features(graph.x[:, :64].contiguous()), 20, tmp_path / "graph", dtype)
    stored = load(tmp_path / "graph")
    same = same.with_features(stored.x.float())  # as the type of the folder holds them
    _, clusters = in_memory(same, tmp_path / "graph")
    monkeypatch.setattr("gistgnn.sampling.clusters.cluster", lambda *_: clusters)
    runs = []
    for each in (same, stored):
        each = Standardisation.of(each).graph(each) if scaled else each
        gist = GIST(lambda widths: MODELS["graphsage"](64, widths, 10), (16, 16), 2)
        result = gist.fit(each, epochs=3, local_steps=2, sampler=ClusterSampling(20, 5), progress=False)
        runs.append((gist.model().state_dict(), [entry["validation"] for entry in result.history]))
    (one, scores), (other, others) = runs
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
    assert scores == others
    assert "edge_index" not in vars(stored)  # nothing has asked for it


def test_scores_are_those_of_the_graph_in_memory(tmp_path: Path) -> None:
    same, _ = make_clustered(some_graph(400, 900), 7, tmp_path / "graph")
    model = MODELS["graphsage"](3, (8,), 3)
    for splits in (("validation",), ("train", "validation", "test")):
        assert evaluate(model, load(tmp_path / "graph"), splits) == evaluate(model, same, splits)


def test_other_samplers_gather_rows(tmp_path: Path) -> None:
    same, _ = make_clustered(some_graph(200, 2000), 7, tmp_path / "graph")
    stored = load(tmp_path / "graph")
    for sampler in (NeighborSampling(fanouts=4, batch_size=16), None):
        models = []
        for graph in (same, stored):
            gist = GIST(lambda widths: MODELS["gcn"](3, widths, 3), (8,), 2)
            gist.fit(graph, epochs=3, local_steps=2, sampler=sampler, progress=False)
            models.append(gist.model().state_dict())
        assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


def test_another_number_of_clusters_is_refused(tmp_path: Path) -> None:
    make_clustered(some_graph(), 4, tmp_path / "graph")
    gist = GIST(lambda widths: MODELS["gcn"](3, widths, 3), (8,), 2)
    with refused("clusters is 5, but the folder of the graph has 4 clusters", "set clusters to 4"):
        gist.fit(load(tmp_path / "graph"), epochs=1, sampler=ClusterSampling(5, 1), progress=False)


def product(folder: Path, scaled: bool = False) -> torch.Tensor:
    graph = load(folder)
    batch = whole_graph(Standardisation.of(graph).graph(graph) if scaled else graph)
    return batch.adj.aggregate("mean", batch.x)


def products(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("product-*.npy")}


def test_the_product_is_computed_once_and_anew_if_it_is_cut(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    same, _ = make_clustered(some_graph(), 4, folder)
    first, there = product(folder).clone(), products(folder)
    assert len(there) == 1
    assert torch.equal(first, whole_graph(same).adj.aggregate("mean", same.x))
    assert torch.equal(product(folder), first)
    assert products(folder) == there
    os.truncate(folder / next(iter(there)), 200)
    assert torch.equal(product(folder), first)
    assert products(folder).keys() == there.keys()
    assert not torch.equal(product(folder, scaled=True), first)
    assert len(products(folder)) == 2


def test_processes_compute_a_product_at_the_same_time(tmp_path: Path) -> None:
    make_clustered(some_graph(300, 4000), 4, tmp_path / "graph")
    with multiprocessing.get_context("fork").Pool(3) as pool:
        one, *others = pool.map(product, [tmp_path / "graph"] * 3, 1)
    assert all(torch.equal(one, other) for other in others)
    assert len(products(tmp_path / "graph")) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "graph"
    same, _ = make_clustered(some_graph(), 4, folder)
    monkeypatch.setattr("gistgnn.graphs.derived.os.access", lambda *_: False)
    assert torch.equal(product(folder), whole_graph(same).adj.aggregate("mean", same.x))
    assert not products(folder)
