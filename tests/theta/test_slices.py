"""What a sub-GCN takes out of Θ, and how a round is merged: by the definition, for every model."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn.layout.axes import Layout, Segment, named_tensors
from gistgnn.layout.check import infer_layout
from gistgnn.nn import GAT, GCN, GraphSAGE
from gistgnn.partition import Blocks, Partition
from gistgnn.sampling import Batch, forward
from gistgnn.theta.slices import fill, give_moments, name_of, trained_tensors
from gistgnn.theta.theta import Theta
from tests.helpers.fitting import same
from tests.helpers.models import C, F, Stack, built, every_model, layout_of, tiny_graph
from tests.helpers.reference import merged, slice_of, zeroed
from tests.helpers.refusals import refused
from tests.theta.stores import OPTIMIZERS, theta_in_memory


class Split(NamedTuple):
    """A full model's Θ and its layout, and the blocks and modules of one round."""

    layout: Layout
    features: tuple[int, ...]
    theta: Theta
    blocks: list[Blocks]
    subs: list[nn.Module]


def sizes_of(blocks: Blocks) -> tuple[int, ...]:
    return tuple(len(block) for block in blocks)


def split(
    name: str, features: tuple[int, ...], m: int, whole_axes: set[int], kind: str, seed: int
) -> Split:
    layout = layout_of(name)
    full = built(name, features, seed)
    theta = theta_in_memory(
        layout,
        layout.widths(features),
        {n: t.detach().clone() for n, t in named_tensors(full).items()},
    )
    blocks = Partition(features, m, whole=whole_axes, kind=kind, seed=seed).blocks(0)
    subs = [built(name, sizes_of(sub_blocks), seed + 1) for sub_blocks in blocks]
    for i in theta.begin(0, blocks):
        fill(subs[i], theta.slice_of(i))
    return Split(layout, features, theta, blocks, subs)


def write_round(
    theta: Theta, blocks: list[Blocks], subs: list[nn.Module], optimizers: Sequence[Any] = ()
) -> None:
    for i in theta.begin(0, blocks):
        theta.keep(i, trained_tensors(subs[i], optimizers[i] if optimizers else None))
    theta.commit(0.0)


@st.composite
def splits(draw: st.DrawFn, name: str, most: int = 9) -> Split:
    axes = len(layout_of(name).units)
    m = draw(st.integers(1, 4))
    features = tuple(draw(st.lists(st.integers(m, max(m, most)), min_size=axes, max_size=axes)))
    whole_axes = draw(st.sets(st.integers(0, axes - 1)))
    kind = draw(st.sampled_from(["balanced", "categorical"]))
    if kind == "categorical":
        features = tuple(d + 2 * m for d in features)
    return split(name, features, m, whole_axes, kind, draw(st.integers(0, 99)))


def move(sub: nn.Module, seed: int) -> None:
    """Change every tensor of a sub-GCN, as training would."""
    torch.manual_seed(seed)
    for tensor in named_tensors(sub).values():
        with torch.no_grad():
            tensor += torch.randn_like(tensor) if tensor.is_floating_point() else 7


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_slices_and_merges_are_those_of_the_definition(data: st.DataObject) -> None:
    """What one sub-GCN holds is copied exactly, what several hold is averaged.

    Sub-GCNs that have not changed leave Θ as it was, bit for bit.
    """
    case = data.draw(splits(data.draw(st.sampled_from(list(every_model()))), 5))
    before = case.theta.copy()
    write_round(case.theta, case.blocks, case.subs)
    assert all(torch.equal(case.theta.place.tensors[n], before[n]) for n in before)
    for i, sub in enumerate(case.subs):
        for n, tensor in named_tensors(sub).items():
            assert torch.equal(
                tensor, slice_of(case.layout, n, before[n], case.blocks[i], case.features)
            )
        move(sub, i)
    # The slices are copies, so Θ has not moved with them.
    assert all(torch.equal(case.theta.place.tensors[n], old) for n, old in before.items())
    write_round(case.theta, case.blocks, case.subs)
    for n, old in before.items():
        values = [named_tensors(sub)[n].detach() for sub in case.subs]
        expected = merged(case.layout, n, old, values, case.blocks, case.features)
        actual = case.theta.place.tensors[n]
        if case.theta.place.slices.disjoint(n):
            assert torch.equal(actual, expected)
        else:
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_flags_are_not_averaged() -> None:
    flags = {"flag": torch.tensor(True), "mask": torch.tensor([True, False, True, False])}
    theta = theta_in_memory(
        Layout({"flag": (), "mask": ((Segment(0),),)}, (1,)),
        (4,),
        {n: f.clone() for n, f in flags.items()},
    )
    subs = [nn.Module(), nn.Module()]
    for sub, indices in zip(subs, ([0, 3], [1, 2]), strict=True):
        sub.register_buffer("flag", flags["flag"])
        sub.register_buffer("mask", flags["mask"][indices])
    write_round(theta, [(torch.tensor([0, 3]),), (torch.tensor([1, 2]),)], subs)
    assert same(theta.place.tensors, flags)


MOVED = ("graphsage batch 2", "gat none 2", "jumping over x", "residual", "features")


@settings(deadline=None, max_examples=30)
@given(data=st.data(), name=st.sampled_from(MOVED), optimizer=st.sampled_from(sorted(OPTIMIZERS)))
def test_moments_are_sliced_and_merged_as_the_parameters(
    data: st.DataObject, name: str, optimizer: str
) -> None:
    case = data.draw(splits(name, 5))
    layout = case.layout
    m = len(case.subs)
    moments: dict[str, Tensor] = {}
    # One round makes the moments, another with other blocks goes on from them.
    for number in range(2):
        whole_axes = {
            axis
            for axis, (block, size) in enumerate(zip(case.blocks[0], case.features, strict=True))
            if len(block) == size
        }
        blocks = Partition(case.features, m, whole=whole_axes, seed=5).blocks(number)
        subs = [built(name, sizes_of(sub_blocks)) for sub_blocks in blocks]
        optimizers = [OPTIMIZERS[optimizer](sub.parameters()) for sub in subs]
        case.theta.begin(number, blocks)
        for i, (sub_blocks, sub, opt) in enumerate(zip(blocks, subs, optimizers, strict=True)):
            give_moments(sub, opt, case.theta.moments_of(i))
            for key, value in trained_tensors(sub, opt).items():
                if key.endswith("/step"):
                    assert value == number
                elif key.startswith("moments/"):
                    assert torch.equal(
                        value,
                        slice_of(layout, name_of(key), moments[key], sub_blocks, case.features),
                    )
            torch.manual_seed(10 * number + i)
            for parameter in sub.parameters():
                parameter.grad = torch.randn_like(parameter)
            opt.step()  # in place: Θ's moments are copied
        assert all(
            torch.equal(case.theta.place.moments[key], value) for key, value in moments.items()
        )
        write_round(case.theta, blocks, subs, optimizers)
        states = [trained_tensors(sub, opt) for sub, opt in zip(subs, optimizers, strict=True)]
        for key in (key for key in states[0] if key.startswith("moments/")):
            actual = case.theta.place.moments[key]
            if key.endswith("/step"):
                assert actual == number + 1
                continue
            old = moments.get(key, torch.zeros_like(case.theta.place.tensors[name_of(key)]))
            expected = merged(
                layout, name_of(key), old, [s[key] for s in states], blocks, case.features
            )
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
            moments[key] = actual.clone()
    assert bool(case.theta.place.moments) == (optimizer != "sgd")


def test_a_module_that_does_not_fit_is_refused() -> None:
    case = split("gcn none 2", (8, 6), 2, set(), "balanced", 0)
    before = case.theta.copy()
    for widths, classes, parts in (
        ((5, 3), C, ["'convs.0.weight'", "[5, 7]", "[4, 7]"]),
        ((4, 3), C + 1, ["'convs.2.weight'", "[4, 3]", "[3, 3]"]),
        ((4, 3, 3), C, ["the sub-GCN has 'convs.3.bias', which its slice of Θ lacks"]),
    ):
        with refused(*parts):
            fill(GCN(F, widths, classes), case.theta.slice_of(0))
    assert all(torch.equal(case.theta.place.tensors[n], before[n]) for n in before)


# By the definition, a sub-GCN is the full model in which everything outside its blocks is zero.

DEFINED: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "gcn": lambda w: GCN(w[0], w[1:], C),
    "graphsage": lambda w: GraphSAGE(w[0], w[1:], C),
    "gat": lambda w: GAT(w[0], w[1:], C, heads=3),
    "pyg sage max": lambda w: Stack(w[1:], lambda a, b: pyg.SAGEConv(a, b, aggr="max"), w[0]),
    "pyg gat": lambda w: Stack(w[1:], lambda a, b: pyg.GATConv(a, b, heads=2, concat=False), w[0]),
}


@pytest.mark.parametrize("name", DEFINED)
@settings(deadline=None, max_examples=12)
@given(
    whole_axes=st.sampled_from([set(), {0}]),
    extra=st.lists(st.integers(0, 5), min_size=2, max_size=4),
    m=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_a_sub_gcn_is_theta_with_the_rest_zero(
    name: str, whole_axes: set[int], extra: list[int], m: int, seed: int
) -> None:
    widths = tuple(m + e for e in extra)
    build = DEFINED[name]
    layout = _definition_layout(name, len(extra))
    graph = tiny_graph(12, seed)
    torch.manual_seed(seed)
    full = build(widths).double().eval()
    for tensor in named_tensors(full).values():
        tensor.detach().normal_()
    theta = theta_in_memory(
        layout, widths, {n: t.detach().clone() for n, t in named_tensors(full).items()}
    )
    x = torch.randn(12, widths[0], dtype=torch.float64)
    batch = Batch(x, graph.edge_index, graph.y, graph.train)
    blocks = Partition(widths, m, whole=whole_axes, seed=seed).blocks(0)
    theta.begin(0, blocks)
    for i, sub_blocks in enumerate(blocks):
        sub = build(sizes_of(sub_blocks)).double().eval()
        fill(sub, theta.slice_of(i))
        actual = forward(sub, batch.select_columns(sub_blocks[0]))
        rest_zero = zeroed(layout, theta.place.tensors, sub_blocks, widths)
        with torch.no_grad():
            for n, tensor in named_tensors(full).items():
                tensor.copy_(rest_zero[n])
        seen = torch.zeros_like(x)
        seen[:, sub_blocks[0]] = x[:, sub_blocks[0]]
        expected = forward(full, Batch(seen, graph.edge_index, graph.y, graph.train))
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@cache
def _definition_layout(name: str, axes: int) -> Layout:
    return infer_layout(DEFINED[name], tuple(range(6, 6 + axes)), shared=False, input_axis=0)
