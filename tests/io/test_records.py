"""JSON files with a checksum: written, read, and refused where they are damaged."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.errors import InputError
from gistgnn.io import records
from gistgnn.io.records import checked, parsed, read_record, with_checksum, write_record
from gistgnn.utils.checksums import digest_of
from tests.helpers.flips import every_byte, flipped
from tests.helpers.refusals import refused

CONTENT = {"name": 'é \\ " 1e-05', "numbers": [1, 2.5, 1e-5, -0.0, True, None], "deep": {"a": {"b": []}}, "2": 3}
SCHEMA: records.Schema = {"name": str, "numbers": list, "deep": (dict, type(None))}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read(path: Path) -> dict[str, Any]:
    return read_record(path, 3, SCHEMA, "do it again")


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_what_is_written_is_read(content: dict[str, Any]) -> None:
    record = with_checksum(content, 1)
    again = checked(parsed(json.dumps(record, indent=1)), 1, {})
    assert json.dumps(again) == json.dumps(record)
    assert list(again)[-1] == "checksum"
    assert with_checksum(again, 1) == again or "NaN" in json.dumps(again)


def still_reads(path: Path, record: dict[str, Any]) -> bool:
    """Whether a file is read, with the values that were written; otherwise it is refused."""
    try:
        found = read(path)
    except InputError as error:
        if not str(error).startswith(f"{path} "):
            raise
        return False
    return found == record or pytest.fail("another value was read")


@pytest.mark.parametrize("indent", [None, 2])
def test_every_flipped_byte_is_refused_or_leaves_the_values(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "r.json"
    record = write_record(path, CONTENT, 3, indent)
    same = 0
    for seed in range(8):
        for place in every_byte(path):
            with flipped(path, place, seed):
                same += still_reads(path, record)
    assert same < 30, "such as 1e-05 and 1E-05"
    assert read(path) == record


def with_own_checksum(**content: Any) -> str:
    return json.dumps({**content, "checksum": digest_of(content)})


GOOD: dict[str, Any] = {"version": 3, "name": "x", "numbers": [], "deep": None}
WRONG: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is damaged: JSONDecodeError"),
    "torn": ("{", "is damaged: JSONDecodeError"),
    "a list": ("[1]", "holds a list"),
    "no checksum": (json.dumps(GOOD), "has no checksum, so it is damaged, or an earlier version made it"),
    "other values": (with_own_checksum(**GOOD).replace('"x"', '"y"'), "its checksum does not fit"),
    "checksum first": (json.dumps({"checksum": digest_of(GOOD), **GOOD}), "its checksum does not fit"),
    "infinity": (with_own_checksum(**GOOD).replace("[]", "[1e999]"), "its checksum does not fit"),
    "twice": (with_own_checksum(**GOOD).replace('"name"', '"version": 3, "name"', 1), "it has an entry twice"),
    "nested": ("[" * 10**5, "nested too deeply"),
    "nested entries": ('{"a":' * 10**5, "nested too deeply"),
    "a huge number": ("1" * 10**5, "is damaged: ValueError"),
    "not UTF-8": (b'{"a": "\xff"}', "it is not UTF-8"),
    "other version": (with_own_checksum(**{**GOOD, "version": 2}), "is of version 2, this gistgnn reads 3"),
    "missing": (with_own_checksum(version=3, name="x", numbers=[]), "has no 'deep'"),
    "other type": (with_own_checksum(**{**GOOD, "name": 5}), "has 'name' of type int, expected str"),
    "other types": (with_own_checksum(**{**GOOD, "deep": 5}), "has 'deep' of type int, expected dict or NoneType"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(tmp_path: Path, case: str) -> None:
    text, said = WRONG[case]
    path = tmp_path / "r.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with refused(f"{path} ", said, "; do it again"):
        read(path)


def test_what_is_no_file_of_a_sensible_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("is no regular file"):
        read(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with refused("is no regular file"):
            read(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing")
    write_record(tmp_path / "large", CONTENT, 3)
    monkeypatch.setattr(records, "LARGEST", 100)
    with refused("bytes, more than 100"):
        read(tmp_path / "large")


def test_a_record_that_was_read_can_be_written_again(tmp_path: Path) -> None:
    record = write_record(tmp_path / "one", CONTENT, 3)
    assert write_record(tmp_path / "two", read(tmp_path / "one"), 3) == record
    changed: Callable[[], Any] = lambda: write_record(tmp_path / "two", {**record, "name": "y"}, 3)  # noqa: E731
    assert changed()["checksum"] != record["checksum"]
