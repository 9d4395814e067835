"""Weights and buffers that a model computes from whole parameters, as a spectral norm does."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from gistgnn import GIST, Graph
from gistgnn.baselines import Ensemble, LocalSGD, Parts
from gistgnn.layout.axes import named_tensors
from gistgnn.settings import Training
from gistgnn.theta import Store
from tests.helpers.fitting import GRAPH, fit, same, theta
from tests.helpers.models import C, F
from tests.helpers.refusals import refused

Change = Callable[[nn.Module], Any]


class Net(nn.Module):
    """Three layers, of which each is changed in the same way."""

    def __init__(self, widths: tuple[int, int], change: Change = lambda layer: layer) -> None:
        super().__init__()
        first, second = widths
        self.enter = nn.Linear(F, first)
        self.conv = pyg.GCNConv(first, second)
        self.out = nn.Linear(second, C)
        for layer in self.linear:
            change(layer)

    @property
    def linear(self) -> list[nn.Module]:
        return [self.enter, self.conv.lin, self.out]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.conv(self.enter(x).relu(), edge_index).relu())


class Symmetric(nn.Module):
    """Depends on the order of rows and columns."""

    def forward(self, weight: Tensor) -> Tensor:
        if weight.shape[0] == weight.shape[1]:
            return weight.triu() + weight.triu(1).T
        return weight.tril()


class Buffers(nn.Module):
    """Computes buffers of its weight in training.

    The first three follow from all of the weight, the others do not.
    """

    def __init__(self, widths: tuple[int]) -> None:
        super().__init__()
        self.enter = nn.Linear(F, *widths)
        self.out = nn.Linear(*widths, C)
        self.norm = nn.BatchNorm1d(*widths)
        self.register_buffer("size", torch.ones(()))
        self.register_buffer("columns", torch.ones(F))
        self.register_buffer("products", torch.eye(F))
        self.register_buffer("moving", torch.zeros(*widths, F))
        self.register_buffer("largest", torch.zeros(()))  # of the features: follows from the input
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.enter.weight
        if self.training:
            with torch.no_grad():
                self.size.copy_(weight.norm())
                self.columns = weight.norm(dim=0)
                self.products = weight.T @ weight
                self.moving.lerp_(weight, 0.3)
                self.calls += 1
                self.largest.copy_(self.enter(x).max())
        hidden = self.norm(self.enter(x / (1 + self.products.trace()))) / self.size
        return self.out(hidden.relu() + self.moving.sum(1)) * (
            1 + self.columns.mean() + 0.1 * self.largest
        )


def effective_weights(model: nn.Module) -> list[Tensor]:
    """The weights that the model multiplies by, in evaluation."""
    with torch.no_grad():
        model.eval()(GRAPH.x, GRAPH.edge_index)
    return [layer.weight.detach() for layer in model.linear]


def spectral_norms(model: nn.Module) -> Tensor:
    return torch.stack([torch.linalg.matrix_norm(weight, 2) for weight in effective_weights(model)])


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda build, folder: GIST(build, (8, 6), 2), parametrizations.spectral_norm),
        (lambda build, folder: GIST(build, (8, 6), 2), nn.utils.spectral_norm),
        (lambda build, folder: GIST(build, (8, 6), 4, whole=1), nn.utils.spectral_norm),
        (lambda build, folder: GIST(build, (8, 6), 2, store="host"), nn.utils.spectral_norm),
        (
            lambda build, folder: GIST(build, (8, 6), 2, store=Store("disk", folder)),
            nn.utils.spectral_norm,
        ),
        (lambda build, folder: LocalSGD(build, (8, 6), 3), nn.utils.spectral_norm),
    ],
    ids=["parametrization", "hook", "an axis whole", "host", "disk", "local-sgd"],
)
def test_the_merged_weights_have_a_spectral_norm_of_one(
    make: Any, change: Change, tmp_path: Path
) -> None:
    gist = make(lambda w: Net(w, change), tmp_path / "theta")
    batches = {"sampler": "clusters"} if gist.method == "local-sgd" else {}
    result = fit(gist, epochs=12, **batches)
    for model in (result.model, gist.model()):
        torch.testing.assert_close(spectral_norms(model), torch.ones(3), rtol=5e-3, atol=0)


def test_the_model_that_is_scored_is_the_one_that_is_returned() -> None:
    gist = GIST(lambda w: Net(w, nn.utils.spectral_norm), (8, 6), 2)
    result = fit(gist, epochs=4)
    with torch.no_grad():
        predicted = result.model(GRAPH.x, GRAPH.edge_index).argmax(1)
    for split in ("val", "test"):
        mask = getattr(GRAPH, split)
        scores = result.validation if split == "val" else result.test
        accuracy = float((predicted == GRAPH.y)[mask].float().mean())
        assert scores["accuracy"] == pytest.approx(accuracy)


WITHOUT_ORDER: dict[str, Change] = {
    "spectral norm, hook": nn.utils.spectral_norm,
    "weight norm, hook": nn.utils.weight_norm,
    "weight norm": parametrizations.weight_norm,
    "weight norm of columns": partial(parametrizations.weight_norm, dim=1),
}
ORDERED: dict[str, Change] = {
    "orthogonal": parametrizations.orthogonal,
    "exponential": partial(parametrizations.orthogonal, orthogonal_map="matrix_exp"),
    "cayley": partial(parametrizations.orthogonal, orthogonal_map="cayley"),
    "householder": partial(parametrizations.orthogonal, use_trivialization=False),
    "symmetric": lambda layer: parametrize.register_parametrization(layer, "weight", Symmetric()),
}


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "change", [*WITHOUT_ORDER.values(), *ORDERED.values()], ids=[*WITHOUT_ORDER, *ORDERED]
)
def test_one_sub_gcn_is_a_plain_loop(change: Change) -> None:
    gist = GIST(lambda w: Net(w, change), (8, 8), 1, seed=3)
    model = gist.model().train()
    training = Training(9)
    optimizer = training.make_optimizer(model.parameters())
    for _ in range(9):
        optimizer.zero_grad()
        logits = model(GRAPH.x, GRAPH.edge_index)[GRAPH.train]
        nn.functional.cross_entropy(logits, GRAPH.y[GRAPH.train]).backward()
        optimizer.step()
    fit(gist, epochs=9)
    trained = theta(gist)
    plain = named_tensors_of(model)
    assert trained.keys() == plain.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(
            trained[name], tensor, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert same(named_tensors_of(gist.model()), trained)


def named_tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in named_tensors(model).items()}


@pytest.mark.parametrize("change", ORDERED.values(), ids=ORDERED)
def test_weights_that_depend_on_the_order_of_features_are_not_split(change: Change) -> None:
    def build(widths: tuple[int, int]) -> Net:
        return Net(widths, change)

    for m in (2, None):
        with refused("parametrizations.weight"):
            GIST(build, (8, 8), m)
    with refused("parametrizations.weight"):
        GIST(build, (8, 8), 1).join_parts(lambda i: named_tensors_of(build((4, 4))), 2)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_weight_norm_keeps_its_norms(m: int) -> None:
    model = fit(GIST(lambda w: Net(w, parametrizations.weight_norm), (8, 8), m), epochs=8).model
    for layer, weight in zip(model.linear, effective_weights(model), strict=True):
        norms = layer.parametrizations.weight.original0.detach().abs()
        torch.testing.assert_close(weight.norm(dim=1, keepdim=True), norms)


def test_buffers_that_follow_from_whole_parameters_are_computed_from_the_merged_ones() -> None:
    gist = GIST(Buffers, (8,), 2)
    assert gist.layout.derived == {"size", "columns", "products"}
    result = fit(gist, epochs=12, local_steps=3)
    for model in (result.model, gist.model()):
        weight = model.enter.weight.detach()
        torch.testing.assert_close(model.size, weight.norm())
        torch.testing.assert_close(model.columns, weight.norm(dim=0))
        torch.testing.assert_close(model.products, weight.T @ weight)
    merged = named_tensors_of(gist.model())
    trained = theta(gist)
    for name in (
        "moving",
        "largest",
        "calls",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    ):
        assert torch.equal(merged[name], trained[name])
    assert float(trained["calls"]) == 6  # steps of a sub-GCN: no call to compute a buffer counts


def test_models_without_such_buffers_have_none() -> None:
    for build in (lambda w: Net(w), lambda w: Net(w, parametrizations.weight_norm)):
        assert not GIST(build, (8, 6), 2).layout.derived


def test_members_of_an_ensemble_keep_their_buffers() -> None:
    def build(widths: tuple[int, int]) -> Net:
        return Net(widths, nn.utils.spectral_norm)

    ensemble = Ensemble(build, (8, 6), 2, seed=4)
    model = fit(ensemble, epochs=8).model
    alone = fit(GIST(build, (4, 3), 1, seed=4), epochs=4).model
    assert same(named_tensors_of(model.members[0]), named_tensors_of(alone))
    assert same(named_tensors_of(ensemble.model()), named_tensors_of(model))


@pytest.mark.long
def test_a_mean_of_sub_gcns_is_tried_with_the_merged_norms() -> None:
    # The weight of `out` is divided by its own norm: a division by m has no effect on it.
    def normed(widths: tuple[int, int]) -> Net:
        return Net(widths, nn.utils.spectral_norm)

    splits = {name: getattr(GRAPH, name) for name in ("train", "val", "test")}
    numbers = Graph.build(GRAPH.x, GRAPH.edge_index, GRAPH.x.sum(dim=1), **splits, regression=True)
    with refused("cannot be merged as the mean"):
        fit(GIST(normed, (8, 8), 2), numbers)
    with refused("cannot be merged as the mean"):
        fit(Parts(normed, (8, 8), 2))

    # Blocks side by side have the norm of one of them, if the weights between the blocks are zero.
    def build(widths: tuple[int, int]) -> Net:
        net = Net(widths)
        nn.utils.spectral_norm(net.conv.lin)
        return net

    assert float(spectral_norms(fit(Parts(build, (8, 8), 2), epochs=8).model)[1]) == pytest.approx(
        1, rel=5e-3
    )
