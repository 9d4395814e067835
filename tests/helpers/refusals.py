"""How a value that gistgnn cannot work with is to be refused."""

import contextlib
from collections.abc import Iterator

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
