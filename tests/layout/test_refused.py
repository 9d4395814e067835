"""What has no layout is refused in one line."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.nn import GraphSAGE
from tests.helpers.fitting import fit
from tests.helpers.models import OURS, PYG, C, F, Stack
from tests.helpers.refusals import refused

from .test_layout import Build, through


class Hidden(nn.Module):
    """One hidden layer, a function of its features, and one of its output."""

    def __init__(
        self, widths: Sequence[int], between: Any = lambda h: h, then: Any = lambda out: out
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(F, widths[0])
        self.leave = nn.Linear(widths[0], C)
        self.between = between
        self.then = then

    def forward(self, x: Tensor) -> Any:
        return self.then(self.leave(self.between(self.enter(x).relu())))


class PerNode(nn.Embedding):
    """Has a row for every node of one graph."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.weight


class Table(nn.Module):
    """Has more dimensions at larger widths."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros([widths[0]] * (1 if widths[0] < 10 else 2)))


def raising(error: type[Exception]) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error("two\nlines")

    return function


def behind(inner: Callable[[int], int]) -> Build:
    """A hidden layer of the width, and one as wide as a function of it."""
    return lambda w: nn.Sequential(
        nn.Linear(F, *w), nn.ReLU(), nn.Linear(*w, inner(*w)), nn.Linear(inner(*w), C)
    )


BY_POSITION: list[Callable[[Tensor], Tensor]] = [
    lambda h: torch.cat([h[:, :1].tanh(), h[:, 1:]], dim=1),
    lambda h: h + h.roll(1, dims=1),
    lambda h: h.sort(dim=1).values,
    lambda h: (
        h.view(len(h), 2, -1).softmax(2).view(len(h), -1) if h.shape[1] % 2 == 0 else h.cumsum(1)
    ),
]
REFUSED: list[tuple[Any, Any, list[str]]] = [
    *(
        (partial(Hidden, between=between), (12,), ["weight'", "cannot be confirmed", "width 0"])
        for between in BY_POSITION
    ),
    (
        pyg.models.GCN(F, 8, 2, C),
        8,
        ["build is a GCN, a model", "expected a function", "lambda widths"],
    ),
    ("gcn", 8, ["build is a str; expected a function"]),
    (lambda width: width, 5, ["build(5) returned int", "torch.nn.Module"]),
    (raising(TypeError), (12,), ["build((12,))", "TypeError", "two"]),
    (PYG["gcn"], (8, 8), ["build((8, 8)) failed", "as PyG's models do, give an integer: widths=8"]),
    (lambda w: Stack(w, pyg.GCNConv), 8, ["build(8) failed", "give widths=(8,)"]),
    (through(lambda d: d**2), (12,), ["'0.weight'", "144", "width 0"]),
    (through(lambda d: d // 2 + 1), (13,), ["'0.weight'", "dimension of 7"]),
    (through(lambda a, b: a * b), (4, 5), ["'0.weight'", "not a sum of axes"]),
    (lambda w: OURS["gcn"](w[:1]), (12, 5), ["width 1 (5)", "remove it"]),
    (
        lambda w: nn.Sequential(*(nn.Linear(F, F) for _ in range(w[0]))),
        (4,),
        [".bias'", "some widths only"],
    ),
    (Table, (6,), ["parameter 'table' has 1 dimensions at some widths, 2 at others"]),
    (
        lambda w: Stack(w, pyg.SAGEConv, in_features=-1),
        (8,),
        ["parameter 'convs.0.lin", "is lazy", "-1"],
    ),
    (
        lambda w: pyg.models.GraphSAGE(F, w, 2),
        8,
        ["returns one output for each feature of width 0", "of classes"],
    ),
    (
        lambda w: nn.Sequential(nn.Linear(F, w[0] // 4 * 4), nn.Linear(w[0] // 4 * 4, C)),
        (64,),
        [
            "does not follow the widths",
            "give each head the width: TransformerConv(features, width, heads=4)",
        ],
    ),
    # The full width does not show it, but a sub-GCN would not fit its slice.
    (behind(lambda d: min(d, 64)), (128,), ["2.weight"]),
    (
        lambda w: Hidden(w, lambda h: h, lambda out: 0 * out),
        (12,),
        ["'enter.weight'", "does not depend"],
    ),
    (
        lambda w: Hidden(w, lambda h: h, lambda out: (out, out)),
        (12,),
        ["returned tuple", "one tensor"],
    ),
    (lambda w: Hidden(w, raising(KeyError)), (12,), ["could not be called", "KeyError", "two"]),
    # The input's axis is not a hidden one.
    (lambda w: GraphSAGE(w[0], w[1:], C), (9, 8), ["could not be called"]),
    (
        lambda w: Hidden(w, lambda g: g.x),
        (12,),
        ["not a graph: write forward(self, x, edge_index)"],
    ),
    (
        lambda w: Hidden(w, PerNode(99, w[0])),
        (12,),
        ["look up an nn.Embedding by ids in a column of x"],
    ),
]


@pytest.mark.parametrize(("build", "widths", "parts"), REFUSED)
def test_what_has_no_layout_is_refused(build: Any, widths: Any, parts: list[str]) -> None:
    with refused(*parts):
        GIST(build, widths)


def test_a_device_or_a_sampler_that_is_not_there_is_refused() -> None:
    for device, message in (
        ("cuda:99", "device is 'cuda:99', but torch finds"),
        ("gpu", "expected cpu, cuda or cuda:N"),
    ):
        with refused(message):
            GIST(PYG["gcn"], 8, device=device)
    for name, message in (
        ("cluster", "sampler is 'cluster', expected one of full, auto, clusters"),
        (5, "sampler is 5"),
    ):
        with refused(message):
            fit(GIST(PYG["gcn"], 8, 2), sampler=name)
