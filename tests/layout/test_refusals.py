"""What cannot be built or called is refused in one line that says why, and what to do."""

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn import GIST
from tests.helpers.edges import MODELS, D
from tests.helpers.fitting import fit
from tests.helpers.models import PYG, C, F, Stack, tiny_graph
from tests.helpers.refusals import refused


def test_a_model_in_place_of_a_function() -> None:
    with refused("build is a GCN, a model", "expected a function", "lambda widths"):
        GIST(pyg.models.GCN(F, 8, 2, C), 8)  # type: ignore[arg-type]
    with refused("build is a str; expected a function"):
        GIST("gcn", 8)  # type: ignore[arg-type]


def test_a_tuple_for_an_integer_and_the_reverse() -> None:
    with refused("build((8, 8)) failed", "as PyG's models do, give an integer: widths=8"):
        GIST(PYG["gcn"], (8, 8))
    with refused("build(8) failed", "give widths=(8,)"):
        GIST(lambda widths: Stack(widths, pyg.GCNConv), 8)


def test_layers_that_change_with_their_sizes() -> None:
    with refused("exists at some widths only", "GENConv", "equal sizes"):
        GIST(lambda w: Stack(w, pyg.GENConv), (8, 8))

    class Equal(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.enter, self.conv, self.out = nn.Linear(F, width), pyg.GENConv(width, width), nn.Linear(width, C)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.out(self.conv(self.enter(x), edge_index))

    GIST(Equal, 8, 2)


class EveryEdge(nn.Module):
    """NNConv as it is: its edge network makes a matrix for every edge."""

    def __init__(self, widths: Any) -> None:
        super().__init__()
        sizes = [F, *(widths if isinstance(widths, tuple) else (widths, widths)), C]
        self.convs = nn.ModuleList(pyg.NNConv(a, b, nn.Linear(D, a * b)) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr)
        return x


@pytest.mark.parametrize("widths", [8, (8, 6)])
def test_a_product_of_widths(widths: Any) -> None:
    with refused("convs.1.nn.weight", "a product of widths, as in NNConv", "GINEConv"):
        GIST(EveryEdge, widths)


def test_sums_of_sorted_edges_are_fine() -> None:
    gist = GIST(lambda w: Stack(w, lambda a, b: pyg.SAGEConv(a, b, aggr="lstm")), (8,), 2)
    assert fit(gist, epochs=2).progress.rounds


def test_forwards_that_take_something_else() -> None:
    class OfData(nn.Module):
        def __init__(self, widths: Any) -> None:
            super().__init__()
            self.conv, self.out = pyg.GCNConv(F, widths[0]), pyg.GCNConv(widths[0], C)

        def forward(self, data: Data) -> Tensor:
            return self.out(self.conv(data.x, data.edge_index), data.edge_index)

    class Hetero(nn.Module):
        def __init__(self, widths: Any) -> None:
            super().__init__()
            self.conv = pyg.HeteroConv({("a", "to", "a"): pyg.SAGEConv((-1, -1), widths[0])})
            self.out = nn.Linear(widths[0], C)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return self.out(self.conv(x_dict, edge_index_dict)["a"])

    with refused("OfData.forward(data) takes a whole graph as 'data'", "forward(self, x, edge_index)"):
        GIST(OfData, (8,))
    with refused("Hetero.forward(x_dict, edge_index_dict)", "to_homogeneous()", "RGCNConv"):
        GIST(Hetero, (8,))


@pytest.mark.parametrize("name", MODELS)
def test_models_of_edge_data_have_a_layout(name: str) -> None:
    assert GIST(MODELS[name], (8,), 2).layout.units == (1,)


@pytest.mark.parametrize("edge_dim", [D, F, 1])
def test_edge_features_of_any_number_are_tried(edge_dim: int) -> None:
    layout = GIST(lambda w: pyg.models.GAT(F, w, 2, C, edge_dim=edge_dim), 8, 2).layout
    assert layout.carriers(0)

    class Embedded(nn.Module):
        def __init__(self, widths: Any) -> None:
            super().__init__()
            self.kinds = nn.Embedding(3, edge_dim)
            self.conv = pyg.GINEConv(nn.Linear(F, widths[0]), edge_dim=edge_dim)
            self.out = nn.Linear(widths[0], C)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            return self.out(self.conv(x, edge_index, self.kinds(edge_attr)).relu())

    GIST(Embedded, (8,), 2)


@pytest.mark.parametrize(
    ("device", "parts"),
    [("cuda:99", ["device is 'cuda:99'", "torch finds", "device='cpu'"]), ("gpu", ["device is 'gpu'", "cuda:N"])],
)
def test_a_device_that_is_not_there(device: str, parts: list[str]) -> None:
    with refused(*parts):
        GIST(PYG["gcn"], 8, device=device)


def test_a_sampler_by_its_name() -> None:
    graph = tiny_graph(60)
    for name in ("clusters", "neighbor", "full"):
        assert fit(GIST(PYG["gcn"], 8, 2), graph, sampler=name, epochs=2).progress.rounds
    with refused("sampler is 'cluster', expected one of full, clusters"):
        fit(GIST(PYG["gcn"], 8, 2), graph, sampler="cluster")
    with refused("sampler is 5, expected one of"):
        fit(GIST(PYG["gcn"], 8, 2), graph, sampler=5)


def test_a_compiled_model() -> None:
    plain = GIST(PYG["gcn"], 8, 2)
    compiled = GIST(lambda width: torch.compile(PYG["gcn"](width), backend="eager"), 8, 2)
    with torch.compiler.set_stance("force_eager"):  # compiling takes seconds
        one, other = fit(plain, epochs=2), fit(compiled, epochs=2)
    assert compiled.layout.dims.keys() == {f"_orig_mod.{name}" for name in plain.layout.dims}
    torch.testing.assert_close(one.model.convs[0].lin.weight, other.model._orig_mod.convs[0].lin.weight)
