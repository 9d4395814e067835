"""The arguments of `GIST.fit`, and widths of several kinds."""

import numpy as np
from torch import Tensor, nn

from gistgnn import GIST, Training
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta
from tests.helpers.models import PYG, C, F
from tests.helpers.refusals import refused

# How many steps are taken.


class Counting(nn.Module):
    """Counts the calls in training mode."""

    calls = 0

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += self.training
        return self.leave(self.enter(x).relu())


_gists = {m: GIST(Counting, (8,), m) for m in range(1, 6)}


def test_settings_as_a_whole_or_one_by_one() -> None:
    one, other, shared = (GIST(gcn(), (8, 7), 2) for _ in range(3))
    results = [
        one.fit(GRAPH, epochs=4, lr=0.02, progress=False),
        other.fit(GRAPH, Training(4, lr=0.02), progress=False),
    ]
    results.append(shared.fit(GRAPH, training=Training(4, lr=0.02), progress=False))
    assert results[0].test == results[1].test == results[2].test
    assert same(theta(one), theta(other))
    assert GIST(gcn(), (8, 7), 2).fit(GRAPH, training="each", epochs=4, progress=False).progress.rounds == 1


def test_widths_of_numpy() -> None:
    gist = GIST(gcn(), list(np.array([8, 7])), 2)
    assert gist.widths == (8, 7)
    fit(gist, epochs=2)
    assert GIST(PYG["gcn"], np.int64(8), 2).shared


def test_units_limit_the_sub_gcns() -> None:
    """Two heads share 12 features: six of each, so at most six sub-GCNs."""
    assert GIST(PYG["gat"], 12, 6).sub_gcns == 6
    with refused("sub_gcns is 7", "6 features"):
        GIST(PYG["gat"], 12, 7)
