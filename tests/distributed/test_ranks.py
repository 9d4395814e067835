"""What ranks exchange, and what becomes of a run when one of them fails."""

import os
import signal
import time
from typing import Any

import pytest
import torch

from gistgnn import GIST, DivergedError
from gistgnn.distributed import RankLostError, Ranks
from gistgnn.layout.axes import named_tensors
from gistgnn.theta.slices import gather
from tests.helpers.models import OURS
from tests.helpers.refusals import refused

from .launch import on_ranks

M = 4


def sharded(ranks: Ranks, m: int = M) -> GIST:
    return GIST(OURS["graphsage"], (9, 10), m, store="sharded", ranks=ranks)


def talk(ranks: Ranks) -> list[Any]:
    said = ranks.gather({"rank": ranks.rank, "third": 1 / 3, "text": "Θ" * ranks.rank})
    given = [[torch.full((ranks.rank + 1, rank), rank, dtype=torch.long), torch.tensor(True)] for rank in range(3)]
    forms = [[(torch.Size([rank + 1, ranks.rank]), torch.long), (torch.Size([]), torch.bool)] for rank in range(3)]
    arrived = ranks.exchange(given, forms, torch.device("cpu"))
    return [said, [[part.tolist() for part in each] for each in arrived], ranks.traffic.sent, ranks.traffic.received]


def test_everyone_hears_what_everyone_says() -> None:
    for rank, (said, arrived, sent, received) in enumerate(on_ranks(3, talk)):
        assert said == [{"rank": r, "third": 1 / 3, "text": "Θ" * r} for r in range(3)]
        assert arrived == [[[[rank] * rank] * (r + 1), True] for r in range(3)]
        assert sent == sum(8 * (rank + 1) * r + 8 for r in range(3) if r != rank)
        assert received == sum(8 * (r + 1) * rank + 8 for r in range(3) if r != rank)


def bytes_of_two_rounds(ranks: Ranks) -> tuple[int, int, int]:
    """What was sent and received, and what the formula says of either: the slices, but for what is here already."""
    gist, expected = sharded(ranks), 0
    for round_ in gist.rounds(2):
        for i in range(ranks.rank, M, ranks.count):
            for name, tensor in named_tensors(OURS["graphsage"]((9, 10))).items():
                rows = torch.arange(len(tensor)).view(-1, *[1] * (tensor.dim() - 1)).expand_as(tensor)
                chunks = torch.arange(len(tensor)).chunk(ranks.count)
                own = chunks[ranks.rank] if ranks.rank < len(chunks) else torch.tensor([])
                taken = gather(rows, gist.theta.slices.cuts(round_.blocks[i])[name])
                expected += 4 * int((~torch.isin(taken, own)).sum())
        assert len(list(round_)) == M // ranks.count
    return ranks.traffic.received, ranks.traffic.sent, expected


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_rank_moves_its_slices_and_nothing_else(count: int) -> None:
    """A round's traffic is 2 Σ_l |slice_l|, less the rows that a rank owns itself; each part is padded to 8 bytes."""
    every = on_ranks(count, bytes_of_two_rounds)
    padding = 8 * 2 * 2 * count
    for received, sent, _ in every:
        # What others took of this rank's rows, and what came back of its own sub-GCNs.
        assert abs(received - sent) <= sum(e for _, _, e in every)
    total = sum(received for received, _, _ in every)
    assert total == sum(sent for _, sent, _ in every)
    expected = 2 * sum(e for _, _, e in every)
    assert expected <= total <= expected + padding * count
    assert (total == 0) == (count == 1)


def diverge(ranks: Ranks) -> str:
    gist = sharded(ranks)
    before = {name: rows.clone() for name, rows in gist.theta.tensors.items()}  # type: ignore[attr-defined]
    round_ = gist.begin_round()
    if ranks.rank == 1:
        with torch.no_grad():
            named_tensors(round_.subs[0])["convs.1.bias"].fill_(float("nan"))
    with pytest.raises(DivergedError) as caught:
        round_.aggregate({ranks.rank: 0.5})
    assert all(torch.equal(rows, before[name]) for name, rows in gist.theta.tensors.items())  # type: ignore[attr-defined]
    assert caught.value.relayed
    return str(caught.value)


def test_all_ranks_hear_of_one_that_diverged() -> None:
    messages = on_ranks(2, diverge)
    assert len(set(messages)) == 1
    assert "round 1: 'convs.1.bias' of sub-GCN 1 became NaN" in messages[0]


def hang(ranks: Ranks, exchange: bool, victim: int) -> tuple[str, float]:
    if ranks.rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    begun, nothing = time.monotonic(), [list[Any]()] * ranks.count
    with pytest.raises(RankLostError) as caught:
        ranks.exchange(nothing, nothing, torch.device("cpu")) if exchange else ranks.gather(None)
    return str(caught.value), time.monotonic() - begun


@pytest.mark.parametrize(("exchange", "victim"), [(False, 1), (True, 2)])
def test_all_others_name_a_rank_that_hangs_within_the_timeout(exchange: bool, victim: int) -> None:
    others = [rank for rank in range(3) if rank != victim]
    for message, seconds in on_ranks(3, hang, exchange, victim, only=others, patience=4):
        expected = f"rank {victim} does not answer: it has ended, hangs (--timeout is 4 s), or cannot be reached"
        assert message.startswith(expected)
        assert seconds < 6  # 4, and a busy machine


def lose_the_store(ranks: Ranks, joining: bool) -> str:
    def work() -> None:
        ranks.gather(None)  # all have joined
        if ranks.rank == 0:  # which serves the store where torchrun does not
            os.kill(os.getpid(), signal.SIGKILL)
        Ranks(timeout=4) if joining else ranks.gather(None)

    with pytest.raises(RankLostError) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize("joining", [False, True])
def test_a_lost_store_is_named(joining: bool) -> None:
    [message] = on_ranks(2, lose_the_store, joining, only=[1])
    assert "the machine of rank 0 or of torchrun's endpoint does not answer" in message


def refusals(ranks: Ranks) -> None:
    build = OURS["gcn"]
    with refused("sub_gcns is 1, fewer than the 2 ranks", "start fewer ranks, or raise sub_gcns"):
        GIST(build, (8,), 1, ranks=ranks)
    with refused("the store is host, but there are ranks: use memory or sharded"):
        GIST(build, (8,), 2, store="host", ranks=ranks)


def test_what_does_not_go_together() -> None:
    assert on_ranks(2, refusals) == [None, None]
    with refused("the store is sharded, but there are no ranks", "torchrun"):
        GIST(OURS["gcn"], (8,), 2, store="sharded")
