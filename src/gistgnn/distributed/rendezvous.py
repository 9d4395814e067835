"""How the ranks of a run find each other at a start or a restart, and which of them do not answer."""

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from threading import Thread
from typing import TypeVar

from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from gistgnn.errors import reason

T = TypeVar("T")

_PAUSE = 0.02  # seconds between looks
_LAST = 2.0  # seconds more for the system to say itself why a connection fails


class NobodyCameError(RuntimeError):
    """Some ranks, or their key-value store, did not answer in time."""


def meet(patience: timedelta) -> tuple[Store, Store, int, int]:
    """Return the store of this start, the store of all restarts, this rank's number, and the number of ranks."""
    # torchrun keeps one store for all restarts, with the addresses of dead ranks in it. So every rank writes a random
    # token, and rank 0 publishes the list under a name that is new at every start. A rank that has found its token in
    # the list uses keys under that name only.
    until = time.monotonic() + patience.total_seconds()
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    if os.environ.get("RANK") != "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        _wait_for_server(where, until)  # torch would print its own trace for every attempt
    left = max(until - time.monotonic(), _PAUSE)
    opened = rendezvous("env://", timeout=timedelta(seconds=left))
    store, rank, count = _within(left + _LAST, lambda: next(opened), where)
    token = secrets.token_hex(8)
    store.set(f"here/{rank}", token)
    name = _gather(store, token, count, until) if rank == 0 else _find(store, token, rank, until)
    return PrefixStore(name, store), store, rank, count


def absent(store: Store, rank: int, count: int, seconds: float) -> list[int]:
    """Return the ranks that do not answer in time; every rank that is left calls this, by which it answers."""

    def look() -> list[int]:
        store.set(f"failed/{rank}", "")
        until = time.monotonic() + seconds
        while (away := _without(store, "failed", count)) and time.monotonic() < until:
            time.sleep(_PAUSE)
        store.set(f"looked/{rank}", "")
        while rank == 0 and set(_without(store, "looked", count)) - set(away) and time.monotonic() < until + _LAST / 2:
            time.sleep(_PAUSE)  # rank 0 may serve the store, which ends with it
        return away

    return _within(seconds + _LAST, look, "the ranks' store")


def _without(store: Store, key: str, count: int) -> list[int]:
    return [rank for rank in range(count) if not store.check([f"{key}/{rank}"])]


def _wait_for_server(where: str, until: float) -> None:
    """Return when somebody accepts connections at an address."""
    host, _, port = where.rpartition(":")
    while port.isdecimal():  # else torch says what is wrong with the variables
        try:
            socket.create_connection((host, int(port)), timeout=max(until - time.monotonic(), _PAUSE)).close()
            return
        except (OSError, OverflowError) as error:
            if time.monotonic() > until:
                raise NobodyCameError(f"nobody answers at {where}: {reason(error)}") from error
            time.sleep(10 * _PAUSE)


def _within(seconds: float, work: Callable[[], T], what: str) -> T:
    """Return what some work returns, or raise its error; a thread is left behind if torch waits for a dead server."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        raise NobodyCameError(f"{what} accepts connections, and then does not answer") from None


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
    while time.monotonic() <= until:
        name, *tokens = json.loads(_read(store, "roster") or '[""]')
        if rank < len(tokens) and tokens[rank] == token:
            store.set(f"{name}/found/{rank}", "")
            if store.check([f"{name}/all"]):
                return str(name)
        time.sleep(_PAUSE)
    raise NobodyCameError(f"rank 0, or another one, did not arrive: rank {rank} has waited for it")


def _read(store: Store, key: str) -> str:
    """Return the value of a key, or an empty string."""
    return store.get(key).decode() if store.check([key]) else ""
