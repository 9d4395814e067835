"""What a round moves, measured beside the formula, and the projection that is made of it."""

from typing import Any

import pytest

from gistgnn.distributed import Ranks, costs
from gistgnn.layout.axes import named_tensors
from tests.helpers.models import OURS

from .launch import on_ranks
from .test_equality import fitted as trained

M = 4
D = 256
ROUNDS = 6


def fitted(ranks: Ranks, store: str, state: str) -> dict[str, Any]:
    own = {"epochs": ROUNDS * 2 * M, "optimizer_state": state}
    _, result = trained(("graphsage none 2", (D, D), M, own), store, ranks)
    assert result.as_dict()["communication"] == result.communication
    assert result.communication
    return result.communication


@pytest.mark.parametrize(
    ("count", "store", "state"), [(2, "sharded", "reset"), (4, "memory", "carry")]
)
def test_what_is_sent_is_what_the_formula_says(count: int, store: str, state: str) -> None:
    slices, theta = (
        times * sum(t.nbytes for t in named_tensors(OURS["graphsage"](widths)).values())
        for times, widths in ((M * (3 if state == "carry" else 1), (D // M, D // M)), (1, (D, D)))
    )
    found = on_ranks(count, fitted, store, state)
    assert all(each == found[0] for each in found)
    said = found[0]
    sharded = store == "sharded"
    assert (said["ranks"], said["rounds"]) == (count, ROUNDS)
    assert sum(said["sent"]) == sum(said["received"])
    expected = costs(theta, slices, count, 2, copies=None if sharded else count)
    assert said["formula"] == pytest.approx(vars(expected))
    mean = sum(said["sent"]) / count
    # the rows that a rank owns itself are random
    assert mean == pytest.approx(expected.gist, rel=0.04)
    assert (said["read"] > 0) == sharded  # rank 0 evaluates
    assert min(said["seconds"]) > 0
    assert min(said["waited"]) > 0
