"""JSON files with a checksum: written, read, and refused where they are damaged."""

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.storage.json_files import read_json, write_json
from tests.helpers.refusals import refused

CONTENT: dict[str, Any] = {"version": 3, "name": "x", "deep": {"a": {"b": []}}}
one_value = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text()
one_value |= st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    one_value,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Kind(msgspec.Struct):
    name: str
    deep: dict[str, Any] | None
    version: Literal[3] = 3


@settings(deadline=None)
@given(content=st.dictionaries(st.text(), json_values, max_size=5), indent=st.sampled_from([0, 2]))
def test_a_written_file_is_read(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any], indent: int
) -> None:
    content.pop("checksum", None)
    path = tmp_path_factory.getbasetemp() / "any.json"
    write_json(path, content, indent=indent)
    actual = read_json(path, dict[str, Any], "")
    assert actual == json.loads(path.read_text())
    assert list(actual)[-1] == "checksum"
    del actual["checksum"]
    assert actual == content


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with refused(f"{path} ", "do it again"):
        read_json(path, Kind, "do it again")
    for content, message in (
        ({**CONTENT, "version": 2}, "Invalid enum value 2 - at `$.version`"),
        ({"name": "x"}, "missing required field `deep`"),
        ({**CONTENT, "name": 5}, "Expected `str`, got `int` - at `$.name`"),
    ):
        write_json(path, content)
        with refused(f"{path} cannot be read", message, "; do it again"):
            read_json(path, Kind, "do it again")
    for text in ("", "{", json.dumps(CONTENT), "[" * 10**5):
        path.write_text(text)
        with refused(
            "has no checksum, so it is damaged, or an earlier version made it; do it again"
        ):
            read_json(path, Kind, "do it again")
