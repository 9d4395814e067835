"""Joined and widened models: outputs beside those of the narrow models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import gistgnn
from gistgnn import GIST, InputError, join, widen
from gistgnn.nn import MODELS, ScaledModel
from gistgnn.sampling import forward, whole_graph
from tests.helpers.models import USERS, tiny_graph
from tests.helpers.refusals import refused

GRAPH = tiny_graph(48)
F = GRAPH.num_features
C = GRAPH.num_classes
BATCH = whole_graph(GRAPH)
DEGREES = torch.tensor([0, 4, 8, 12, 8, 4, 2, 1])
PNA: dict[str, Any] = {
    "aggregators": ["mean", "max"],
    "scalers": ["identity", "amplification"],
    "deg": DEGREES,
}
PYG: dict[str, Callable[..., nn.Module]] = {
    "GCN": pyg.models.GCN, "GraphSAGE": pyg.models.GraphSAGE, "GIN": pyg.models.GIN,
    "GAT": pyg.models.GAT,
    "PNA": lambda *sizes, **options: pyg.models.PNA(*sizes, **PNA, **options),
}  # fmt: skip


class GCN2(nn.Module):
    """PyG's GCNII, whose layers have residuals to the first one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(F, width)
        self.convs = nn.ModuleList([pyg.GCN2Conv(width, 0.1, 0.5, layer + 1) for layer in range(2)])
        self.norm = pyg.LayerNorm(width)
        self.last = nn.Linear(width, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = start = self.first(x).relu()
        for conv in self.convs:
            h = h + self.norm(conv(h, start, edge_index).relu())
        out: Tensor = self.last(h)
        return out


Case = tuple[Callable[[Any], nn.Module], Any]
CASES: dict[str, Case] = {
    f"{name} {norm}": (lambda w, n=name, o=norm: MODELS[n](F, w, C, norm=o), (6, 8))
    for name in ("gcn", "graphsage", "gin", "gat", "gatv2")
    for norm in ("none", "layer", "batch")
}
CASES |= {
    f"pyg {name} {norm}": (lambda w, n=name, o=norm: PYG[n](F, w, 3, C, norm=o), 8)
    for name in PYG
    for norm in (None, "layer_norm", "batch_norm")
}
CASES |= {
    "GCN2": (GCN2, 8),
    "jumping": (lambda w: pyg.models.GCN(F, w, 3, C, jk="cat"), 8),
    **USERS,
}


def trained_like(build: Callable[[Any], nn.Module], widths: Any, seed: int = 0) -> nn.Module:
    """A model in evaluation mode with random values everywhere, also in its norms."""
    torch.manual_seed(seed)
    made = build(widths).double().eval()
    with torch.no_grad():
        for name, tensor in (*made.named_parameters(), *made.named_buffers()):
            if tensor.is_floating_point() and tensor.dim() == 1 and "deg" not in name:
                tensor.copy_(torch.rand(tensor.shape, dtype=torch.double) + 0.5)
    return made


def output(model: nn.Module) -> Tensor:
    batch = whole_graph(tiny_graph(48))
    with torch.no_grad():
        return forward(model.float(), batch)


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def times(widths: Any, count: int) -> Any:
    return widths * count if isinstance(widths, int) else tuple(count * width for width in widths)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_a_widened_model_has_the_same_output(name: str) -> None:
    build, widths = CASES[name]
    model = trained_like(build, widths)
    for count in (2, 3):
        wide = widen(build, model, times(widths, count))
        assert shapes(wide) == shapes(build(times(widths, count)))
        expected = output(model)
        torch.testing.assert_close(
            output(wide), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max())
        )


@pytest.mark.parametrize(
    "name", ["gcn none", "graphsage none", "graphsage batch", "pyg GCN None", "jumping"]
)
def test_the_output_of_joined_models_is_the_mean_of_theirs(name: str) -> None:
    """Nothing mixes their features here.

    Each model has a width of its own, and widths need not be given.
    """
    build, widths = CASES[name]
    models = [
        trained_like(build, times(widths, count), seed) for seed, count in enumerate((1, 3, 2))
    ]
    expected = torch.stack([output(model) for model in models]).mean(dim=0)
    wide = join(build, models)
    torch.testing.assert_close(output(wide), expected, rtol=1e-4, atol=1e-5)
    again = join(build, models, times(widths, 6))
    assert all(
        torch.equal(value, again.state_dict()[key]) for key, value in wide.state_dict().items()
    )


def test_the_users_random_stream_does_not_move() -> None:
    build = CASES["pyg GCN None"][0]
    model = build(8)
    before = torch.get_rng_state()
    join(build, [model, model])
    widen(build, model, 16)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_model_joined_is_itself() -> None:
    build, widths = CASES["gat layer"]
    model = trained_like(build, widths)
    assert all(
        torch.equal(value, model.state_dict()[key])
        for key, value in join(build, [model]).state_dict().items()
    )


def test_weights_between_the_models_are_zero_and_the_models_stay_as_they_are() -> None:
    build, widths = CASES["gcn none"]
    model = trained_like(build, widths)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    weight = widen(build, model, times(widths, 2)).convs[1].weight
    assert weight.shape == (16, 12)
    assert not weight[:8, 6:].any()
    assert not weight[8:, :6].any()
    assert torch.equal(weight[:8, :6], weight[8:, 6:])
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_scaled_model_stays_scaled() -> None:
    graph = gistgnn.load("digits")

    def build(widths: Any) -> nn.Module:
        return MODELS["graphsage"](graph.num_features, widths, graph.num_classes)

    result = GIST(build, (16, 16), 1).fit(graph, epochs=4, standardise=True, progress=False)
    wide = widen(build, result.model, (32, 32))
    assert isinstance(wide, ScaledModel)
    batch = whole_graph(graph)
    with torch.no_grad():
        torch.testing.assert_close(
            forward(wide, batch), forward(result.model, batch), rtol=1e-4, atol=1e-4
        )
    with pytest.raises(InputError, match="scale their features differently"):
        join(build, [result.model, result.model.model])


@pytest.mark.parametrize("name", ["gcn layer", "pyg GIN layer_norm"])
def test_a_run_begins_with_a_narrower_model(name: str) -> None:
    """Its first score is that of the narrow model; the model or its state may be given."""
    build, widths = CASES[name]
    narrow = GIST(build, widths, 1).fit(GRAPH, epochs=30, progress=False)
    expected = output(narrow.model)
    for init in (narrow.model, narrow.model.state_dict()):
        wide = GIST(build, times(widths, 4), 2)
        begun = wide.fit(GRAPH, epochs=2, lr=1e-9, init=init, progress=False)
        torch.testing.assert_close(output(begun.model), expected, rtol=1e-3, atol=1e-3)
    no_multiple = widths + 1 if isinstance(widths, int) else (12, 24)
    with pytest.raises(InputError, match="same multiple"):
        GIST(build, no_multiple, 1).fit(GRAPH, init=narrow.model)


@pytest.mark.parametrize("widths", [(12, 24), (9, 12), (3, 4), (12,)])
def test_widths_that_no_number_of_copies_has_are_refused(widths: tuple[int, ...]) -> None:
    build, narrow_widths = CASES["gcn none"]
    with pytest.raises(InputError, match=r"same multiple of each|build lacks: give a model of"):
        widen(build, trained_like(build, narrow_widths), widths)


def test_models_that_build_does_not_make_are_refused() -> None:
    build, narrow_widths = CASES["gcn none"]
    model = trained_like(build, narrow_widths)
    other = trained_like(CASES["graphsage none"][0], narrow_widths)
    with pytest.raises(InputError, match="empty"):
        join(build, [])
    for models in ([other], [model, other]):
        with refused("'convs.0.weight' is [6, 14], expected [6, 7]: give a model of build"):
            join(build, models)
    with pytest.raises(InputError, match="together"):
        join(build, [model, model], (12, 12))
    longer = trained_like(build, narrow_widths)
    longer.extra = nn.Linear(3, 2)
    with pytest.raises(InputError, match=r"the model has 'extra.bias', which build lacks"):
        join(build, [longer, longer], times(narrow_widths, 2))
    # A run takes copies of a narrower model.
    for widths in (narrow_widths, times(narrow_widths, 2)):
        for init in (longer, longer.state_dict()):
            with pytest.raises(InputError, match=r"has 'extra.bias', which"):
                GIST(build, widths, 1).fit(GRAPH, init=init, progress=False)
    with refused("a model is 'model', expected a trained model of build"):
        join(build, [model, "model"])  # type: ignore[list-item]
