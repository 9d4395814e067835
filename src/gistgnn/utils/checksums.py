"""Fast checksums, by xxHash. They find damage and mix-ups; they do not stop somebody who forges a file."""

from __future__ import annotations

import json
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


def digest_of(content: Any) -> str:
    """Return a digest of 128 bits, as 32 hexadecimal digits, of what JSON can hold; the order of keys counts."""
    text = json.dumps(content, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())
