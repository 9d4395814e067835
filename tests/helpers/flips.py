"""Files in which one bit is flipped."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def flipped(path: Path, position: int, seed: int = 0) -> Iterator[None]:
    """Flip a bit of the byte at a position of a file, and put the byte back."""
    content = path.read_bytes()
    bit = 1 << random.Random(f"{seed} {position}").randrange(8)
    damaged = bytearray(content)
    damaged[position] ^= bit
    path.write_bytes(damaged)
    try:
        yield
    finally:
        path.write_bytes(content)


def some_bytes(path: Path, count: int) -> Sequence[int]:
    """The positions of some bytes of a file, from all parts of it; of a short file all."""
    size = path.stat().st_size
    if size <= count:
        return range(size)
    return sorted(random.Random(size).sample(range(size), count))
