"""Work that a signal does not leave half done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def do_to_the_end(work: Callable[[], None]) -> None:
    """Do work that has the same result when it is done twice.

    A signal waits until its end, and after an error it is repeated. The error is raised all the
    same, as is what a signal's handler raises (Ctrl-C: KeyboardInterrupt).
    """
    with signals_wait():
        try:
            work()
        except BaseException:
            work()
            raise


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let signals that arrive within the block wait for its end.

    Their handlers are then called in the order in which they arrived.
    """
    handlers = dict[Any, Callable[..., Any]]()
    # Python calls handlers in the main thread alone.
    if threading.current_thread() is threading.main_thread():
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
    arrived = list[tuple[int, Any]]()
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: arrived.append((number, frame)))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived_number, frame in arrived:
            handlers[arrived_number](arrived_number, frame)
