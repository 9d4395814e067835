"""Where the ranks of one start of a run meet, apart from all earlier starts."""

from __future__ import annotations

import json
import secrets
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

_PAUSE = 0.02  # seconds between looks


class NobodyCameError(RuntimeError):
    """Some ranks did not arrive in time."""


def meet(patience: timedelta) -> tuple[Store, int, int]:
    """Return a store that the ranks of this start share, this one's number, and how many there are.

    torchrun keeps one store for all restarts of a run, and what dead ranks have left in it (addresses, above all) would
    be taken for that of new ones. So each rank leaves a word of its own; rank 0 gathers them under a name for this
    start until every rank has found its own word there; then all of them use what is under that name alone.

    Args:
        patience: how long ranks are waited for.

    Raises:
        NobodyCameError: some have not arrived; they are named.
        RuntimeError: the store cannot be reached.
    """
    store, rank, count = next(iter(rendezvous("env://", timeout=patience)))
    until = time.monotonic() + patience.total_seconds()
    word = secrets.token_hex(8)
    store.set(f"here/{rank}", word)
    name = _gather(store, word, count, until) if rank == 0 else _find(store, word, rank, until)
    return PrefixStore(name, store), rank, count


def _gather(store: Store, own: str, count: int, until: float) -> str:
    """On rank 0: publish who is here, again when somebody new has come, until all have found themselves."""
    name, published = "", [""]
    while True:
        words = [own, *(_read(store, f"here/{rank}") for rank in range(1, count))]
        if words != published:
            name, published = secrets.token_hex(8), words
            store.set("roster", json.dumps([name, *words]))
        away = [rank for rank in range(1, count) if not store.check([f"{name}/found/{rank}"])]
        if not away:
            store.set(f"{name}/all", "")
            return name
        if time.monotonic() > until:
            raise NobodyCameError(f"rank {', '.join(map(str, away))} of {count} did not arrive")
        time.sleep(_PAUSE)


def _find(store: Store, own: str, rank: int, until: float) -> str:
    """On the others: find this rank's word on the list, and wait until all have done so."""
    found = ""
    while True:
        name, *words = json.loads(_read(store, "roster") or '[""]')
        if rank < len(words) and words[rank] == own:
            if name != found:
                store.set(f"{name}/found/{rank}", "")
                found = name
            if store.check([f"{name}/all"]):
                return name
        if time.monotonic() > until:
            raise NobodyCameError(f"rank 0, or another one, did not arrive: rank {rank} has waited for it")
        time.sleep(_PAUSE)


def _read(store: Store, key: str) -> str:
    """What is under a key, or nothing."""
    return store.get(key).decode() if store.check([key]) else ""
