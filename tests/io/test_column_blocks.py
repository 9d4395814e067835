import tempfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.io.column_blocks import InFile, InMemory, Stored, column_blocks
from tests.helpers.refusals import refused
from tests.nn.strategies import examples


@given(st.integers(1, 100), st.integers(1, 120))
def test_column_blocks(width: int, most: int) -> None:
    blocks = column_blocks(width, most)
    assert [c for block in blocks for c in range(width)[block]] == list(range(width))
    sizes = [block.stop - block.start for block in blocks]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(blocks) == -(-width // most)


@examples
@given(st.data(), st.sampled_from([InMemory, InFile]), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_what_was_put_is_read(data: st.DataObject, kind: type[Stored], dtype: torch.dtype) -> None:
    nodes, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 7))
    expected = torch.randn(nodes, width).to(dtype)
    stored = kind(nodes, column_blocks(width, data.draw(st.integers(1, 7))), expected)
    step = data.draw(st.integers(1, 9))
    for start in range(0, nodes, step):
        piece = slice(start, min(start + step, nodes))
        stored.put(piece, expected[piece])
    start = data.draw(st.integers(0, nodes))
    assert torch.equal(stored.rows(slice(start, nodes)), expected[start:])
    for index, columns in enumerate(stored.blocks):
        assert torch.equal(stored.block(index), expected[:, columns])
        stored.write(index, slice(0, nodes), expected[:, columns] + 1)
    assert torch.equal(stored.rows(slice(0, nodes)), expected + 1)
    stored.close()
    stored.close()


def test_the_file_has_no_name(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stored = InFile(4, [slice(0, 2)], torch.zeros(1))
    stored.put(slice(0, 4), torch.ones(4, 2))
    assert list(tmp_path.iterdir()) == []
    with refused("cannot be used", "cut short"):
        InFile(4, [slice(0, 2)], torch.zeros(1)).read(0, slice(0, 4))


def test_a_folder_that_cannot_be_written(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with refused("missing", "cannot be used (No such file or directory)", "TMPDIR"):
        InFile(4, [slice(0, 2)], torch.zeros(1))


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
    stored = InFile(4, [slice(0, 2)], torch.zeros(1))
    with refused("cannot be used (No space left on device)", "allow more memory"):
        stored.put(slice(0, 4), torch.ones(4, 2))
