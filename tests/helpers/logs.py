"""What gistgnn logs, as a list."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Collecting(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


@contextmanager
def logged() -> Iterator[list[str]]:
    """The messages that are logged in the block, from level INFO on."""
    messages: list[str] = []
    logger, handler = logging.getLogger("gistgnn"), _Collecting(messages)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
