"""How a value that gistgnn cannot work with is to be refused."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from gistgnn.errors import GistError, InputError


@contextlib.contextmanager
def refused(*parts: str, error: type[GistError] = InputError) -> Iterator[None]:
    """Expect an InputError of one line that holds all the parts."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def full_disk(*_: object) -> NoReturn:
    """Stand for a function of the system that writes."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
