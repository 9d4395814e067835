"""How the ranks of a run meet at a start or a restart, and which of them do not answer.

The store is torchrun's, or rank 0 serves one. torchrun's lives as long as torchrun, so it has the
words of ranks that have died. `TORCHELASTIC_RESTART_COUNT` does not tell starts apart: every
torchrun counts the failures of its own machine, so two machines of one start may have different
counts. Therefore rank 0 gives each start a new name, and tells it to every rank under a token that
this rank has made up.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from datetime import timedelta
from threading import Thread
from typing import TypeVar

from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from gistgnn.errors import reason

T = TypeVar("T")

_PAUSE = 0.02  # seconds between two looks into the store
_GRACE = 2.0  # more seconds in which the system itself may say why a connection fails


class NobodyCameError(RuntimeError):
    """Some ranks, or their key-value store, did not answer in time."""


def meet(timeout: timedelta) -> tuple[Store, Store, int, int]:
    """Return when all ranks of this start are there.

    Args:
        timeout: how long to wait for the store and for the ranks.

    Returns:
        The store of this start, the store of all restarts, this rank's number, the number of ranks.

    Raises:
        NobodyCameError: the store or some ranks did not answer in time.
    """
    until = time.monotonic() + timeout.total_seconds()
    store, rank, count = _open_store(until)
    token = secrets.token_hex(8)
    store.set(f"token/{rank}", token)
    if rank == 0:
        start = PrefixStore(token, store)
        start.set("here/0", "")
        missing = _wait_for(start, "here", range(count), until, lambda r: _tell(store, token, r))
    else:
        while not (name := _read(store, f"name/{token}")):
            if time.monotonic() > until:
                raise NobodyCameError(
                    f"rank 0, or another one, did not arrive: rank {rank} has waited for it"
                )
            time.sleep(_PAUSE)
        start = PrefixStore(name, store)
        start.set(f"here/{rank}", "")
        missing = _wait_for(start, "here", range(count), until)
    if missing:
        raise NobodyCameError(f"rank {', '.join(map(str, missing))} of {count} did not arrive")
    return start, store, rank, count


def find_absent(store: Store, rank: int, count: int, seconds: float) -> list[int]:
    """Return the ranks that do not answer in time.

    Every rank calls this after an exchange has failed. The call is its answer to the others.
    """

    def look() -> list[int]:
        until = time.monotonic() + seconds
        store.set(f"failed/{rank}", "")
        missing = _wait_for(store, "failed", range(count), until)
        store.set(f"looked/{rank}", "")
        if rank == 0:  # which may serve the store, and ends it
            _wait_for(store, "looked", set(range(count)) - set(missing), until + _GRACE / 2)
        return missing

    return _run_within(seconds + _GRACE, look, "the ranks' store")


def _open_store(until: float) -> tuple[Store, int, int]:
    """Return torchrun's store, this rank's number, and the number of ranks."""
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    if os.environ.get("RANK") != "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        _wait_for_server(where, until)  # torch would print its own trace for every attempt
    left = max(until - time.monotonic(), _PAUSE)
    opened = rendezvous("env://", timeout=timedelta(seconds=left))
    return _run_within(left + _GRACE, lambda: next(opened), where)


def _wait_for_server(where: str, until: float) -> None:
    """Return when somebody accepts connections at an address."""
    host, _, port = where.rpartition(":")
    while port.isdecimal():  # else torch says what is wrong with the variables
        try:
            left = max(until - time.monotonic(), _PAUSE)
            socket.create_connection((host, int(port)), timeout=left).close()
            return
        except (OSError, OverflowError) as error:
            if time.monotonic() > until:
                raise NobodyCameError(f"nobody answers at {where}: {reason(error)}") from error
            time.sleep(10 * _PAUSE)


def _run_within(seconds: float, work: Callable[[], T], server: str) -> T:
    """Return what some work returns, or raise its error.

    For a server that accepts connections and says nothing torch waits for ever, whatever the
    timeout. Then a thread is left behind.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        raise NobodyCameError(f"{server} accepts connections, and then does not answer") from None


def _wait_for(
    store: Store,
    key: str,
    ranks: Collection[int],
    until: float,
    meanwhile: Callable[[int], None] = lambda rank: None,
) -> list[int]:
    """Wait until each of some ranks has set a key of its own; return those that have not in time.

    Args:
        store: where the keys are, `key` and the rank.
        key: the name before the rank.
        ranks: to wait for.
        until: by the monotonic clock.
        meanwhile: called for every rank that is missing, at each look.
    """
    while not store.check([f"{key}/{rank}" for rank in ranks]):
        missing = [rank for rank in ranks if not store.check([f"{key}/{rank}"])]
        if missing and time.monotonic() > until:
            return missing
        for rank in missing:
            meanwhile(rank)
        time.sleep(_PAUSE)
    return []


def _tell(store: Store, name: str, rank: int) -> None:
    """On rank 0: tell a rank the name of this start; a rank that has died does not listen."""
    if token := _read(store, f"token/{rank}"):
        store.set(f"name/{token}", name)


def _read(store: Store, key: str) -> str:
    """Return the value of a key, or an empty string."""
    return store.get(key).decode() if store.check([key]) else ""
