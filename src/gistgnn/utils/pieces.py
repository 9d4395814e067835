"""Cutting a matrix into pieces that are in memory one after another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise


def row_pieces(rows: int, row_bytes: int, most: int) -> Iterator[slice]:
    """Cut rows into slices of consecutive ones, of at most ``most`` bytes each but at least one row."""
    step = max(most // max(row_bytes, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def column_blocks(width: int, most: int) -> list[slice]:
    """Cut ``width`` columns into the fewest blocks of at most ``most`` columns, of about equal size."""
    count = -(-width // most)
    cuts = [width * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]
