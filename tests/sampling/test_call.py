"""How a model's forward is called, and which forwards are refused."""

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn.nn import GAT, GCN, Adjacency
from gistgnn.nn.ensemble_model import EnsembleModel
from gistgnn.sampling import arguments, check_fits, forward, whole_graph
from tests.helpers.edges import MODELS, D, edge_graph, only
from tests.helpers.logs import logged
from tests.helpers.models import C, F
from tests.helpers.refusals import refused

GRAPH = edge_graph()
BATCH = whole_graph(GRAPH)


class Module(nn.Module):
    """A module that returns a number for each node, whatever it takes."""

    out = torch.zeros(GRAPH.num_nodes, C)


def test_edge_data_is_given_by_name_wherever_it_stands() -> None:
    class Keywords(Module):
        def forward(
            self, x: Tensor, edge_index: Tensor, scale: float = 1.0, *, edge_type: Tensor, **other: Any
        ) -> Tensor:
            assert edge_type is BATCH.edge_data["edge_type"]
            assert not other
            return self.out

    class Prepared(Module):
        def forward(self, x: Tensor, adj: Adjacency, edge_attr: Tensor | None = None) -> Tensor:
            assert torch.equal(edge_attr, BATCH.edge_data["edge_attr"])
            assert torch.equal(adj.edge_weight, BATCH.edge_data["edge_weight"])
            return self.out

    class Optional(Module):
        def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
            assert batch is None
            return self.out

    for model in (Keywords(), Prepared(), Optional()):
        forward(model, BATCH)
    assert arguments(pyg.models.GraphSAGE(F, 4, 2, C), BATCH).by_name.keys() == {"edge_weight", "edge_attr"}


@pytest.mark.parametrize("name", MODELS)
def test_the_members_of_an_ensemble_get_edge_data(name: str) -> None:
    members = [MODELS[name]((4,)) for _ in range(2)]
    expected = (forward(members[0], BATCH) + forward(members[1], BATCH)) / 2
    torch.testing.assert_close(forward(EnsembleModel(members), BATCH), expected)


def test_forwards_that_are_refused() -> None:
    class OfData(nn.Module):
        def forward(self, data: Data) -> Tensor:
            return data.x

    class Typed(nn.Module):
        def forward(self, g: Data) -> Tensor:
            return g.x

    class OfTypes(nn.Module):
        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return x_dict

    class Positions(nn.Module):
        def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor) -> Tensor:
            return x

    class Needs(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, time: Tensor) -> Tensor:
            return x

    for model in (OfData(), Typed()):
        with refused("takes a whole graph as", "write forward(self, x, edge_index)"):
            forward(model, BATCH)
    for model in (OfTypes(), pyg.HeteroConv({})):
        with refused("dictionaries of types", "to_homogeneous()", "edge_type"):
            forward(model, BATCH)
    for model, name in ((Positions(), "pos"), (Needs(), "time"), (pyg.GCN2Conv(F, 0.5), "x_0")):
        with refused(f"takes '{name}', which gistgnn does not give"):
            forward(model, BATCH)
    with refused("Relational.forward needs edge_type, and the graph has none", "set edge_type on the Data"):
        forward(MODELS["RGCN"]((4,)), whole_graph(only(GRAPH, "edge_weight")))


def warnings(model: nn.Module, *names: str) -> list[str]:
    batch = whole_graph(only(GRAPH, *names))
    with logged() as messages:
        check_fits(model, batch, C)
    return messages


def test_edge_data_that_is_not_used_is_told() -> None:
    assert warnings(GCN(F, (4,), C), "edge_weight") == []
    for name, model in MODELS.items():
        used = model((4,)).name
        assert warnings(model((4,)), used) == [], name
    for model, name in (
        (GAT(F, (4,), C), "edge_weight"),
        (GCN(F, (4,), C), "edge_type"),
        (pyg.models.GraphSAGE(F, 4, 2, C), "edge_weight"),
        (nn.Linear(F, C), "edge_attr"),
        (MODELS["GINE"]((4,)), "edge_weight"),
    ):
        needs = ("edge_attr",) if isinstance(model, MODELS["GINE"]) else ()
        (message,) = warnings(model, name, *needs)
        assert f"the graph has {name}, and {type(model).__name__} makes no use of it" in message
        assert f"data.{name} = None" in message
    deaf, heard = pyg.models.GAT(F, 4, 2, C), pyg.models.GAT(F, 4, 2, C, edge_dim=D)
    assert "its output does not depend on it" in warnings(deaf, "edge_attr")[0]
    assert warnings(heard, "edge_attr") == []
    assert warnings(EnsembleModel([deaf, deaf]), "edge_attr")
