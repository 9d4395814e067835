"""A model that keeps what it has seen of a graph is refused; what it makes no use of is told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.nn import GAT, GCN
from gistgnn.sampling import whole_graph
from tests.helpers.edges import edge_graph
from tests.helpers.logs import logged
from tests.helpers.models import PLAIN, C, F, tiny_graph
from tests.helpers.refusals import refused


class Base(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = pyg.SAGEConv(F, width)
        self.second = pyg.SAGEConv(width, C)
        self.remembered: Any = None

    def layers(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class KeepsEdges(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.remembered is None:
            self.remembered = edge_index
        return self.layers(x, self.remembered)


class KeepsEdgesInTraining(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training and self.remembered is None:
            self.remembered = edge_index
        return self.layers(x, self.remembered if self.training else edge_index)


class KeepsFeatures(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.remembered is None:
            self.remembered = x.mean(dim=0)
        return self.layers(x - self.remembered, edge_index)


class KeepsWeights(Base):
    """The normalised weights of the first graph's edges: they do not fit a second graph."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.remembered is None:
            self.remembered = torch.bincount(edge_index[1], minlength=len(x)).to(x.dtype)[:, None]
        return self.layers(x * self.remembered, edge_index)


class KeepsInAList(Base):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.remembered = []

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.remembered = self.remembered or [edge_index]
        return self.layers(x, self.remembered[0])


class KeepsABuffer(Base):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        del self.remembered

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if not hasattr(self, "remembered"):
            self.register_buffer("remembered", x.mean(dim=0))
        return self.layers(x - self.remembered, edge_index)


class KeepsBySize(Base):
    """It makes its edges anew only where their number has changed."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.remembered is None or self.remembered.shape != edge_index.shape:
            self.remembered = edge_index
        return self.layers(x, self.remembered)


class KeptByAPart(Base):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.part = KeepsEdges(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layers(x, edge_index) + self.part(x, edge_index)


KEEP = [
    KeepsEdges,
    KeepsEdgesInTraining,
    KeepsFeatures,
    KeepsWeights,
    KeepsInAList,
    KeepsABuffer,
    KeepsBySize,
    KeptByAPart,
]


@pytest.mark.parametrize("model", KEEP)
def test_a_model_that_keeps_what_it_has_seen_is_refused_by_the_name_of_it(
    model: Callable[[int], nn.Module],
) -> None:
    with refused("remembered", "every forward"):
        GIST(model, 8, 2)


class KeepsTheLatest(Base):
    """It computes again what belongs to another graph."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.remembered is None or not torch.equal(self.remembered, edge_index):
            self.remembered = edge_index.clone()
        return self.layers(x, self.remembered)


class Counts(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.remembered = (self.remembered or 0) + 1
        return self.layers(x, edge_index)


class Normalised(Base):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.nn.functional.dropout(self.norm(self.first(x, edge_index)), 0.5, self.training)
        return self.second(h.relu(), edge_index)


@pytest.mark.parametrize("model", [KeepsTheLatest, Counts, Normalised])
def test_a_model_with_other_state_is_accepted_without_a_word(
    model: Callable[[int], nn.Module],
) -> None:
    with logged() as messages:
        assert GIST(model, 8, 2).layout.unused == frozenset()
    assert messages == []


def in_sequence(conv: nn.Module, width: int) -> nn.Module:
    return Sequence(conv, nn.Linear(width, C))


class Sequence(nn.Module):
    def __init__(self, conv: nn.Module, out: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.out = out

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.conv(x, edge_index).relu())


class Propagated(nn.Module):
    def __init__(self, width: int, *, cached: bool) -> None:
        super().__init__()
        self.first = nn.Linear(F, width)
        self.second = nn.Linear(width, C)
        self.conv = pyg.APPNP(3, 0.1, cached=cached)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(self.second(self.first(x).relu()), edge_index)


CACHED: dict[str, Callable[[int, bool], nn.Module]] = {
    "GCN": lambda width, cached: pyg.GCN(F, width, 2, C, cached=cached),
    "SGConv": lambda width, cached: in_sequence(pyg.SGConv(F, width, K=2, cached=cached), width),
    "SSGConv": lambda width, cached: in_sequence(
        pyg.SSGConv(F, width, 0.5, K=2, cached=cached), width
    ),
    "APPNP": lambda width, cached: Propagated(width, cached=cached),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sampler", [None, "clusters"])
@pytest.mark.parametrize("name", CACHED)
def test_cached_layers_give_what_others_give(name: str, sampler: Any) -> None:
    graph = tiny_graph(40)
    results = []
    for cached in (True, False):
        gist = GIST(lambda width, cached=cached: CACHED[name](width, cached), 8, 2)
        options = {
            **PLAIN,
            "epochs": 4,
            "local_steps": 2,
            "progress": False,
            "inductive": sampler is None,
        }
        results.append(gist.fit(graph, sampler=sampler, **options))
    first, second = (result.model.state_dict() for result in results)
    assert all(torch.equal(first[key], second[key]) for key in second)
    plain = CACHED[name](8, False).eval()
    plain.load_state_dict(first)
    for edge_index in (graph.edge_index, graph.edge_index[:, ::2]):
        expected = plain(graph.x, edge_index)
        torch.testing.assert_close(results[0].model(graph.x, edge_index), expected)


class UsesNoEdges(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second.lin_r(self.first.lin_r(x).relu())


class TakesNoEdges(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.second.lin_r(self.first.lin_r(x).relu())


class UsesDegreesAlone(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        degree = torch.bincount(edge_index[1], minlength=len(x)).to(x.dtype)[:, None]
        return self.second.lin_r(self.first.lin_r(x).relu()) * degree


class Forgets(Base):
    """Its forward takes the edges, and its parts get none."""

    def forward(self, x: Tensor, *, edge_index: Tensor | None = None) -> Tensor:
        nothing = torch.empty(2, 0, dtype=torch.int64)
        return self.layers(x, nothing)


@pytest.mark.parametrize("model", [UsesNoEdges, TakesNoEdges, Forgets])
def test_a_model_that_makes_no_use_of_the_edges_is_told_once(
    model: Callable[[int], nn.Module],
) -> None:
    with logged() as messages:
        GIST(model, 8, 2)
    (message,) = messages
    assert model.__name__ in message  # type: ignore[attr-defined]
    assert "edges" in message


@pytest.mark.parametrize(
    "build",
    [
        UsesDegreesAlone,
        lambda width: pyg.GCN(F, width, 2, C),
        lambda width: pyg.GAT(F, width, 2, C, edge_dim=2),
        lambda width: GCN(F, (width, width), C),
        lambda width: GAT(F, (width,), C),
    ],
)
def test_nothing_is_said_of_a_model_that_uses_what_it_takes(
    build: Callable[[int], nn.Module],
) -> None:
    with logged() as messages:
        assert GIST(build, 8, 2).layout.unused == frozenset()
    assert messages == []


def test_edge_data_that_a_model_takes_and_makes_no_use_of_is_told_where_the_graph_has_it() -> None:
    options = {**PLAIN, "epochs": 1, "progress": False}
    graph = edge_graph()
    told = []
    for dimension in (None, graph.edge_data["edge_attr"].shape[1]):
        gist = GIST(lambda width, d=dimension: pyg.GAT(F, width, 2, C, edge_dim=d), 8, 2)
        with logged() as messages:
            gist.fit(graph, **options)
        told.append(any("edge_attr" in message for message in messages))
    assert told == [True, False]
    assert "edge_attr" in whole_graph(graph).edge_data
