"""Fast checksums, by xxHash. They find damage and mix-ups; they do not stop somebody who forges a file."""

import json
from typing import Any

import torch
import xxhash
from torch import Tensor


def checksum(tensor: Tensor, start: int = 0) -> int:
    """Return a checksum of 32 bits of a tensor's bytes; `start` is the checksum of what comes before."""
    return xxhash.xxh32_intdigest(bytes_of(tensor), start)


def digest_of(content: Any) -> str:
    """Return a digest of 128 bits, as 32 hexadecimal digits, of what JSON can hold; the order of keys counts."""
    text = json.dumps(content, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor of any type; they are copied only if it is not contiguous on the host."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data)
