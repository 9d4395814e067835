import threading
from collections.abc import Iterator

import pytest

from gistgnn.utils.prefetch import prefetch


def running() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("gistgnn-prefetch")
    ]


def test_items_come_in_order_and_an_error_at_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("of the second")

    for iterable in (range(50), [], [None, 0, False]):
        assert list(prefetch(iterable)) == list(iterable)
    prefetched = prefetch(items())
    assert next(prefetched) == 1
    with pytest.raises(KeyError, match="of the second"):
        next(prefetched)
    assert running() == []


def test_no_more_than_two_items_wait_and_an_early_end_stops_the_thread() -> None:
    made: list[int] = []
    second = threading.Event()

    def items() -> Iterator[int]:
        for i in range(10**9):
            made.append(i)
            if i == 1:
                second.set()
            yield i

    prefetched = prefetch(items())
    assert next(prefetched) == 0
    assert second.wait(10)  # prepared before it is requested
    assert len(made) <= 3
    assert [next(prefetched), next(prefetched)] == [1, 2]
    assert len(running()) == 1
    prefetched.close()
    assert running() == []
    assert 3 <= len(made) <= 6
