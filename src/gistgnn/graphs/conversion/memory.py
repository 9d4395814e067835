"""The memory that a conversion may take."""

from __future__ import annotations

from gistgnn.errors import InputError
from gistgnn.utils.checks import check_number
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import held_bytes

DEFAULT = 2 * 2**30
_LEAST = 2**28  # bytes beside what the process takes already


def room_within(memory: int | None) -> int:
    """Return the bytes that are left of ``memory``; None: of 2 GiB, or of 1 GiB more than the process takes already.

    Raises:
        InputError: too little is left.
    """
    held = held_bytes()
    if memory is None:
        return max(DEFAULT - held, DEFAULT // 2)
    check_number("memory", memory, above=True)
    if memory < held + _LEAST:
        raise InputError(
            f"memory is {size(memory)}; expected at least {size(held + _LEAST)}: the process takes {size(held)} already"
        )
    return memory - held
