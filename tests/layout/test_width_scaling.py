"""muP by the inferred layout.

Roles, factors, and sizes of features that do not depend on the width.
"""

import logging
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import WidthScaling
from gistgnn.layout.check import infer_layout
from gistgnn.nn import GAT, GCN, GIN, GraphSAGE
from gistgnn.sampling import Batch, forward
from tests.helpers.models import every_model
from tests.helpers.refusals import refused

FEATURES = 12
CLASSES = 5
NODES = 48
Build = Callable[[Any], nn.Module]


class RelationalNet(nn.Module):
    """Two axes, weights in the order [relation, in, out], and edge types."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.first = pyg.RGCNConv(FEATURES, widths[0], 3)
        self.second = pyg.RGCNConv(widths[0], widths[1], 3)
        self.out = nn.Linear(widths[1], CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        h = self.first(x, edge_index, edge_type).relu()
        return self.out(self.second(h, edge_index, edge_type).relu())


class ResidualNet(nn.Module):
    """GCN2 layers, which share one width with the embedding that they all add."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, width)
        self.convs = nn.ModuleList(pyg.GCN2Conv(width, 0.1, 0.5, layer + 1) for layer in range(3))
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = first = self.embed(x).relu()
        for conv in self.convs:
            h = conv(h, first, edge_index).relu()
        return self.out(h)


class TwoHeads(nn.Module):
    """A user's own model with two readouts.

    It has a gate that sums over the width, weights [in, out], and a norm.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.enter = nn.Linear(FEATURES, widths[0])
        self.norm = nn.LayerNorm(widths[0])
        self.gate = nn.Parameter(torch.randn(widths[0]) / math.sqrt(widths[0]))
        self.middle = nn.Parameter(torch.randn(widths[0], widths[1]) / math.sqrt(widths[0]))
        self.first_readout = nn.Linear(widths[0], CLASSES)
        self.second_readout = nn.Linear(widths[1], CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.norm(self.enter(x)).relu()
        gate = torch.sigmoid(h @ self.gate).unsqueeze(1)
        source, target = edge_index
        neighbours = torch.zeros_like(h).index_add(0, target, h[source])
        deep = ((h + neighbours) @ self.middle).relu()
        return gate * self.first_readout(h) + self.second_readout(deep)


def pna(width: int) -> nn.Module:
    aggregators = ["mean", "max", "std"]
    scalers = ["identity", "attenuation"]
    degrees = torch.tensor([1, 5, 9, 3])
    return pyg.PNA(
        FEATURES, width, 3, CLASSES, aggregators=aggregators, scalers=scalers, deg=degrees
    )


# Each with widths as a tuple of two, or as one integer for all layers.
MODELS: dict[str, tuple[Build, int]] = {
    "GCN": (lambda widths: GCN(FEATURES, widths, CLASSES), 2),
    "GraphSAGE": (lambda widths: GraphSAGE(FEATURES, widths, CLASSES, norm="layer"), 2),
    "GIN": (lambda widths: GIN(FEATURES, widths, CLASSES, norm="layer"), 2),
    "GAT": (lambda widths: GAT(FEATURES, widths, CLASSES, heads=2), 2),
    "PyG's GCN": (lambda width: pyg.GCN(FEATURES, width, 3, CLASSES), 0),
    "PyG's GAT": (lambda width: pyg.GAT(FEATURES, width, 3, CLASSES, heads=2), 0),
    "PyG's GIN": (lambda width: pyg.GIN(FEATURES, width, 3, CLASSES, norm="layer"), 0),
    "PNA": (pna, 0),
    "GCN2": (ResidualNet, 0),
    "own": (TwoHeads, 2),
}


def widths_of(name: str, width: int) -> Any:
    layers = MODELS[name][1]
    return (width,) * layers if layers else width


def small_graph() -> Batch:
    """A graph whose labels can be learned from the features of a node and of its neighbours."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, FEATURES, generator=generator)
    source = torch.randint(NODES, (4 * NODES,), generator=generator)
    target = torch.randint(NODES, (4 * NODES,), generator=generator).sort().values
    neighbours = torch.zeros_like(x).index_add(0, target, x[source])
    labels = (x + neighbours)[:, :CLASSES].argmax(dim=1)
    return Batch(x, torch.stack([source, target]), labels, torch.arange(NODES))


BATCH = small_graph()
COORDINATE_WIDTHS = (64, 256, 1024)
STEPS = 5
SEEDS = 2


def features_of(model: nn.Module) -> dict[str, Tensor]:
    """Return what every module gives for the small graph, by its name; "" is the output."""
    features: dict[str, Tensor] = {}
    handles = []
    for name, module in model.named_modules():

        def keep(_: nn.Module, __: Any, out: Any, name: str = name) -> None:
            if isinstance(out, Tensor) and len(out) == NODES:
                features[name] = out.detach()

        handles.append(module.register_forward_hook(keep))
    features[""] = forward(model, BATCH).detach()
    for handle in handles:
        handle.remove()
    return features


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(model, BATCH), BATCH.y).backward()
        optimizer.step()


def coordinates(
    name: str, width: int, seed: int, rule: str, scaled: bool
) -> dict[str, tuple[float, float]]:
    """Train for a few steps.

    Return the size of every module's features at first, and the size of their change.
    """
    build = MODELS[name][0]
    widths = widths_of(name, width)
    torch.manual_seed(seed)
    model = build(widths).eval()
    lr = 0.01 if rule == "adam" else 0.1
    groups: Any = model.parameters()
    if scaled:
        scaling = WidthScaling(build, widths, base_width=COORDINATE_WIDTHS[0])
        groups = scaling.parameter_groups(scaling.scale(model), lr, rule=rule)
    kind = torch.optim.Adam if rule == "adam" else torch.optim.SGD
    first = features_of(model)
    train(model, kind(groups, lr=lr), STEPS)
    last = features_of(model)
    size = {key: float(values.square().mean().sqrt()) for key, values in first.items()}
    return {
        key: (size[key], float((last[key] - first[key]).square().mean().sqrt())) for key in first
    }


def growth_with_width(name: str, rule: str, scaled: bool) -> dict[str, tuple[float, float]]:
    """Return the exponents by which sizes and changes grow with the width, by module."""
    widths = (COORDINATE_WIDTHS[0], COORDINATE_WIDTHS[-1])
    means = []
    for width in widths:
        runs = [coordinates(name, width, seed, rule, scaled) for seed in range(SEEDS)]
        means.append({key: mean_logarithms([run[key] for run in runs]) for key in runs[0]})
    span = math.log(widths[1] / widths[0])
    narrow, wide = means
    growth = {}
    for key, (size, change) in narrow.items():
        wide_size, wide_change = wide[key]
        growth[key] = ((wide_size - size) / span, (wide_change - change) / span)
    return growth


def mean_logarithms(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    sizes = [math.log(max(size, 1e-12)) for size, _ in pairs]
    changes = [math.log(max(change, 1e-12)) for _, change in pairs]
    return sum(sizes) / len(sizes), sum(changes) / len(changes)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MODELS)
def test_features_and_their_changes_have_the_same_size_at_every_width(name: str) -> None:
    """The coordinate check of Yang et al., at widths that differ by a factor of 16."""
    scaled = growth_with_width(name, "adam", True)
    # The variance of two or three neighbours is a small difference of large numbers.
    scaled = {module: growth for module, growth in scaled.items() if "var_aggr" not in module}
    for size, change in scaled.values():
        assert size < 0.15
        assert abs(change) < 0.3
    hidden = [size for size, _ in scaled.values() if size > -0.15]
    assert len(hidden) >= len(scaled) / 3  # readouts alone begin smaller
    plain = growth_with_width(name, "adam", False)
    assert max(max(abs(size), abs(change)) for size, change in plain.values()) > 0.4


# Of the other models, the output changes alike at every width in any case.
GROWING_WITHOUT_SCALING = ("GraphSAGE", "GIN", "GCN2")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MODELS)
def test_the_output_changes_alike_at_every_width_by_plain_gradient_descent(name: str) -> None:
    _, change = growth_with_width(name, "sgd", True)[""]
    assert abs(change) < 0.3
    if name in GROWING_WITHOUT_SCALING:
        _, change = growth_with_width(name, "sgd", False)[""]
        assert change > 0.4


def roles_of(name: str, build: Build, widths: Any) -> dict[str, str]:
    scaling = WidthScaling(build, widths)
    return {parameter: scaling.role(parameter) for parameter, _ in build(widths).named_parameters()}


def test_roles_follow_from_the_layout() -> None:
    assert roles_of("relations", RelationalNet, (8, 6)) == {
        "first.weight": "input",
        "first.root": "input",
        "first.bias": "vector",
        "second.weight": "hidden",
        "second.root": "hidden",
        "second.bias": "vector",
        "out.weight": "readout",
        "out.bias": "vector",
    }
    two_heads = roles_of("own", TwoHeads, (8, 6))
    readouts = {name for name, role in two_heads.items() if role == "readout"}
    assert readouts == {"gate", "first_readout.weight", "second_readout.weight"}
    assert two_heads["middle"] == "hidden"
    assert {two_heads["norm.weight"], two_heads["norm.bias"], two_heads["enter.bias"]} == {"vector"}
    residual = roles_of("residual", ResidualNet, 8)
    assert [residual[f"convs.{layer}.weight1"] for layer in range(3)] == ["hidden"] * 3
    assert (residual["embed.weight"], residual["out.weight"]) == ("input", "readout")
    attention = roles_of("attention", MODELS["PyG's GAT"][0], 8)
    assert attention["convs.0.att_src"] == attention["convs.2.lin.weight"] == "readout"
    assert attention["convs.2.att_src"] == "vector"  # of the classes


# By hand, of Table 8: rates of Adam and of SGD, for widths 512 and 256 where the base is 128.
BY_HAND = {
    "first.weight": (1, 4),
    "first.root": (1, 4),
    "first.bias": (1, 4),
    "second.weight": (1 / 4, 2 / 4),
    "second.root": (1 / 4, 2 / 4),
    "second.bias": (1, 2),
    "out.weight": (1 / 2, 1 / 2),
    "out.bias": (1, 1),
}


@pytest.mark.parametrize(("rule", "column"), [("adam", 0), ("sgd", 1)])
def test_rates_are_those_of_the_paper_s_table(rule: Any, column: int) -> None:
    model = RelationalNet((512, 256))
    groups = WidthScaling(RelationalNet, (512, 256)).parameter_groups(
        model, 0.02, weight_decay=0.3, rule=rule
    )
    rates = {parameter: group for group in groups for parameter in group["params"]}
    assert len(rates) == len(BY_HAND)
    for name, parameter in model.named_parameters():
        factor = BY_HAND[name][column]
        assert rates[parameter]["lr"] == pytest.approx(0.02 * factor)
        assert rates[parameter]["lr"] * rates[parameter]["weight_decay"] == pytest.approx(
            0.02 * 0.3
        )


@pytest.mark.parametrize("model", ["GCN", "GraphSAGE", "PyG's GAT", "own"])
def test_initial_values_have_the_sizes_of_the_base_width(model: str) -> None:
    build = MODELS[model][0]
    base, wide = (dict(build(widths_of(model, width)).named_parameters()) for width in (128, 1024))
    scaling = WidthScaling(build, widths_of(model, 1024))
    scaled = dict(scaling.scale(build(widths_of(model, 1024))).named_parameters())
    has_norm = model in ("GraphSAGE", "own")  # its readout begins at a tenth
    factors = {"input": 1, "vector": 1, "hidden": 8**-0.5, "readout": (0.1 if has_norm else 1) / 8}
    for name, parameter in scaled.items():
        if parameter.numel() < 256:  # too few values for a deviation
            continue
        deviation = float(base[name].detach().std())
        if deviation == 0:
            assert torch.equal(parameter, wide[name])
        else:
            expected = deviation * factors[scaling.role(name)]
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.2)


def test_a_base_width_that_the_model_refuses_is_no_error() -> None:
    class Five(nn.Module):
        """Takes no width that 5 does not divide."""

        def __init__(self, width: int) -> None:
            super().__init__()
            assert width % 5 == 0
            self.enter = nn.Linear(FEATURES, width)
            self.out = nn.Linear(width, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.enter(x).relu())

    model = Five(640)
    before = model.out.weight.detach().clone()
    scaling = WidthScaling(Five, 640)
    assert torch.allclose(scaling.scale(model).out.weight, before / math.sqrt(5))
    assert [group["lr"] for group in scaling.parameter_groups(model, 0.5)] == pytest.approx(
        [0.5, 0.1]
    )


class Unknown(nn.Module):
    """Scores of queries and keys, divided by the root of the width.

    No tensor can be divided to get the mean.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = pyg.TransformerConv(FEATURES, width, heads=2)
        self.out = nn.Linear(2 * width, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.conv(x, edge_index).relu())


def test_a_model_whose_roles_cannot_be_told_keeps_plain_rates_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "gistgnn")
    scaling = WidthScaling(Unknown, 512)
    model = Unknown(512)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (group,) = scaling.parameter_groups(model, 0.02)
    assert group["lr"] == 0.02
    assert all(
        torch.equal(tensor, before[name])
        for name, tensor in scaling.scale(model).state_dict().items()
    )
    assert scaling.refusal is not None
    assert [record.message for record in caplog.records if "widths" in record.message] == [
        f"learning rates do not follow the widths: {scaling.refusal}"
    ]


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"base_width": 0}, "base_width"),
        ({"base_width": 1.5}, "base_width"),
        ({"widths": 0}, "widths"),
    ],
)
def test_bad_values_are_refused(arguments: dict[str, Any], culprit: str) -> None:
    with refused(culprit):
        WidthScaling(MODELS["PyG's GCN"][0], **{"widths": 8, **arguments})


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"lr": 0}, "lr"),
        ({"lr": 0.1, "rule": "lamb"}, "rule"),
        ({"lr": 0.1, "weight_decay": -1}, "weight_decay"),
    ],
)
def test_bad_groups_are_refused(arguments: dict[str, Any], culprit: str) -> None:
    build = MODELS["PyG's GCN"][0]
    with refused(culprit):
        WidthScaling(build, 8).parameter_groups(build(8), **arguments)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", list(every_model())[::4])
def test_the_roles_of_many_models_can_be_told(name: str) -> None:
    build, widths = every_model()[name]
    scaling = WidthScaling(build, widths)
    assert scaling.refusal is None
    roles = {scaling.role(parameter) for parameter, _ in build(widths).named_parameters()}
    assert {"input", "readout"} <= roles


def test_a_readout_of_several_layers_and_of_the_input_sums_over_all_of_them() -> None:
    build, _ = every_model()["jumping over x"]
    widths = (256, 512)
    scaling = WidthScaling(build, widths)
    assert scaling.role("out.lin.weight") == "readout"
    model = build(widths)
    rates = {
        id(parameter): group["lr"]
        for group in scaling.parameter_groups(model, 1.0)
        for parameter in group["params"]
    }
    inputs = model.out.lin.weight.shape[1] - 256 - 512
    assert rates[id(model.out.lin.weight)] == pytest.approx(
        (inputs + 2 * 128) / (inputs + 256 + 512)
    )


class Frozen(nn.Module):
    """Has random features that are not trained, and a table that lacks large ids."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.arange(float(width)), requires_grad=False)
        self.table = nn.Embedding(40, width)
        self.enter = nn.Linear(FEATURES, width)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        ids = x[:, 0].abs().long()
        return self.out((self.enter(x) + self.table(ids) + self.positions).relu())


def test_frozen_values_stay_and_a_model_that_refuses_large_inputs_is_scaled() -> None:
    scaling = WidthScaling(Frozen, 512)
    model = Frozen(512)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    scaling.scale(model)
    assert torch.equal(model.positions, before["positions"])
    torch.testing.assert_close(model.out.weight, before["out.weight"] / 2)
    assert scaling.refusal is None


def test_a_model_that_build_does_not_make_is_refused() -> None:
    scaling = WidthScaling(MODELS["GCN2"][0], 8)
    for work in (scaling.scale, lambda model: scaling.parameter_groups(model, 0.1)):
        with refused("'weight'", "build does not make"):
            work(nn.Linear(3, 2))


def test_input_features_as_an_axis_are_no_width() -> None:
    """Their number is that of the data at every base width, also where the layout alone says so."""

    def build(widths: Sequence[int]) -> nn.Module:
        return GCN(widths[0], widths[1:], CLASSES)

    widths = (FEATURES, 256, 256)
    layout = infer_layout(build, widths, shared=False, input_axis=0)
    model = build(widths)
    before = model.convs[0].weight.detach().clone()
    for scaling in (
        WidthScaling(build, widths, input_axis=0),
        WidthScaling(build, widths, layout=layout),
    ):
        scaled = scaling.scale(deepcopy(model)).convs[0].weight
        # Glorot's variance is 2 / (inputs + outputs), and the base width is 128.
        expected = math.sqrt((FEATURES + 256) / (FEATURES + 128))
        assert float((scaled / before).mean()) == pytest.approx(expected, rel=0.1)
