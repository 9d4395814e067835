"""What ranks exchange, and what becomes of a run when one of them fails."""

import os
import signal
import time
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn import GIST, DivergedError
from gistgnn.distributed import RankLostError, Ranks
from gistgnn.distributed.ranks import pack, packed_bytes, unpack
from gistgnn.layout.axes import named_tensors
from gistgnn.theta import Store
from gistgnn.utils.tensors import TensorSpec
from tests.helpers.models import OURS
from tests.helpers.refusals import refused

from .launch import on_ranks

TYPES = [torch.float32, torch.int64, torch.bool, torch.float64, torch.bfloat16]
FORMS = st.lists(
    st.tuples(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(TYPES)), max_size=6
)


@given(FORMS, st.integers(0, 2**31))
def test_what_is_packed_is_unpacked(forms: list[tuple[list[int], torch.dtype]], seed: int) -> None:
    torch.manual_seed(seed)
    tensors = [torch.randint(0, 2, shape).to(dtype) for shape, dtype in forms]
    buffer = pack(tensors, torch.device("cpu"))
    specs = [TensorSpec.of(tensor) for tensor in tensors]
    assert len(buffer) == packed_bytes(specs)
    assert len(buffer) % 8 == 0, "what follows is aligned"
    for tensor, unpacked in zip(tensors, unpack(buffer, specs), strict=True):
        assert torch.equal(tensor, unpacked)


def refusals(ranks: Ranks) -> list[DivergedError]:
    """What does not go together is refused, and the same ranks hear of one that diverged."""
    build = OURS["gcn"]
    with refused("sub_gcns is 1, fewer than the 2 ranks", "start fewer ranks, or raise sub_gcns"):
        GIST(build, (8,), 1, ranks=ranks)
    gist = GIST(OURS["graphsage"], (9, 10), 4, store="sharded", ranks=ranks)
    before = {name: rows.clone() for name, rows in gist.theta.place.tensors.items()}  # type: ignore[attr-defined]
    round_ = gist.begin_round()
    if ranks.rank == 1:
        with torch.no_grad():
            named_tensors(round_.subs[0])["convs.1.bias"].fill_(float("nan"))
    with pytest.raises(DivergedError) as caught:
        round_.aggregate({ranks.rank: {"loss": 0.5}})
    assert all(torch.equal(rows, before[name]) for name, rows in gist.theta.place.tensors.items())  # type: ignore[attr-defined]
    assert caught.value.relayed
    return [caught.value]


def test_all_ranks_refuse_what_does_not_go_together_and_hear_of_one_that_diverged() -> None:
    with refused("share is rows, but there are no ranks", "torchrun"):
        GIST(OURS["gcn"], (8,), 2, store="sharded")
    (first,), (second,) = on_ranks(2, refusals)
    assert str(first) == str(second)
    assert "round 1: 'convs.1.bias' of sub-GCN 1 became NaN" in str(first)
    assert (first.round_number, first.result) == (0, None)


def received_slices(ranks: Ranks) -> list[list[int]]:
    """The sub-GCNs whose slices a rank has received, while each of its own sub-GCNs trains."""
    gist = GIST(OURS["gcn"], (12,), 6, store=Store("host", share="rows"), ranks=ranks)
    received = []
    for round_ in gist.rounds(1):
        for k, _ in enumerate(round_):
            expected = min(2, 3 - k)
            latest = time.monotonic() + 20
            while len(gist.theta._received) < expected and time.monotonic() < latest:
                time.sleep(0.01)
            received.append(sorted(gist.theta._received))
    return received


def test_the_next_slice_comes_while_a_sub_gcn_trains_and_no_more_are_held() -> None:
    assert on_ranks(2, received_slices) == [[[0, 2], [2, 4], [4]], [[1, 3], [3, 5], [5]]]


def hang(ranks: Ranks, exchange: bool, victim: int) -> tuple[str, float]:
    if ranks.rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    begun = time.monotonic()
    nothing = [list[Any]()] * ranks.count
    wait = partial(ranks.gather, None)
    if exchange:
        wait = partial(ranks.exchange, nothing, nothing, torch.device("cpu"))
    with pytest.raises(RankLostError) as caught:
        wait()
    return str(caught.value), time.monotonic() - begun


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("exchange", "victim"), [(False, 1), (True, 2)])
def test_all_others_name_a_rank_that_hangs_within_the_timeout(exchange: bool, victim: int) -> None:
    listening = [rank for rank in range(3) if rank != victim]
    for message, seconds in on_ranks(3, hang, exchange, victim, only=listening, timeout=4):
        assert message.startswith(
            f"rank {victim} does not answer: it has ended, hangs (--timeout is 4 s), or cannot "
            "be reached"
        )
        assert seconds < 6, "the timeout is 4 s, and a busy machine may be late"


def lose_the_store(ranks: Ranks, joining: bool) -> str:
    ranks.gather(None)  # From here on all have joined.
    if ranks.rank == 0:  # This rank serves the store where torchrun does not.
        os.kill(os.getpid(), signal.SIGKILL)
    ask = partial(Ranks, timeout=4) if joining else partial(ranks.gather, None)
    with pytest.raises(RankLostError) as caught:
        ask()
    return str(caught.value)


@pytest.mark.parametrize("joining", [False, True])
def test_a_lost_store_is_named(joining: bool) -> None:
    [message] = on_ranks(2, lose_the_store, joining, only=[1])
    assert "the machine of rank 0 or of torchrun's endpoint does not answer" in message
