"""Files in which one bit is flipped."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def flipped(path: Path, place: int, seed: int = 0) -> Iterator[None]:
    """Flip a bit of the byte at a place of a file, and put the byte back."""
    whole = path.read_bytes()
    bit = 1 << random.Random(f"{seed} {place}").randrange(8)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
    try:
        yield
    finally:
        path.write_bytes(whole)


def some_bytes(path: Path, count: int) -> Sequence[int]:
    """The places of some bytes of a file, from all parts of it; of a short file all."""
    size = path.stat().st_size
    return range(size) if size <= count else sorted(random.Random(size).sample(range(size), count))
