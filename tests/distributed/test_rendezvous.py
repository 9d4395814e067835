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
        own, _, number, _ = meet(timedelta(seconds=seconds))
        if number == 0:
            own.set("said", f"by rank 0 of {count}")
        own.wait(["said"], timedelta(seconds=seconds))
        return own.get("said").decode()

    with ThreadPoolExecutor(len(ranks)) as pool:
        return [each.result() for each in [pool.submit(rank) for _ in ranks]]


def test_ranks_of_a_restart_do_not_find_what_dead_ones_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HashStore()
    for count in (1, 3, 5, 2, 2, 4, 1):
        assert (
            together(monkeypatch, store, [*range(count)], count, 20)
            == [f"by rank 0 of {count}"] * count
        )


def test_who_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    together(monkeypatch, store, [0, 1, 2], 3, 20)
    with pytest.raises(NobodyCameError, match=r"rank 1, 2 of 3 did not arrive|rank 2 has waited"):
        together(monkeypatch, store, [0], 3, 0.3)
    for ranks in ([0, 2], [2, 0]):  # the first one's error is raised
        with pytest.raises(NobodyCameError, match=r"^rank 1 of 3 did not arrive$"):
            together(monkeypatch, store, ranks, 3, 0.5)
    with pytest.raises(
        NobodyCameError, match="rank 0, or another one, did not arrive: rank 2 has waited for it"
    ):
        together(monkeypatch, store, [2], 3, 0.3)
