"""What gistgnn logs, as a list."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logged(least: int = logging.INFO) -> Iterator[list[str]]:
    """The messages that are logged in the block, from a level on."""
    messages: list[str] = []
    logger = logging.getLogger("gistgnn")
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(least)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
