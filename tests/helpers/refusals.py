"""How a value that gistgnn cannot work with is to be refused."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from typing import NoReturn

import pytest

from gistgnn.errors import GistError, InputError
from gistgnn.utils.checks import shown


@contextlib.contextmanager
def refused(*parts: str, error: type[GistError] = InputError) -> Iterator[None]:
    """Expect an InputError of one line that holds all the parts, none of which is empty."""
    assert all(parts), "an empty part is in every message"
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@contextlib.contextmanager
def refused_value(name: str, value: object) -> Iterator[None]:
    """Expect an InputError that names an argument, and shows its value or says what it is."""
    with pytest.raises(InputError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(rf"\b{name}\b", message), message
    descriptions = [shown(value), type(value).__name__]
    if isinstance(value, list):
        descriptions += [text for item in value for text in (shown(item), type(item).__name__)]
    assert any(description in message for description in descriptions), message


def full_disk(*_: object) -> NoReturn:
    """Stand for a function of the system that writes."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
