"""Features are scaled by the mean and the deviation of the training nodes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.graphs import Graph, Standardisation, load
from gistgnn.graphs.conversion import convert
from gistgnn.graphs.folder import verify
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused


def graph_with(x: torch.Tensor) -> Graph:
    return replace(tiny_graph(len(x)), x=x)


@given(st.integers(9, 60), st.integers(0, 99), st.floats(-3, 3), st.floats(0.01, 100))
def test_training_nodes_get_mean_0_and_deviation_1(
    nodes: int, seed: int, mean: float, std: float
) -> None:
    torch.manual_seed(seed)
    graph = graph_with(torch.randn(nodes, 3) * std + mean)
    scale = Standardisation.of(graph)
    scaled = scale.graph(graph)
    x = scaled.x[graph.train].double()
    torch.testing.assert_close(x.mean(dim=0), torch.zeros(3).double(), rtol=0, atol=1e-3)
    torch.testing.assert_close(
        x.std(dim=0, correction=0), torch.ones(3).double(), rtol=1e-3, atol=0
    )
    assert scaled.x.dtype == torch.float32
    assert scaled.x.is_contiguous()
    assert torch.equal(scaled.y, graph.y)
    changed = replace(graph, x=torch.where(graph.train[:, None], graph.x, 1e3))
    assert torch.equal(Standardisation.of(changed).graph(graph).x, scaled.x), (
        "nodes that do not train do not count"
    )
    with refused("x has 4 features; the model was trained on 3"):
        scale.features(torch.zeros(4, 4))


def test_a_feature_that_is_constant_in_training_is_only_shifted() -> None:
    """Through rounding, the float32 mean of many 0.1 is not 0.1, and their deviation is not 0."""
    graph = tiny_graph(3000)
    for value in (0.0, 0.1, -7.3e-5, 1e9):
        x = torch.where(graph.train, value, value + 1)[:, None].repeat(1, 2)
        x[graph.train.nonzero()[0]] *= 1 + 1e-7  # a last bit
        scale = Standardisation.of(graph_with(x))
        assert scale.std.tolist() == [1, 1]
        torch.testing.assert_close(scale.features(x), x - value, rtol=1e-6, atol=abs(value) * 1e-6)


def test_scaled_features_are_kept_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_with(tiny_graph().x)
    convert(graph, tmp_path / "made")
    stored = load(tmp_path / "made")
    expected = Standardisation.of(graph).graph(graph).x
    with monkeypatch.context() as patch:  # a folder that cannot be written
        patch.setattr("gistgnn.graphs.cache.os.access", lambda *_: False)
        scaled = Standardisation.of(stored).graph(stored)
        assert scaled.x.dtype == torch.float32
        assert torch.equal(scaled.x, expected)
        assert not list((tmp_path / "made").glob("x-*"))
    assert torch.equal(Standardisation.of(stored).graph(stored).x, expected)
    (file,) = (tmp_path / "made").glob("x-standardised-*.npy")
    before = file.stat().st_mtime_ns
    again = Standardisation.of(stored).graph(stored)
    assert torch.equal(again.x, expected)
    assert (file.stat().st_mtime_ns, again.folder) == (before, tmp_path / "made")
    verify(tmp_path / "made")


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    nonzero=st.floats(0, 1),
    negative=st.booleans(),
)
def test_words_alone_are_not_scaled(shape: tuple[int, int], nonzero: float, negative: bool) -> None:
    x = torch.zeros(shape).flatten()
    count = round(nonzero * len(x))
    x[:count] = -0.5 if negative else 0.5
    are_words = count / len(x) < 0.1 and not (negative and count)
    assert Standardisation.suits(x.view(shape)) == (not are_words)
