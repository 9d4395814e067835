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
    settings = {"epochs": ROUNDS * 2 * M, "optimizer_state": state}
    _, result = trained(("graphsage none 2", (D, D), M, settings), store, ranks)
    assert result.as_dict()["communication"] == result.communication
    assert result.communication
    return result.communication


def model_bytes(width: int) -> int:
    tensors = named_tensors(OURS["graphsage"]((width, width)))
    return sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.parametrize(
    ("count", "store", "state"), [(2, "sharded", "reset"), (4, "memory", "carry")]
)
def test_what_is_sent_is_what_the_formula_says(count: int, store: str, state: str) -> None:
    theta = model_bytes(D)
    copies_in_adam = 3 if state == "carry" else 1
    slices = M * copies_in_adam * model_bytes(D // M)
    costs_of_ranks = on_ranks(count, fitted, store, state)
    assert all(of_rank == costs_of_ranks[0] for of_rank in costs_of_ranks)
    measured = costs_of_ranks[0]
    sharded = store == "sharded"
    assert (measured["ranks"], measured["rounds"]) == (count, ROUNDS)
    assert sum(measured["sent"]) == sum(measured["received"])
    expected = costs(theta, slices, count, 2, copies=None if sharded else count)
    assert measured["formula"] == pytest.approx(vars(expected))
    mean = sum(measured["sent"]) / count
    # The rows that a rank owns itself are random.
    assert mean == pytest.approx(expected.gist, rel=0.04)
    assert (measured["read"] > 0) == sharded, "rank 0 evaluates"
    assert min(measured["seconds"]) > 0
    assert min(measured["waited"]) > 0
