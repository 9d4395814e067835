"""Our models as modules of PyG and torch alone."""

import copy
import io
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn.graphs.standardise import Standardisation
from gistgnn.nn import GCN, MODELS, WITH_HEADS, Adjacency, GATv2, GraphSAGE, to_pyg
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.nn.pyg_models import convert
from gistgnn.nn.scaling import scaled_model
from tests.helpers.refusals import refused

from .strategies import random_graph

D = torch.float64
F = 6
C = 3
NORMS = ("none", "layer", "batch", "whole")


def trained(name: str, widths: Sequence[int], seed: int = 0, **options: Any) -> nn.Module:
    """A model with parameters and buffers as training leaves them: no zeros, no ones."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MODELS[name](F, widths, C, **options).to(D)
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor), alpha=0.3)
    return model.eval()


def scaled(model: nn.Module) -> nn.Module:
    spread = torch.linspace(1, 5, F, dtype=D)
    return scaled_model(model, Standardisation(100 * spread, spread)).eval()


def inputs(seed: int, nodes: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Features, edges and weights of a directed multigraph with self-loops.

    Some of the weights are 0.
    """
    generator = torch.Generator().manual_seed(seed)
    edges = random_graph(nodes, 5 * nodes, seed)
    weights = torch.rand(edges.shape[1], generator=generator, dtype=D)
    weights[weights < 0.2] = 0
    weights[edges[1] == 0] = 0
    x = torch.randn(nodes, F, generator=generator, dtype=D) * 3 + 200
    return x, edges, weights


def variants(name: str) -> Iterator[dict[str, Any]]:
    yield {"widths": (4, 4), "activation": "elu", "dropout": 0.2}
    yield {"widths": (4, 3), "activation": "elu", "dropout": 0.2}
    yield {"widths": (5,)}
    if name in WITH_HEADS:
        yield {"widths": (4, 4), "heads": 2, "attention_dropout": 0.1}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_the_same_as_a_module_of_pyg(name: str, norm: str) -> None:
    for seed, (options, scales, weighted) in enumerate(
        product(variants(name), (False, True), (False, True))
    ):
        model = trained(name, seed=seed, norm=norm, **options)
        model = scaled(model) if scales else model
        x, edges, weights = inputs(seed)
        adjacency = Adjacency(edges, len(x), D, weights if weighted else None)
        converted = to_pyg(model, edge_weight=weighted)
        is_read = weighted and name not in WITH_HEADS
        with torch.no_grad():
            out = converted(x, edges, weights) if is_read else converted(x, edges)
            torch.testing.assert_close(out, model(x, adjacency), rtol=1e-9, atol=1e-9)
        kinds = {type(module).__module__.partition(".")[0] for module in converted.modules()}
        assert kinds <= {"torch", "torch_geometric"}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MODELS)
def test_a_converted_model_trains_on_as_the_model_does(name: str, norm: str) -> None:
    """The scaling stays as it is, a batch norm goes on from its statistics, gradients are equal."""
    model = scaled(trained(name, (4, 3), norm=norm))
    converted = to_pyg(model)
    before = copy.deepcopy(model.state_dict())
    x, edges, _ = inputs(1)
    computed = []
    for module in (converted, model):
        features = x.clone().requires_grad_()
        out = module.train()(features, edges)
        (gradient,) = torch.autograd.grad(out.square().sum(), features)
        computed.append((out, gradient, module.eval()(x, edges)))
        if module is converted:
            assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
    torch.testing.assert_close(computed[0], computed[1], rtol=1e-9, atol=1e-9)


def test_pyg_s_own_model_is_used_where_it_computes_the_same() -> None:
    classes = {"gcn": pyg.GCN, "graphsage": pyg.GraphSAGE, "gat": pyg.GAT, "gatv2": pyg.GAT}
    for name, norm in product(classes, ("none", "layer", "batch")):
        assert type(to_pyg(trained(name, (4, 4), norm=norm, dropout=0.1))) is classes[name]
    attending = trained("gat", (4, 4), dropout=0.1, attention_dropout=0.0)
    in_sequence = (
        trained("gcn", (4, 3)),
        trained("gcn", (4, 4), norm="whole"),
        attending,
        trained("gin", (4, 4)),
        scaled(trained("gcn", (4, 4))),
    )
    assert {type(to_pyg(model)) for model in in_sequence} == {pyg.Sequential}
    assert type(to_pyg(trained("graphsage", (4, 4)), edge_weight=True)) is pyg.Sequential
    # Dropout is the model's own, for whoever trains on.
    dropouts = {m.p for m in to_pyg(attending).modules() if isinstance(m, nn.Dropout)}
    assert dropouts == {0.1}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", MODELS)
def test_the_python_of_a_model_makes_it(name: str) -> None:
    x, edges, weights = inputs(2)
    for norm, weighted in product(NORMS, (False, True)):
        model = scaled(trained(name, (4, 3), norm=norm))
        conversion = convert(model, edge_weight=weighted)
        names: dict[str, Any] = {}
        exec("\n".join([*conversion.imports, *conversion.definitions]), names)
        built = names["build"]()
        built.load_state_dict(conversion.tensors, assign=True)
        values = dict(zip(("x", "edge_index", "edge_weight"), (x, edges, weights), strict=True))
        arguments = [values[argument] for argument in conversion.inputs]
        assert torch.equal(built.eval()(*arguments), conversion.make()(*arguments))
        assert "gistgnn" not in "".join([*conversion.imports, *conversion.definitions])


def test_a_converted_model_is_copied_and_pickled_as_any_module() -> None:
    x, edges, _ = inputs(3)
    for name in MODELS:
        converted = to_pyg(scaled(trained(name, (4, 3))))
        file = io.BytesIO()
        torch.save(converted, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        for other in (copy.deepcopy(converted), loaded):
            assert torch.equal(other(x, edges), converted(x, edges))


def test_random_numbers_are_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    model = trained("gin", (4, 4))
    torch.manual_seed(5)
    to_pyg(model)
    assert torch.equal(torch.rand(3), expected)


class Doubled(GCN):
    """A GCN that a user has changed."""

    def forward(self, x: Any, adj: Any, nodes: Any = None) -> Tensor:
        return 2 * super().forward(x, adj, nodes)


class Swapped(nn.Module):
    """A model that takes its edges first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(F, C)

    def forward(self, edge_index: Tensor, x: Tensor) -> Tensor:
        return self.conv(x, edge_index)


def test_a_model_of_the_user_s_own_stays_what_it_is() -> None:
    x, edges, weights = inputs(4)
    for model in (pyg.GCN(F, 4, 2, C).to(D), pyg.GAT(F, 4, 2, C).to(D), Doubled(F, (4,), C).to(D)):
        model.eval()
        assert to_pyg(model) is model
        with refused(type(model).__name__, "of your own"):
            convert(model)
    model = pyg.GCN(F, 4, 2, C).to(D).eval()
    behind = scaled(model)
    for weighted in (False, True):
        arguments = (x, edges, weights) if weighted else (x, edges)
        converted = to_pyg(behind, edge_weight=weighted)
        torch.testing.assert_close(converted(*arguments), behind(*arguments))
        assert model in converted.modules()
    assert to_pyg(torch.compile(model)) is model
    with refused("Swapped", "of your own", "model.scaling(x)"):
        to_pyg(scaled(Swapped().to(D)))


def test_an_ensemble_is_refused() -> None:
    members = [trained("gcn", (4, 4), seed=seed) for seed in range(3)]
    for model in (EnsembleModel(members), scaled(EnsembleModel(members))):
        with refused("ensemble of 3 models"):
            to_pyg(model)


def test_a_norm_that_is_put_into_a_model_is_refused() -> None:
    for widths in ((4, 4), (4, 3)):
        model = trained("gcn", widths)
        model.norms[0] = pyg.PairNorm()
        with refused("PairNorm in place of norm='none'", "state_dict()"):
            to_pyg(model)


def test_types_of_numbers_stay_and_parameters_are_copies() -> None:
    for kind, dtype in product((GraphSAGE, GATv2), (torch.float32, torch.float64)):
        model = kind(F, (4, 4), C, norm="batch").to(dtype).eval()
        converted = to_pyg(model)
        assert {p.dtype for p in converted.parameters()} == {dtype}
        assert not any(p is q for p, q in product(converted.parameters(), model.parameters()))
