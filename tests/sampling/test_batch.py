"""What a step sees of the graph, and how a model's forward is called.

And which forwards are refused.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn.evaluation import predict
from gistgnn.nn import GAT, GCN, SparseMatrix, members_of
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.sampling import Batch, arguments, check_fits, forward, whole_graph
from tests.helpers.edges import MODELS, edge_graph, only
from tests.helpers.logs import logged
from tests.helpers.models import C, F, tiny_graph
from tests.helpers.refusals import refused

GRAPH = tiny_graph()


def batch(x: Tensor = GRAPH.x) -> Batch:
    return whole_graph(replace(GRAPH, x=x))


def test_an_output_that_is_not_one_row_a_node_is_refused() -> None:
    outputs: dict[str, Any] = {
        "(24,)": torch.zeros(24),
        "(1, 3)": torch.zeros(1, C),
        "(24, 3, 1)": torch.zeros(24, C, 1),
        "tuple": (torch.zeros(24, C), None),
        "NoneType": None,
    }
    for description, out in outputs.items():
        with refused(f"returned {description}", "24 nodes"):
            forward(model(lambda self, x, out=out: out), batch())


EDGE_GRAPH = edge_graph()
BATCH = whole_graph(EDGE_GRAPH)


def model(forward: Callable[..., Any]) -> nn.Module:
    return type("Other", (nn.Module,), {"forward": forward})()  # type: ignore[no-any-return]


def test_a_model_is_called_by_the_names_of_its_arguments() -> None:
    bags = torch.zeros(24, 50)
    bags[torch.arange(24), torch.arange(24)] = 2.0
    one = batch(bags)
    assert isinstance(one.features, SparseMatrix)  # features that are mostly 0, for our models only
    for other, expected in (
        (model(lambda self, x, edge_index, edge_weight=None: x), (bags, one.edge_index)),
        (model(lambda self, x, adj: x), (one.features, one.adj)),
        (model(lambda self, x, *, scale=1.0: x), (bags,)),
    ):
        call = arguments(other, one)
        assert len(call.positional) == len(expected)
        for argument, expected_argument in zip(call.positional, expected, strict=True):
            # It may be a copy, until it is known that the model only reads.
            assert argument is expected_argument or torch.equal(argument, expected_argument)
        assert call.by_name == {}
    assert batch().features is GRAPH.x


def test_edge_data_is_given_by_name_wherever_it_stands() -> None:
    for other, names in (
        (model(lambda self, x, edge_index, scale=1.0, *, edge_type, **other: x), ["edge_type"]),
        (model(lambda self, x, adj, edge_attr=None: x), ["edge_attr"]),
        (model(lambda self, x, batch=None: x), []),
        (pyg.models.GraphSAGE(F, 4, 2, C), []),
    ):
        by_name = arguments(other, BATCH).by_name
        assert list(by_name) == names
        assert all(torch.equal(value, BATCH.edge_data[name]) for name, value in by_name.items())
    assert torch.equal(BATCH.adj.edge_weight, BATCH.edge_data["edge_weight"])


def weighted_sums(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """What PyG's layers sum, by a loop over the edges."""
    out = torch.zeros_like(x)
    for edge, (source, target) in enumerate(edge_index.t().tolist()):
        out[target] += x[source] if edge_weight is None else x[source] * edge_weight[edge]
    return out


SIGNATURES: dict[str, Callable[..., Tensor]] = {
    "usual": lambda self, x, edge_index, edge_weight=None: weighted_sums(
        x, edge_index, edge_weight
    ),
    "by name alone": lambda self, x, *, edge_index, edge_weight: weighted_sums(
        x, edge_index, edge_weight
    ),
    "by name, with defaults": lambda self, x, *, edge_weight=None, edge_index=None: weighted_sums(
        x, edge_index, edge_weight
    ),
    "edges last": lambda self, x, edge_weight=None, edge_index=None: weighted_sums(
        x, edge_index, edge_weight
    ),
    "weights first": lambda self, x, edge_weight, edge_index: weighted_sums(
        x, edge_index, edge_weight
    ),
    "features last": lambda self, edge_index, edge_weight, x: weighted_sums(
        x, edge_index, edge_weight
    ),
    "features by name": lambda self, *, edge_index, edge_weight, x: weighted_sums(
        x, edge_index, edge_weight
    ),
    "another default between": lambda self, x, scale=1.0, edge_index=None, edge_weight=None: (
        weighted_sums(x * scale, edge_index, edge_weight)
    ),
    "features after a default": lambda self, scale=1.0, *, x, edge_index, edge_weight: (
        weighted_sums(x * scale, edge_index, edge_weight)
    ),
    "defaults alone": lambda self, x=None, edge_index=None, edge_weight=None: weighted_sums(
        x, edge_index, edge_weight
    ),
    "other names": lambda self, h, ei, edge_weight: weighted_sums(h, ei, edge_weight),
    "edges": lambda self, x, edge_weight, edges: weighted_sums(x, edges, edge_weight),
    "handed on": lambda self, *args, edge_weight: weighted_sums(*args, edge_weight),
    "handed on by name": lambda self, x, edge_weight=None, **kwargs: weighted_sums(
        x, kwargs["edge_index"], edge_weight
    ),
    "the structure by name": lambda self, x, *, adj: adj.pattern.with_values(adj.edge_weight) @ x,
    "the structure after weights": lambda self, x, edge_weight=None, adj=None: (
        adj.pattern.with_values(edge_weight) @ x
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_are_given_by_name_wherever_they_stand(name: str) -> None:
    seen = whole_graph(only(EDGE_GRAPH, "edge_weight"))
    expected = weighted_sums(seen.x, seen.edge_index, seen.edge_data["edge_weight"])
    for _ in range(2):
        torch.testing.assert_close(forward(model(SIGNATURES[name]), seen), expected)


def test_the_members_of_an_ensemble_get_edge_data() -> None:
    for build in MODELS.values():
        members = [build((4,)) for _ in range(2)]
        expected = (forward(members[0], BATCH) + forward(members[1], BATCH)) / 2
        torch.testing.assert_close(forward(EnsembleModel(members), BATCH), expected)


def test_the_members_of_an_ensemble_get_every_argument_by_name() -> None:
    """Also those without a value, and also where the ensemble is compiled."""
    edge_index = BATCH.edge_index
    for build in (lambda: pyg.GraphSAGE(F, 4, 2, C), lambda: GCN(F, (4,), C)):
        members = [build().eval() for _ in range(2)]
        expected = sum(member(BATCH.x, edge_index) for member in members) / 2
        ensemble = EnsembleModel(members)
        if isinstance(members[0], pyg.GraphSAGE):
            out = ensemble(BATCH.x, edge_index, edge_weight=None, edge_attr=None)
            torch.testing.assert_close(out, expected)
        compiled = torch.compile(ensemble, backend="eager")
        for outer in (ensemble, compiled):
            assert members_of(outer) == members
        batch = whole_graph(only(EDGE_GRAPH, "edge_type"))
        torch.testing.assert_close(predict(compiled, batch), expected)


def test_some_columns_of_sparse_features_share_the_structure() -> None:
    """Every sub-GCN has columns of its own, and the operators are computed once."""
    x = torch.zeros(24, 50)
    x[torch.arange(24), torch.arange(24)] = 2.0
    columns = torch.tensor([20, 3])
    for features in (x, x.to_sparse_csr()):
        full_batch = batch(features)
        operator = full_batch.adj.gcn
        selected = full_batch.select_columns(columns)
        assert selected.adj.gcn is operator
        assert torch.equal(selected.dense, x[:, columns])


def test_forwards_that_cannot_be_called_are_refused() -> None:
    def typed(self: nn.Module, g: Data) -> Tensor:
        return g.x

    a_graph = ("takes a whole graph as", "write forward(self, x, edge_index)")
    types = ("dictionaries of types", "HeteroData", "edge_type")
    for other, parts in (
        (model(lambda self, data: data.x), a_graph),
        (model(typed), a_graph),
        (model(lambda self, x_dict, edge_index_dict: x_dict), types),
        (pyg.HeteroConv({}), types),
        (
            model(lambda self, x, pos, edge_index=None: x),
            ("takes 'pos', which gistgnn does not give",),
        ),
        (
            model(lambda self, x, edge_index, edge_attr, time: x),
            ("takes 'time', which gistgnn does not give",),
        ),
        (pyg.GCN2Conv(F, 0.5), ("takes 'x_0', which gistgnn does not give",)),
        (
            model(lambda self, x, time, edge_index: x),
            ("takes 'time', which gistgnn does not give",),
        ),
        (
            model(lambda self, edge_index, edge_weight: edge_index),
            ("no argument for the features",),
        ),
    ):
        with refused(*parts):
            forward(other, BATCH)
    with refused(
        "Relational.forward needs edge_type, and the graph has none", "set edge_type on the Data"
    ):
        forward(MODELS["RGCN"]((4,)), whole_graph(only(EDGE_GRAPH, "edge_weight")))


def warnings(model: nn.Module, *names: str) -> list[str]:
    batch = whole_graph(only(EDGE_GRAPH, *names))
    with logged() as messages:
        check_fits(model, batch, C)
    return messages


def test_a_model_that_fails_is_told_the_data_that_it_got() -> None:
    def fails(self: nn.Module, x: Tensor, *, adj: Any, edge_weight: Tensor) -> Tensor:
        raise ValueError("as it is")

    seen = whole_graph(only(EDGE_GRAPH, "edge_weight"))
    with refused(
        f"x {list(seen.x.shape)}, edge_weight {list(seen.edge_data['edge_weight'].shape)}",
        "as it is",
    ):
        check_fits(model(fails), seen, C)


def test_edge_data_that_is_not_used_is_told() -> None:
    used = [(GCN(F, (4,), C), "edge_weight"), (pyg.models.GCN(F, 4, 2, C), "edge_weight")]
    used += [(model((4,)), model((4,)).name) for model in MODELS.values()]
    for model, name in used:
        assert warnings(model, name) == [], name
    for model, *names in (
        (GAT(F, (4,), C), "edge_weight"),
        (GCN(F, (4,), C), "edge_type"),
        (pyg.models.GraphSAGE(F, 4, 2, C), "edge_weight"),
        (nn.Linear(F, C), "edge_attr"),
        (MODELS["GINE"]((4,)), "edge_weight", "edge_attr"),
    ):
        (message,) = warnings(model, *names)
        assert f"the graph has {names[0]}, and {type(model).__name__} makes no use of it" in message
        assert f"data.{names[0]} = None" in message


@pytest.mark.parametrize(
    ("shape", "takes_weights", "hint"),
    [
        ((1,), True, "data.edge_weight = data.edge_attr.squeeze(1)"),
        ((), True, "data.edge_weight = data.edge_attr;"),
        ((2,), True, ""),
        ((1,), False, ""),
    ],
)
def test_a_hint_is_given_where_edge_attr_may_be_weights(
    shape: tuple[int, ...], takes_weights: bool, hint: str
) -> None:
    graph = replace(only(EDGE_GRAPH), edge_attr=torch.rand(EDGE_GRAPH.num_edges, *shape))
    model = GCN(F, (4,), C) if takes_weights else GAT(F, (4,), C)
    with logged() as messages:
        check_fits(model, whole_graph(graph), C)
    assert len(messages) == 1
    assert ("if these are weights: " in messages[0]) == bool(hint)
    assert hint in messages[0]
