"""JSON files that gistgnn writes and reads back.

The last entry of each file is a checksum of all text before it.
"""

import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import xxhash

from gistgnn.errors import InputError
from gistgnn.storage.whole_files import reading, replacing

T = TypeVar("T")

_END = re.compile(rb'(.*?),?\s*"checksum": ?"([0-9a-f]{32})"\s*\}\s*', re.DOTALL)


def write_json(path: Path, content: Any, *, indent: int = 0) -> None:
    """Write a struct or a dict with a checksum, as a whole or not at all.

    With `indent` 0 all of it is on one line.
    """
    text = encoded(content)
    text = json.dumps(json.loads(text), indent=indent).encode() if indent else text
    begin = text[:-1].rstrip()  # without the last brace
    comma = b"," if len(begin) > 1 else b""
    space = b"\n" + b" " * indent if indent else b""
    end = b'%s%s"checksum": "%s"%s}\n' % (
        comma,
        space,
        xxhash.xxh3_128_hexdigest(begin).encode(),
        space[:1],
    )
    with replacing(path) as temporary:
        temporary.write_bytes(begin + end)


def encoded(content: Any) -> bytes:
    """Return a struct or a dict as JSON; NumPy's numbers become Python's, NaN becomes null."""
    try:
        return msgspec.json.encode(content, enc_hook=_item)
    except UnicodeEncodeError:  # the name of a file may have any bytes
        return json.dumps(msgspec.to_builtins(content, enc_hook=_item)).encode()


def _item(number: Any) -> Any:
    return number.item()  # of NumPy


def plain(content: Any) -> Any:
    """Return a copy of what JSON can hold, as a file gives it back.

    Tuples become lists, and numbers that are keys become texts.
    """
    return json.loads(encoded(content))


def read_json(path: Path, kind: type[T], advice: str) -> T:
    """Read a file of `write_json` as a struct.

    If it is missing or damaged, the InputError ends with the advice.
    """
    with reading(path, advice):
        text = path.read_bytes()
        match = _END.fullmatch(text)
        if not match:
            raise InputError(
                f"{path} has no checksum, so it is damaged, or an earlier version made it; {advice}"
            )
        if xxhash.xxh3_128_hexdigest(match[1]).encode() != match[2]:
            why = "is damaged, or an earlier version made it: its checksum does not fit"
            raise InputError(f"{path} {why}; {advice}")
        return msgspec.convert(json.loads(text), type=kind)
