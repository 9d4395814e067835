"""What gistgnn logs, as a list."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logged(least: int = logging.INFO) -> Iterator[list[str]]:
    """The messages that are logged in the block, from a level on."""
    messages: list[str] = []
    logger = logging.getLogger("gistgnn")

    class Listing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler = Listing()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(least)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
