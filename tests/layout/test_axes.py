from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gistgnn.layout.axes import Dim, Layout, Segment, candidate_layouts, construct, named_tensors
from gistgnn.layout.check import infer_layout
from gistgnn.nn import GCN
from tests.helpers.models import OURS, PYG, USERS, C, F, Stack
from tests.helpers.refusals import refused


def dim(*parts: str | int) -> Dim:
    """dim("0", "1", 7): axis 0, axis 1, then seven features of no axis."""
    return tuple(Segment(int(p)) if isinstance(p, str) else Segment(None, p) for p in parts)


def first(build: Callable[[Any], nn.Module], widths: int | tuple[int, ...]) -> Layout:
    shared = isinstance(widths, int)
    return next(candidate_layouts(build, (widths,) if isinstance(widths, int) else widths, shared=shared))


def test_gcn() -> None:
    layout = first(OURS["gcn"], (8, 6))
    assert layout.units == (1, 1)
    assert layout.dims == {
        "convs.0.weight": (dim("0"), dim(F)),
        "convs.0.bias": (dim("0"),),
        "convs.1.weight": (dim("1"), dim("0")),
        "convs.1.bias": (dim("1"),),
        "convs.2.weight": (dim(C), dim("1")),
        "convs.2.bias": (dim(C),),
    }


def test_graphsage_holds_two_copies_of_its_input_axis() -> None:
    dims = first(OURS["graphsage"], (8, 6)).dims
    assert dims["convs.0.weight"] == (dim("0"), dim(2 * F))
    assert dims["convs.1.weight"] == (dim("1"), dim("0", "0"))
    assert dims["convs.2.weight"] == (dim(C), dim("1", "1"))


def test_gat_holds_a_copy_for_each_head() -> None:
    layout = first(OURS["gat"], (8, 6))
    assert layout.units == (1, 1)  # a width counts the channels of one head
    assert layout.dims["convs.0.weight"] == (dim("0", "0"), dim(F))
    assert layout.dims["convs.0.source"] == layout.dims["convs.0.target"] == (dim(2), dim("0"))
    assert layout.dims["convs.1.weight"] == (dim("1", "1"), dim("0", "0"))
    assert layout.dims["convs.1.bias"] == (dim("1", "1"),)
    assert layout.dims["convs.2.weight"] == (dim(2 * C), dim("1", "1"))


def test_pyg_gat_divides_its_width_over_the_heads() -> None:
    layout = first(PYG["gat"], 12)
    assert layout.units == (2,)
    assert layout.features((12,)) == (6,)
    assert layout.widths((6,)) == (12,)
    assert layout.dims["convs.0.lin.weight"] == (dim("0", "0"), dim(F))
    assert layout.dims["convs.0.att_src"] == (dim(1), dim(2), dim("0"))
    assert layout.dims["convs.1.lin.weight"] == (dim("0", "0"), dim("0", "0"))


def test_lstm_holds_four_gates() -> None:
    dims = first(lambda w: PYG["gcn"](w, jk="lstm"), 12).dims
    assert dims["jk.lstm.weight_hh_l0"] == (dim(*["0"] * 12), dim("0", "0", "0"))  # hidden 3d/2, an axis is d/2
    assert dims["jk.att.weight"] == (dim(1), dim(*["0"] * 6))


def test_batch_norm_buffers_and_scalars() -> None:
    dims = first(USERS["features"][0], (11,)).dims
    assert dims["norm.running_var"] == (dim("0"),)
    assert dims["norm.num_batches_tracked"] == dims["scale"] == ()


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("jumping", "out.lin.weight", dim("0", "1")),
        ("jumping reversed", "out.lin.weight", dim("1", "0")),
        ("jumping over x", "out.lin.weight", dim("0", F, "1")),
        ("sage over a concatenation", "out.lin_r.weight", dim("0", "1")),
        ("copies of the whole", "out.weight", dim("0", "1", "0", "1")),
    ],
)
def test_the_order_in_a_concatenation_is_found(name: str, parameter: str, expected: Dim) -> None:
    build, widths = USERS[name]
    assert infer_layout(build, widths, shared=False).dims[parameter] == (dim(C), expected)  # type: ignore[arg-type]


def test_the_order_is_found_where_the_axes_are_equally_wide() -> None:
    build, _ = USERS["jumping reversed"]
    assert infer_layout(build, (8, 8), shared=False).dims["out.lin.weight"][1] == dim("1", "0")


def test_residual_weights_lie_along_one_axis_twice() -> None:
    assert first(*USERS["residual"]).dims["convs.0.lin.weight"] == (dim("0"), dim("0"))


def test_input_features_as_an_axis() -> None:
    def build(w: tuple[int, ...]) -> nn.Module:
        return Stack(w[1:], pyg.SAGEConv, in_features=w[0])

    layout = infer_layout(build, (9, 8), shared=False, input_axis=0)
    assert layout.dims["convs.0.lin_l.weight"] == (dim("1"), dim("0"))
    assert layout.carriers(0) == ["convs.0.lin_l.weight", "convs.0.lin_r.weight"]


def test_a_width_beside_fixed_features() -> None:
    """d // 2 + 1 at an even d is one feature of no axis beside an axis of d / 2."""

    def build(w: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(nn.Linear(F, w[0] // 2 + 1), nn.ReLU(), nn.Linear(w[0] // 2 + 1, C))

    layout = infer_layout(build, (12,), shared=False)
    assert layout.units == (2,)
    assert layout.dims["2.weight"][1] in (dim(1, "0"), dim("0", 1))


@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    parts=st.lists(st.sampled_from(["0", "1", 1, 3]), min_size=1, max_size=5),
    data=st.data(),
)
@settings(deadline=None, max_examples=60)
def test_positions(sizes: tuple[int, int], parts: list[str | int], data: st.DataObject) -> None:
    blocks = tuple(torch.tensor(sorted(data.draw(st.sets(st.integers(0, d - 1), min_size=1)))) for d in sizes)
    expected, offset = [], 0
    for part in parts:
        size = sizes[int(part)] if isinstance(part, str) else part
        expected += [offset + k for k in range(size) if isinstance(part, int) or k in blocks[int(part)].tolist()]
        offset += size
    layout = Layout({"w": (dim(*parts),)}, (1, 1))
    assert layout.positions(dim(*parts), blocks, sizes).tolist() == expected


def test_tied_parameters_are_given_once() -> None:
    shared = nn.Linear(3, 3)
    assert list(named_tensors(nn.Sequential(shared, nn.ReLU(), shared))) == ["0.weight", "0.bias"]


def test_construct() -> None:
    assert isinstance(construct(OURS["gcn"], (3, 4), shared=False), GCN)
    assert construct(nn.Identity, (3,), shared=True) is not None
    with refused("build(5) returned int", "torch.nn.Module"):
        construct(lambda width: width, (5,), shared=True)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_a_build_that_raises_is_refused(error: type[Exception]) -> None:
    def build(widths: tuple[int, ...]) -> nn.Module:
        raise error("two\nlines")

    with refused("build((12,))", error.__name__, "two"):
        first(build, (12,))


def test_a_dimension_that_is_no_sum_of_axes_is_refused() -> None:
    with refused("'0.weight'", "144", "width 0"):
        first(lambda w: nn.Sequential(nn.Linear(F, w[0] ** 2), nn.Linear(w[0] ** 2, C)), (12,))
    with refused("'0.weight'", "dimension of 7"):
        first(lambda w: nn.Sequential(nn.Linear(F, w[0] // 2 + 1), nn.Linear(w[0] // 2 + 1, C)), (13,))
    with refused("'0.weight'", "not a sum of axes"):
        first(lambda w: nn.Sequential(nn.Linear(F, w[0] * w[1]), nn.Linear(w[0] * w[1], C)), (4, 5))
    with refused("'0.weight'"):
        first(lambda w: nn.Sequential(nn.Linear(F, 100 - w[0]), nn.Linear(100 - w[0], C)), (12,))


def test_a_width_that_nothing_depends_on_is_refused() -> None:
    with refused("width 1 (5)", "remove it"):
        first(lambda w: OURS["gcn"](w[:1]), (12, 5))


def test_names_that_change_with_the_width_are_refused() -> None:
    def build(widths: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(*(nn.Linear(F, F) for _ in range(widths[0])))

    with refused("parameter '", ".bias'", "some widths only"):
        first(build, (4,))


def test_a_number_of_dimensions_that_changes_is_refused() -> None:
    class Changing(nn.Module):
        def __init__(self, widths: tuple[int, ...]) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.zeros([widths[0]] * (1 if widths[0] < 10 else 2)))

    with refused("parameter 'table' has 1 dimensions at some widths, 2 at others"):
        first(Changing, (6,))


def test_a_lazy_parameter_is_refused() -> None:
    with refused("parameter 'convs.0.lin", "is lazy", "-1"):
        first(lambda w: Stack(w, pyg.SAGEConv, in_features=-1), (8,))
