"""Prefetching: a background thread prepares the next items of a loop."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetch(items: Iterable[T]) -> Generator[T, None, None]:
    """Yield the items while a thread prepares the next one.

    Two items exist at a time, that in use included.
    """
    # An error in `items` is raised at its place in the sequence. Closing the generator ends the
    # thread.
    iterator = iter(items)
    pool = ThreadPoolExecutor(1, thread_name_prefix="gistgnn-prefetch")
    try:
        ready = deque(pool.submit(next, iterator, _END) for _ in range(2))
        while (item := ready.popleft().result()) is not _END:
            yield item  # type: ignore[misc]  # T, or the end
            del item  # do not keep it alive while waiting for the next one
            ready.append(pool.submit(next, iterator, _END))
    finally:
        pool.shutdown(cancel_futures=True)
