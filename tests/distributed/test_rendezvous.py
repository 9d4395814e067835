"""Ranks that meet in a store in which dead ones have left their words."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore, Store

from gistgnn.distributed import rendezvous as meeting
from gistgnn.distributed.rendezvous import NobodyCameError, meet


def together(
    monkeypatch: pytest.MonkeyPatch, store: Store, ranks: list[int], count: int, seconds: float
) -> list[str]:
    """What each of some ranks finds under a key that rank 0 sets when it has met them."""
    here = iter(ranks)
    monkeypatch.setattr(meeting, "rendezvous", lambda *_, **__: iter([(store, next(here), count)]))

    def rank() -> str:
        store_of_meeting, _, number, _ = meet(timedelta(seconds=seconds))
        if number == 0:
            store_of_meeting.set("words", f"by rank 0 of {count}")
        store_of_meeting.wait(["words"], timedelta(seconds=seconds))
        return store_of_meeting.get("words").decode()

    with ThreadPoolExecutor(len(ranks)) as pool:
        futures = [pool.submit(rank) for _ in ranks]
        return [future.result() for future in futures]


def test_ranks_of_a_restart_do_not_find_what_dead_ones_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HashStore()
    for count in (1, 3, 5, 2, 2, 4, 1):
        words = together(monkeypatch, store, [*range(count)], count, 20)
        assert words == [f"by rank 0 of {count}"] * count


def test_a_rank_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    together(monkeypatch, store, [0, 1, 2], 3, 20)
    with pytest.raises(NobodyCameError, match=r"rank 1, 2 of 3 did not arrive|rank 2 has waited"):
        together(monkeypatch, store, [0], 3, 0.3)
    for ranks in ([0, 2], [2, 0]):  # The error of the first one is raised.
        with pytest.raises(NobodyCameError, match=r"^rank 1 of 3 did not arrive$"):
            together(monkeypatch, store, ranks, 3, 0.5)
    with pytest.raises(
        NobodyCameError, match="rank 0, or another one, did not arrive: rank 2 has waited for it"
    ):
        together(monkeypatch, store, [2], 3, 0.3)
