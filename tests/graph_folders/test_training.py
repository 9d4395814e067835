"""A graph in a folder trains to the same model, byte for byte, as the same graph in memory."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import GIST, load
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph
from gistgnn.graphs.conversion import convert
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.folder import verify
from gistgnn.graphs.standardise import Standardisation
from gistgnn.nn import GCN, GraphSAGE
from gistgnn.sampling import ClusterSampling, NeighborSampling
from gistgnn.utils.checksums import checksum

from .folders import some_graph


@pytest.fixture(scope="module", params=["cora", "amazon-computers"])
def both(
    request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Graph, Path]:
    folder = tmp_path_factory.mktemp("graphs") / request.param
    convert(request.param, folder, data_root=shared_data)
    return load(request.param, shared_data), folder


def trained(graph: Graph, model: Any = GraphSAGE, **how: Any) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    gist = GIST(lambda widths: model(graph.num_features, widths, graph.num_classes), (16, 16), 2)
    result = gist.fit(graph, epochs=how.pop("epochs", 2), local_steps=2, progress=False, **how)
    return gist.model().state_dict(), result.history


def assert_trains_alike(graph: Graph, folder: Path, **how: Any) -> None:
    stored = load(folder)
    (one, scores), (other, others) = trained(graph, **how), trained(stored, **how)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
    assert [entry["validation"] for entry in scores] == [entry["validation"] for entry in others]
    assert "edge_index" not in vars(stored)  # nothing has asked for it


@pytest.mark.parametrize("model", [GCN, GraphSAGE])
def test_on_the_whole_graph(model: Any, both: tuple[Graph, Path]) -> None:
    assert_trains_alike(*both, model=model, epochs=6)


@pytest.mark.parametrize("inductive", [False, True])
@pytest.mark.parametrize("precompute", [False, True])
def test_by_clusters(inductive: bool, precompute: bool, both: tuple[Graph, Path]) -> None:
    sampler = ClusterSampling(20, 5, precompute=precompute)
    assert_trains_alike(*both, sampler=sampler, inductive=inductive)


def test_by_neighbours(both: tuple[Graph, Path]) -> None:
    assert_trains_alike(*both, sampler=NeighborSampling(5, 512), epochs=1)


@pytest.mark.parametrize("evaluation", [Evaluation("layers"), Evaluation("parts", parts=8)])
def test_with_each_evaluation(evaluation: Evaluation, both: tuple[Graph, Path]) -> None:
    assert_trains_alike(*both, evaluation=evaluation, sampler=ClusterSampling(20, 5))


def test_scaled_features_are_kept_in_the_folder(both: tuple[Graph, Path]) -> None:
    graph, stored = both[0], load(both[1])
    scaled = Standardisation.of(stored).graph(stored)
    assert torch.equal(scaled.x, Standardisation.of(graph).graph(graph).x)
    assert scaled.folder == both[1]
    (kept,) = both[1].glob("x-standardised-*.npy")
    before = kept.stat().st_mtime_ns
    assert torch.equal(Standardisation.of(stored).graph(stored).x, scaled.x)
    assert kept.stat().st_mtime_ns == before
    verify(both[1])


def test_fields_can_be_replaced_and_copies_made(tmp_path: Path) -> None:
    convert(some_graph(), tmp_path / "made")
    stored = load(tmp_path / "made")
    other = replace(stored, name="other")
    assert other.name == "other"
    assert torch.equal(other.edge_index, stored.edge_index)
    assert pickle.loads(pickle.dumps(load(tmp_path / "made"))).checksum() == stored.checksum()


def test_a_model_that_takes_an_edge_index_gets_it(tmp_path: Path) -> None:
    from torch_geometric.nn import GraphSAGE as PyGSage

    convert("digits", tmp_path / "made")
    graph, folder = load("digits"), tmp_path / "made"

    def build(widths: tuple[int, ...]) -> torch.nn.Module:
        return PyGSage(graph.num_features, widths[0], 2, graph.num_classes)

    states = []
    for given in (graph, load(folder)):
        gist = GIST(build, (16,), 2)
        gist.fit(given, epochs=4, local_steps=2, progress=False)
        states.append(gist.model().state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_folder_that_cannot_be_written_keeps_scaled_features_elsewhere(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = some_graph(x=some_graph().x.half().float())
    convert(graph, tmp_path / "made", dtype=dtype)
    monkeypatch.setattr("gistgnn.graphs.derived.os.access", lambda *_: False)
    stored = load(tmp_path / "made")
    scaled = Standardisation.of(stored).graph(stored)
    assert scaled.x.dtype == torch.float32
    assert torch.equal(scaled.x, Standardisation.of(graph).graph(graph).x)
    assert not list((tmp_path / "made").glob("x-*"))


def test_the_checksum_of_edges_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = some_graph(60, 500)
    expected = checksum(graph.edge_index)
    for piece in (1, 7, 10**6):
        monkeypatch.setattr("gistgnn.graphs.csr._PIECE", piece)
        assert CSR.of(graph.edge_index, 60).checksum() == expected
