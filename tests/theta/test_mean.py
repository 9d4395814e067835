"""Θ as the mean of its sub-GCNs, as a regression needs it.

And narrow models that stand side by side in Θ.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn import GIST, Graph
from gistgnn.layout.axes import named_tensors
from gistgnn.layout.readout import cross_tensors, find_readout
from gistgnn.nn import GCN
from gistgnn.sampling import Batch, forward, whole_graph
from tests.helpers.fitting import GRAPH, fit, same, theta
from tests.helpers.models import OURS, C, every_model, layout_of
from tests.helpers.reference import held_positions
from tests.theta.stores import shaken, store, values

WHOLE = whole_graph(GRAPH)
DOUBLE = Batch(WHOLE.x.double(), WHOLE.edges, WHOLE.y, WHOLE.loss_nodes)
EXACT = (
    "gcn none 1",
    "gcn none 3",
    "gcn batch 2",
    "graphsage none 2",
    "graphsage batch 2",
    "pyg gcn None None",
    "pyg gcn None cat",
    "pyg gcn batch_norm max",
    "pyg graphsage None None",
    "pyg graphsage None cat",
    "jumping reversed",
    "copies of the whole",
    "features",
)
"""Models without a layer that mixes blocks nonlinearly."""
COPIED = [name for name in every_model() if name != "jumping over x"]
"""With one, or with ReLU after the readout, as GIN has, models are exact where the parts are
copies.
"""
examples = settings(deadline=None, max_examples=12)
three_widths = st.lists(st.integers(8, 13), min_size=3, max_size=3)
seeds = st.integers(0, 99)


@cache
def built(name: str, widths: tuple[int, ...], m: int) -> GIST:
    build, usual_widths = every_model()[name]
    if isinstance(usual_widths, int):
        return GIST(lambda w: build(w).double(), widths[0], m)
    return GIST(lambda w: build(w).double(), widths[: len(usual_widths)], m)


def begun(name: str, widths: Sequence[int], m: int, seed: int) -> GIST:
    """A model that begins as the mean of m sub-GCNs; `widths` are as many as a model may have."""
    gist = built(name, tuple(widths), m)
    gist.seed = gist.partition.seed = seed
    gist.begin_run(averages=True)
    return gist


def output(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return forward(model.eval(), DOUBLE)


def close(actual: Tensor, expected: Tensor) -> bool:
    return bool((actual - expected).abs().max() <= 1e-9 * expected.abs().max())


def held_entries(
    gist: GIST, name: str, blocks: Sequence[Tensor], features: Sequence[int]
) -> tuple[Tensor, ...]:
    """The index of the entries of a tensor of Θ that a sub-GCN with these blocks holds."""
    rows = [torch.tensor(held_positions(dim, blocks, features)) for dim in gist.layout.dims[name]]
    return torch.meshgrid(*rows, indexing="ij") if rows else ()


def tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in named_tensors(model).items()}


# The first tests are of a mean of sub-GCNs.


@examples
@given(st.sampled_from(EXACT), three_widths, st.sampled_from([1, 2, 3, 4]), seeds)
def test_writing_sub_gcns_back_changes_nothing(
    name: str, widths: list[int], m: int, seed: int
) -> None:
    gist = begun(name, widths, m, seed)
    before = theta(gist)
    for _ in range(3):
        gist.begin_round().aggregate()
    for key, tensor in theta(gist).items():
        torch.testing.assert_close(tensor, before[key], rtol=1e-12, atol=0)


@examples
@given(st.sampled_from(EXACT), three_widths, st.sampled_from([2, 3, 4]), seeds)
def test_sub_gcns_are_slices_of_theta_of_which_sums_over_features_are_scaled(
    name: str, widths: list[int], m: int, seed: int
) -> None:
    """What sums over split features has m times the values of Θ.

    A sub-GCN sums over a share of the features alone.
    """
    gist = begun(name, widths, m, seed)
    features = gist.theta.place.slices.features
    split = gist.partition.split
    spec = gist.full_spec
    scaled = {*cross_tensors(gist.layout, split)}
    scaled |= {*find_readout(gist.build, spec.widths, gist.layout, split)}
    full = theta(gist)
    round_ = gist.begin_round()
    assert scaled
    for sub, blocks in zip(round_, round_.blocks, strict=True):
        for key, tensor in tensors(sub).items():
            entries = full[key][held_entries(gist, key, blocks, features)]
            factor = m if key in scaled and tensor.is_floating_point() else 1
            torch.testing.assert_close(tensor, entries * factor, rtol=1e-12, atol=0)


@pytest.mark.parametrize("m", [2, 4])
def test_sub_gcns_begin_with_the_scale_of_narrow_models(m: int) -> None:
    """What an initialiser gives follows from the fan-in, which is that of a narrow model."""
    width = 512
    gist = GIST(OURS["gcn"], (width, width), m, width_scaling="none", regression=True)
    gist.begin_run(averages=True)
    narrow = tensors(OURS["gcn"]((width // m, width // m)))
    (first, *_) = gist.begin_round()
    for name, tensor in tensors(first).items():
        if tensor.dim() == 2 and "convs.0" not in name:  # the first layer sums over input features
            assert float(tensor.std() / narrow[name].std()) == pytest.approx(1, rel=0.1), name


def regression_graph() -> Graph:
    targets = GRAPH.x @ torch.linspace(-1, 1, GRAPH.num_features)
    splits = {name: getattr(GRAPH, name) for name in ("train", "val", "test")}
    return Graph.build(GRAPH.x, GRAPH.edge_index, targets, **splits, regression=True)


NUMBERS = regression_graph()


def one_output(widths: Any) -> nn.Module:
    return GCN(NUMBERS.num_features, widths, 1)


def trained_by_hand(gist: GIST, rounds: int) -> dict[str, Tensor]:
    """Θ after some rounds of a user's own loop, in each of which every sub-GCN takes two steps."""
    for round_ in gist.rounds(rounds):
        for sub in round_:
            optimizer = torch.optim.Adam(gist.parameter_groups(sub, lr=0.02))
            for _ in range(2):
                optimizer.zero_grad()
                outputs = sub(NUMBERS.x, NUMBERS.edge_index)[NUMBERS.train]
                functional.mse_loss(outputs, NUMBERS.y[NUMBERS.train].view(-1, 1)).backward()
                optimizer.step()
    return theta(gist)


@pytest.mark.parametrize("declared", [False, True])
def test_a_loop_after_a_fit_has_the_scales_of_the_run(declared: bool) -> None:
    """Also where the model was not told beforehand that targets are numbers."""
    fitted = GIST(one_output, (8, 12), 4, regression=declared)
    fit(fitted, NUMBERS, epochs=24, lr=0.02)
    rounds = fitted.next_round
    begun = GIST(one_output, (8, 12), 4, regression=True)
    begun.theta.place.tensors.update(theta(fitted))  # type: ignore[attr-defined]
    begun.next_round = rounds
    for sub, expected in zip(fitted.begin_round(), begun.begin_round(), strict=True):
        assert same(tensors(sub), tensors(expected))
    assert same(trained_by_hand(fitted, 2), trained_by_hand(begun, 2))


def test_a_run_on_classes_after_one_on_numbers_has_no_scales() -> None:
    """And the other way round: each begins as in a model of its own."""
    classes = Graph.build(
        NUMBERS.x,
        NUMBERS.edge_index,
        (NUMBERS.y.view(-1) > 0).long(),
        train=NUMBERS.train,
        val=NUMBERS.val,
        test=NUMBERS.test,
        num_classes=2,
    )

    def make() -> GIST:
        return GIST(lambda widths: GCN(NUMBERS.num_features, widths, 2), (8, 12), 4)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.mse_loss(outputs, targets.view(-1, 1).expand_as(outputs))

    def error(outputs: Tensor, targets: Tensor) -> Tensor:
        return -(outputs - targets.view(-1, 1)).abs().mean()

    runs: list[Callable[[GIST], Any]] = [
        lambda gist: fit(gist, classes, epochs=24),
        lambda gist: fit(gist, NUMBERS, epochs=24, loss=loss, metric=error),
    ]
    alone = []
    for run in runs:
        gist = make()
        run(gist)
        alone.append((theta(gist), [tensors(sub) for sub in gist.begin_round()]))
    for order in ([1, 0], [0, 1, 0, 1]):
        gist = make()
        for kind in order:
            runs[kind](gist)
            expected, expected_subs = alone[kind]
            assert same(theta(gist), expected)
        for sub, expected_sub in zip(gist.begin_round(), expected_subs, strict=True):
            assert same(tensors(sub), expected_sub)


def test_a_round_of_a_mean_is_that_of_narrow_models_in_torch_alone() -> None:
    """Each sub-GCN trains as a model of its own.

    Θ has its values; those that sum over split features are divided by m.
    """
    m = 4
    gist = GIST(one_output, (8, 12), m, width_scaling="none")
    gist.begin_run(averages=True)
    before = theta(gist)
    scaled = {"convs.1.weight", "convs.2.weight"}
    blocks = gist.blocks(0)
    fit(gist, NUMBERS, epochs=2 * m, lr=0.02)  # one round
    assert gist.next_round == 1
    merged = theta(gist)
    bias = list[Tensor]()
    for sub_blocks in blocks:
        narrow = one_output([len(block) for block in sub_blocks])
        entries_of = {key: held_entries(gist, key, sub_blocks, (8, 12)) for key in before}
        with torch.no_grad():
            for key, tensor in named_tensors(narrow).items():
                entries = before[key][entries_of[key]]
                tensor.copy_(entries * m if key in scaled else entries)
        optimizer = torch.optim.Adam(narrow.parameters(), lr=0.02)
        for _ in range(2):
            optimizer.zero_grad()
            outputs = narrow(NUMBERS.x, NUMBERS.edge_index)[NUMBERS.train]
            functional.mse_loss(outputs, NUMBERS.y[NUMBERS.train].view(-1, 1)).backward()
            optimizer.step()
        for key, tensor in tensors(narrow).items():
            if key == "convs.2.bias":  # all sub-GCNs have it
                bias.append(tensor)
                continue
            entries = merged[key][entries_of[key]]
            torch.testing.assert_close(
                entries, tensor / m if key in scaled else tensor, rtol=1e-4, atol=1e-6
            )
    torch.testing.assert_close(
        merged["convs.2.bias"], torch.stack(bias).mean(dim=0), rtol=1e-4, atol=1e-6
    )


# The other tests are of narrow models side by side.


def parts_of(gist: GIST, *, alike: bool = False) -> list[nn.Module]:
    """Narrow models of the widths of the first blocks, with random values, or all with the same."""
    models = []
    for i, blocks in enumerate(gist.blocks(0)):
        torch.manual_seed(0 if alike else i)
        widths = gist.layout.widths(map(len, blocks))
        model = gist.build(widths[0] if gist.shared else widths)
        with torch.no_grad():
            for tensor in named_tensors(model).values():
                # A scalar multiplies all outputs: it stays alike in all models.
                if tensor.is_floating_point() and tensor.dim():
                    tensor.copy_(torch.rand_like(tensor) + 0.1 * (tensor.dim() == 1))
        models.append(model)
    return models


def joined(gist: GIST, parts: Sequence[nn.Module]) -> nn.Module:
    asked = list[int]()

    def tensors_of(i: int) -> dict[str, Tensor]:
        asked.append(i)
        return tensors(parts[i])

    gist.join_parts(tensors_of, len(parts))
    assert sorted(asked) == list(range(len(parts)))
    return gist.model()


@examples
@given(st.sampled_from(EXACT), three_widths, st.sampled_from([1, 2, 3, 4]), seeds)
def test_joined_parts_are_the_mean_of_their_outputs(
    name: str, widths: list[int], m: int, seed: int
) -> None:
    gist = begun(name, widths, m, seed)
    parts = parts_of(gist)
    expected = torch.stack([output(part) for part in parts]).mean(dim=0)
    assert close(output(joined(gist, parts)), expected)


@pytest.mark.long
@examples
@given(
    st.sampled_from(COPIED), st.tuples(*[st.integers(2, 5)] * 3), st.sampled_from([2, 3, 4]), seeds
)
def test_joined_copies_have_the_output_of_one_of_them(
    name: str, sizes: tuple[int, ...], m: int, seed: int
) -> None:
    widths = [units * m * size for units, size in zip(layout_of(name).units, sizes, strict=False)]
    gist = begun(name, widths, m, seed)
    parts = parts_of(gist, alike=True)
    assert close(output(joined(gist, parts)), output(parts[0]))


def outside(gist: GIST, name: str) -> Tensor:
    """The entries of a tensor that no part has."""
    features = gist.theta.place.slices.features
    tensor = values(gist.theta)[name]
    mask = torch.ones_like(tensor, dtype=torch.bool)
    for blocks in gist.blocks(0):
        mask[held_entries(gist, name, blocks, features)] = False
    return tensor[mask]


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_joined_parts_take_the_place_of_any_theta(kind: str, tmp_path: Path) -> None:
    """After other rounds, in every store.

    Weights between parts are zero, and the model goes on in rounds.
    """

    def make(kind: str = "memory") -> GIST:
        return GIST(
            lambda w: OURS["gcn"](w, norm="batch"), (8, 12), 4, seed=3, store=store(kind, tmp_path)
        )

    gist = make(kind)
    expected = make()
    shaken(gist, 3)
    parts = parts_of(gist)
    for trainer in (gist, expected):
        joined(trainer, parts)
    assert same(values(gist.theta), values(expected.theta))
    assert gist.next_round == gist.theta.place.round == 1
    weights = outside(gist, "convs.1.weight")
    assert len(weights) == 8 * 12 - 4 * 2 * 3
    assert not weights.count_nonzero()
    assert same(tensors(gist.theta.full_model(gist.trained_spec, best=True)), tensors(gist.model()))
    for trainer in (gist, expected):
        shaken(trainer, 2)
    assert same(values(gist.theta), values(expected.theta))
    assert gist.model()(GRAPH.x, GRAPH.edge_index).shape == (GRAPH.num_nodes, C)
