"""Fast checksums, by xxHash. They find damage and mix-ups; they do not stop somebody who forges a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import xxhash
from torch import Tensor

from gistgnn.utils.tensor_bytes import bytes_of


def checksum(tensor: Tensor, start: int = 0) -> int:
    """Return a checksum of 32 bits of a tensor's bytes.

    Args:
        tensor: of any shape and type, on any device.
        start: the checksum of what comes before.
    """
    return xxhash.xxh32_intdigest(bytes_of(tensor), start)


def checksum_of_pieces(pieces: Iterable[Tensor]) -> int:
    """Return the checksum of a tensor whose rows come in pieces."""
    hashed = xxhash.xxh32()
    for piece in pieces:
        hashed.update(bytes_of(piece))
    return hashed.intdigest()


def digest_of(content: Any) -> str:
    """Return a digest of 128 bits, as 32 hexadecimal digits, of what JSON can hold; the order of keys counts."""
    text = json.dumps(content, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())
