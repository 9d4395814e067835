"""JSON files that gistgnn writes and reads back. The last entry of each is a checksum of all others."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError, reason
from gistgnn.storage.whole_files import replacing
from gistgnn.utils.checksums import digest_of

CHECKSUM, VERSION = "checksum", "version"
LARGEST = 2**30  # bytes

Schema = Mapping[str, type | tuple[type, ...]]  # the entries that a record must have, and their types


class RecordError(ValueError):
    """What is wrong with the content of a file, in a few words."""


def with_checksum(content: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return the content as a file holds it: with its version, and its checksum in the last place.

    Args:
        content: what JSON can hold, with texts as keys. A version and a checksum that are in it are replaced.
        version: of the form of the content.
    """
    plain = {name: value for name, value in content.items() if name not in (CHECKSUM, VERSION)}
    record = json.loads(json.dumps({VERSION: version, **plain}))  # tuples become lists, numbers as keys become texts
    return {**record, CHECKSUM: digest_of(record)}


def write_record(path: Path, content: Mapping[str, Any], version: int, indent: int | None = None) -> dict[str, Any]:
    """Write a JSON file with a checksum, as a whole or not at all; the arguments are as for `with_checksum`.

    Returns:
        What the file holds.

    Raises:
        InputError: the file cannot be written.
    """
    record = with_checksum(content, version)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=indent) + "\n", encoding="utf-8")
    return record


def read_record(path: Path, version: int, schema: Schema, advice: str) -> dict[str, Any]:
    """Read a file that `write_record` has written.

    Args:
        path: the file.
        version: the one that is expected.
        schema: the entries that the file must have, and their types.
        advice: what to do about a damaged file; it ends the message.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it cannot be read, is damaged, or is of another version.
    """
    try:
        return load_record(path, version, schema)
    except FileNotFoundError:
        raise
    except RecordError as error:
        raise InputError(f"{path} {error}; {advice}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or reason(error)}); {advice}") from error


def load_record(path: Path, version: int, schema: Schema) -> dict[str, Any]:
    """Read a file as `read_record` does.

    Raises:
        OSError: it cannot be read.
        RecordError: it is damaged, or of another version.
    """
    try:
        return checked(parsed(text_of(path)), version, schema)
    except RecursionError as error:
        raise RecordError("is damaged: it is nested too deeply") from error


def checked(record: Any, version: int, schema: Schema) -> dict[str, Any]:
    """Return the content of a file, if its checksum, its version and its entries are right.

    Raises:
        RecordError: they are not.
    """
    if not isinstance(record, dict):
        raise RecordError(f"holds a {type(record).__name__}, not the entries of a record")
    if CHECKSUM not in record:
        raise RecordError("has no checksum, so it is damaged, or an earlier version made it")
    own = {name: value for name, value in record.items() if name != CHECKSUM}
    if list(record)[-1] != CHECKSUM or record[CHECKSUM] != digest_of(own):
        raise RecordError("is damaged: its checksum does not fit")
    if record.get(VERSION) != version:
        raise RecordError(f"is of version {record.get(VERSION)!r}, this gistgnn reads {version}")
    for name, kinds in schema.items():
        if name not in record:
            raise RecordError(f"has no '{name}'")
        if not isinstance(record[name], kinds):
            raise RecordError(f"has '{name}' of type {type(record[name]).__name__}, expected {_named(kinds)}")
    return record


def parsed(text: str) -> Any:
    """Return what JSON text says.

    Raises:
        RecordError: it is no JSON, or has an entry twice.
        RecursionError: it is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"is damaged: {reason(error)}") from error


def text_of(path: Path) -> str:
    """Return the text of a regular file of a sensible size; a pipe would wait for ever.

    Raises:
        OSError: it cannot be read.
        RecordError: it is something else, too large, or not UTF-8.
    """
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise RecordError("is no regular file")
    if about.st_size > LARGEST:
        raise RecordError(f"has {about.st_size:,} bytes, more than {LARGEST:,}")
    content = path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RecordError("is damaged: it is not UTF-8") from error


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RecordError("is damaged: it has an entry twice")
    return found


def _named(kinds: type | tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
