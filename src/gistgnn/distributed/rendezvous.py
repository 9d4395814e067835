"""How the ranks of a run find each other at a start, or at a restart."""

import json
import secrets
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

_PAUSE = 0.02  # seconds between looks


class NobodyCameError(RuntimeError):
    """Some ranks did not arrive in time."""


def meet(patience: timedelta) -> tuple[Store, int, int]:
    """Return a key-value store that only the ranks of this start use, this rank's number, and the number of ranks.

    torchrun keeps one store for all restarts of a run. It still holds the addresses of dead ranks, which a new rank
    must not use. So every rank writes a random token. Rank 0 publishes the list of tokens under a name that is new at
    every start. When every rank has found its own token in the list, all of them use keys under that name only.

    Args:
        patience: how long to wait for the other ranks.

    Raises:
        NobodyCameError: some ranks have not arrived; the message names them.
        RuntimeError: the store cannot be reached.
    """
    store, rank, count = next(iter(rendezvous("env://", timeout=patience)))
    until = time.monotonic() + patience.total_seconds()
    token = secrets.token_hex(8)
    store.set(f"here/{rank}", token)
    name = _gather(store, token, count, until) if rank == 0 else _find(store, token, rank, until)
    return PrefixStore(name, store), rank, count


def _gather(store: Store, token: str, count: int, until: float) -> str:
    """On rank 0: publish the list of tokens, again whenever it changes, until every rank has found its own."""
    name, published = "", [""]
    while True:
        tokens = [token, *(_read(store, f"here/{rank}") for rank in range(1, count))]
        if tokens != published:
            name, published = secrets.token_hex(8), tokens
            store.set("roster", json.dumps([name, *tokens]))
        away = [rank for rank in range(1, count) if not store.check([f"{name}/found/{rank}"])]
        if not away:
            store.set(f"{name}/all", "")
            return name
        if time.monotonic() > until:
            raise NobodyCameError(f"rank {', '.join(map(str, away))} of {count} did not arrive")
        time.sleep(_PAUSE)


def _find(store: Store, token: str, rank: int, until: float) -> str:
    """On the other ranks: find this rank's token in the list, and wait until all ranks have found theirs."""
    found = ""
    while True:
        name, *tokens = json.loads(_read(store, "roster") or '[""]')
        if rank < len(tokens) and tokens[rank] == token:
            if name != found:
                store.set(f"{name}/found/{rank}", "")
                found = name
            if store.check([f"{name}/all"]):
                return name
        if time.monotonic() > until:
            raise NobodyCameError(f"rank 0, or another one, did not arrive: rank {rank} has waited for it")
        time.sleep(_PAUSE)


def _read(store: Store, key: str) -> str:
    """Return the value of a key, or an empty string."""
    return store.get(key).decode() if store.check([key]) else ""
