import threading
from collections.abc import Iterator

import pytest

from gistgnn.utils.prefetch import ahead


def at_work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gistgnn-ahead"]


def test_all_items_in_order() -> None:
    assert list(ahead(range(50))) == list(range(50))
    assert list(ahead([])) == []
    assert list(ahead([None, 0, False])) == [None, 0, False]
    assert at_work() == []


def test_no_more_than_two_are_made_ahead() -> None:
    made: list[int] = []
    third, fourth = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        for i in range(10):
            made.append(i)
            (third if i == 1 else fourth if i == 3 else threading.Event()).set()
            yield i

    going = ahead(items())
    assert next(going) == 0
    assert third.wait(10)  # without being asked for
    assert len(made) <= 3
    assert next(going) == 1
    assert next(going) == 2
    assert fourth.wait(10)
    assert len(made) <= 5
    going.close()


def test_the_thread_is_another() -> None:
    names = list(ahead(threading.current_thread().name for _ in range(3)))
    assert names == ["gistgnn-ahead"] * 3


def test_an_early_end_stops_the_thread() -> None:
    made: list[int] = []
    going = ahead(made.append(i) or i for i in range(10**9))  # type: ignore[func-returns-value]
    for item in going:
        if item == 3:
            break
    assert len(at_work()) == 1
    going.close()
    assert at_work() == []
    assert 4 <= len(made) <= 7


def test_an_unstarted_one_has_no_thread() -> None:
    ahead(range(3)).close()
    assert at_work() == []


def test_what_making_an_item_raises_comes_in_its_place() -> None:
    class OwnError(Exception):
        pass

    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OwnError("of the third")

    going = ahead(items())
    assert [next(going), next(going)] == [1, 2]
    with pytest.raises(OwnError, match="of the third"):
        next(going)
    assert at_work() == []
