from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn.layout.axes import Layout, Segment, named_tensors
from gistgnn.nn import GCN
from gistgnn.partition import Blocks, Partition
from gistgnn.theta.memory import InMemory
from gistgnn.theta.trained import Trained
from tests.helpers.models import C, F, built, every_model, layout_of, some_models
from tests.helpers.reference import held_positions, merged, slice_of
from tests.helpers.refusals import refused

examples = settings(deadline=None, max_examples=6)
few = settings(deadline=None, max_examples=4)


@dataclass
class Split:
    """A full model, its Θ, and the blocks and modules of one round."""

    name: str
    features: tuple[int, ...]
    theta: InMemory
    blocks: list[Blocks]
    subs: list[nn.Module]

    @property
    def layout(self) -> Layout:
        return self.theta.slices.layout


def split(name: str, features: tuple[int, ...], m: int, whole: set[int], kind: str, seed: int) -> Split:
    layout = layout_of(name)
    full = built(name, features, seed)
    theta = InMemory(layout, layout.widths(features), {n: t.detach().clone() for n, t in named_tensors(full).items()})
    blocks = Partition(features, m, whole=whole, kind=kind, seed=seed).blocks(0)
    subs = [built(name, [len(b) for b in own], seed + 1) for own in blocks]
    for i in theta.begin(0, blocks):
        theta.load(i, subs[i])
    return Split(name, features, theta, blocks, subs)


def put(theta: InMemory, blocks: list[Blocks], subs: list[nn.Module], optimizers: Sequence[Any] = ()) -> None:
    for i in theta.begin(0, blocks):
        theta.keep(i, Trained.of(subs[i], optimizers[i] if optimizers else None))
    theta.commit(0.0)


@st.composite
def splits(draw: st.DrawFn, name: str, most: int = 9) -> Split:
    axes = len(layout_of(name).units)
    m = draw(st.integers(1, 4))
    features = tuple(draw(st.lists(st.integers(m, max(m, most)), min_size=axes, max_size=axes)))
    whole = draw(st.sets(st.integers(0, axes - 1)))
    kind = draw(st.sampled_from(["balanced", "categorical"]))
    if kind == "categorical":
        features = tuple(d + 2 * m for d in features)
    return split(name, features, m, whole, kind, draw(st.integers(0, 99)))


def move(sub: nn.Module, seed: int) -> None:
    """Change every tensor of a sub-GCN, as training would."""
    torch.manual_seed(seed)
    for tensor in named_tensors(sub).values():
        with torch.no_grad():
            if tensor.is_floating_point():
                tensor += torch.randn_like(tensor)
            else:
                tensor += 7


@pytest.mark.parametrize("name", every_model())
@examples
@given(data=st.data())
def test_sub_gcns_merged_untouched_leave_theta_bit_identical(name: str, data: st.DataObject) -> None:
    case = data.draw(splits(name, 24))
    before = case.theta.copy()
    put(case.theta, case.blocks, case.subs)
    assert all(torch.equal(case.theta.tensors[n], before[n]) for n in before)


@pytest.mark.parametrize("name", some_models())
@few
@given(data=st.data())
def test_take_and_put_do_what_the_definition_says(name: str, data: st.DataObject) -> None:
    case = data.draw(splits(name, 5))
    before = case.theta.copy()
    for i, sub in enumerate(case.subs):
        for n, tensor in named_tensors(sub).items():
            assert torch.equal(tensor, slice_of(case.layout, n, before[n], case.blocks[i], case.features))
        move(sub, i)
    put(case.theta, case.blocks, case.subs)
    for n, old in before.items():
        values = [named_tensors(sub)[n].detach() for sub in case.subs]
        expected = merged(case.layout, n, old, values, case.blocks, case.features)
        torch.testing.assert_close(case.theta.tensors[n], expected, rtol=1e-5, atol=1e-6)


def test_what_one_sub_gcn_holds_is_copied_exactly() -> None:
    case = split("gcn none 2", (7, 5), 2, set(), "balanced", 3)
    for sub in case.subs:
        move(sub, 4)
    put(case.theta, case.blocks, case.subs)
    new = case.theta.tensors["convs.1.weight"]
    for own, sub in zip(case.blocks, case.subs, strict=True):
        assert torch.equal(new[own[1]][:, own[0]], named_tensors(sub)["convs.1.weight"])


def test_counters_and_flags() -> None:
    layout = Layout({"count": (), "flag": (), "mask": ((Segment(0),),)}, (1,))
    flags = {"flag": torch.tensor(True), "mask": torch.tensor([True, False, True, False])}
    theta = InMemory(layout, (4,), {"count": torch.tensor(10), **flags})
    subs = []
    for count, own in ((13, [0, 3]), (13, [1, 2])):
        sub = nn.Module()
        sub.register_buffer("count", torch.tensor(count))
        sub.register_buffer("flag", torch.tensor(True))
        sub.register_buffer("mask", flags["mask"][own])
        subs.append(sub)
    put(theta, [(torch.tensor([0, 3]),), (torch.tensor([1, 2]),)], subs)
    assert int(theta.tensors["count"]) == 13
    assert theta.tensors["flag"].dtype == torch.bool
    assert theta.tensors["flag"]
    assert theta.tensors["mask"].tolist() == [True, False, True, False]


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["graphsage batch 2", "gat none 2", "jumping over x", "residual", "features"])
@few
@given(data=st.data())
def test_moments_are_sliced_and_merged_as_the_parameters(name: str, optimizer: str, data: st.DataObject) -> None:
    case = data.draw(splits(name, 5))
    layout, m = case.layout, len(case.subs)
    kept: dict[str, dict[str, Tensor]] = {}
    for number in range(2):  # a round to make the moments, another with other blocks to go on from them
        whole = {a for a in range(len(case.features)) if len(case.blocks[0][a]) == case.features[a]}
        blocks = Partition(case.features, m, whole=whole, seed=5).blocks(number)
        subs = [built(name, [len(b) for b in own]) for own in blocks]
        optimizers = [OPTIMIZERS[optimizer](sub.parameters()) for sub in subs]
        case.theta.begin(number, blocks)
        for i, (own, sub, opt) in enumerate(zip(blocks, subs, optimizers, strict=True)):
            case.theta.load_moments(i, sub, opt)
            for n, parameter in sub.named_parameters():
                for key, value in opt.state[parameter].items():
                    if key == "step":
                        assert value == number
                    else:
                        assert torch.equal(value, slice_of(layout, n, kept[n][key], own, case.features))
            torch.manual_seed(10 * number + i)
            for parameter in sub.parameters():
                parameter.grad = torch.randn_like(parameter)
            opt.step()
        put(case.theta, blocks, subs, optimizers)
        for n in dict(subs[0].named_parameters()):
            states = [opt.state[dict(sub.named_parameters())[n]] for sub, opt in zip(subs, optimizers, strict=True)]
            for key in states[0]:
                found = case.theta.moments[n][key]
                if key == "step":
                    assert found == number + 1
                    continue
                old = kept.get(n, {}).get(key, torch.zeros_like(case.theta.tensors[n]))
                expected = merged(layout, n, old, [s[key] for s in states], blocks, case.features)
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
                kept.setdefault(n, {})[key] = found.clone()


def test_taken_moments_are_copies() -> None:
    """The sub-GCN's optimiser works in place; Θ's moments move only when they are put back."""
    case = split("features", (6,), 2, {0}, "balanced", 0)
    parameters = dict(case.subs[0].named_parameters())
    case.theta.moments.update(
        {n: {"step": torch.tensor(3.0), "exp_avg": torch.ones_like(p)} for n, p in parameters.items()}
    )
    optimizer = torch.optim.Adam(case.subs[0].parameters())
    case.theta.load_moments(0, case.subs[0], optimizer)
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()
    assert all(bool((v > 0).all()) for moments in case.theta.moments.values() for v in moments.values())


def test_plain_sgd_has_no_moments() -> None:
    case = split("features", (6,), 2, set(), "balanced", 0)
    optimizers = [torch.optim.SGD(sub.parameters(), lr=0.1) for sub in case.subs]
    for sub, optimizer in zip(case.subs, optimizers, strict=True):
        for parameter in sub.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    put(case.theta, case.blocks, case.subs, optimizers)
    assert all(not moments for moments in case.theta.moments.values())


def test_a_module_that_does_not_fit_is_refused() -> None:
    case = split("gcn none 2", (8, 6), 2, set(), "balanced", 0)
    before = case.theta.copy()
    with refused("'convs.0.weight'", "(5, 7)", "(4, 7)"):
        case.theta.load(0, GCN(F, (5, 3), C))
    with refused("'convs.2.weight'", "(4, 3)", "(3, 3)"):
        case.theta.load(0, GCN(F, (4, 3), C + 1))
    with refused("'convs.3.bias'", "not in both"):
        case.theta.load(0, GCN(F, (4, 3, 3), C))
    assert all(torch.equal(case.theta.tensors[n], before[n]) for n in before)


def test_take_copies_and_load_into_loads_all() -> None:
    case = split("gat batch 2", (6, 5), 2, set(), "balanced", 0)
    before = case.theta.copy()
    full = built(case.name, case.features, 9)
    case.theta.load_into(full)
    assert all(torch.equal(t, before[n]) for n, t in named_tensors(full).items())
    for module in (full, *case.subs):
        move(module, 1)
    assert all(torch.equal(case.theta.tensors[n], before[n]) for n in before)


def test_the_reference_itself() -> None:
    """[axis 0 of 3 | one fixed | axis 0 again], block {0, 2}."""
    dim = (Segment(0), Segment(None, 1), Segment(0))
    block = [torch.tensor([0, 2])]
    assert held_positions(dim, block, (3,)) == [0, 2, 3, 4, 6]
    layout = Layout({"w": (dim,)}, (1,))
    old = torch.arange(7.0)
    values = [torch.full((5,), 10.0), torch.full((3,), 20.0)]
    new = merged(layout, "w", old, values, [block, [torch.tensor([1])]], (3,))
    assert new.tolist() == [10, 20, 10, 15, 10, 20, 10]
    none_for_one = merged(layout, "w", old, values[:1], [block], (3,))
    assert none_for_one.tolist() == [10, 1, 10, 10, 10, 5, 10]
