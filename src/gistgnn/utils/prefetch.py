"""Prefetching: a background thread prepares the next items of a loop."""

from collections.abc import Generator, Iterable
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetch(items: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """Yield the items while a thread prepares the next ones.

    An error in ``items`` is raised at its place in the sequence. Closing the generator ends the thread; an early end of
    a loop over the generator closes it. At most ``depth`` prepared items wait.
    """
    ready: SimpleQueue[object] = SimpleQueue()
    room, stopped = Semaphore(depth), Event()
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            iterator = iter(items)
            while room.acquire() and not stopped.is_set():
                ready.put(next(iterator, _END))
        except BaseException as error:  # the consumer raises it
            errors.append(error)
            ready.put(_END)

    thread = Thread(target=produce, name="gistgnn-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            yield item  # type: ignore[misc]  # T, or the end
            del item  # do not keep it alive while waiting for the next one
            room.release()
        if errors:
            raise errors[0]
    finally:
        stopped.set()
        room.release()
        thread.join()
