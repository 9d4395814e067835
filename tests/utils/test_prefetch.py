import threading
from collections.abc import Iterator

import pytest

from gistgnn.utils.prefetch import prefetch


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gistgnn-prefetch"]


def test_all_items_in_order() -> None:
    assert list(prefetch(range(50))) == list(range(50))
    assert list(prefetch([])) == []
    assert list(prefetch([None, 0, False])) == [None, 0, False]
    assert running() == []


def test_no_more_than_two_items_wait() -> None:
    made: list[int] = []
    third, fourth = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        for i in range(10):
            made.append(i)
            (third if i == 1 else fourth if i == 3 else threading.Event()).set()
            yield i

    prefetched = prefetch(items())
    assert next(prefetched) == 0
    assert third.wait(10)  # prepared before it is requested
    assert len(made) <= 3
    assert next(prefetched) == 1
    assert next(prefetched) == 2
    assert fourth.wait(10)
    assert len(made) <= 5
    prefetched.close()


def test_an_early_end_stops_the_thread() -> None:
    made: list[int] = []
    prefetched = prefetch(made.append(i) or i for i in range(10**9))  # type: ignore[func-returns-value]
    for item in prefetched:
        if item == 3:
            break
    assert len(running()) == 1
    prefetched.close()
    assert running() == []
    assert 4 <= len(made) <= 7


def test_an_error_is_raised_at_its_place() -> None:
    class OwnError(Exception):
        pass

    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OwnError("of the third")

    prefetched = prefetch(items())
    assert [next(prefetched), next(prefetched)] == [1, 2]
    with pytest.raises(OwnError, match="of the third"):
        next(prefetched)
    assert running() == []
