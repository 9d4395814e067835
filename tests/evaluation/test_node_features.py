"""The features of all nodes between two layers."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.evaluation.node_features import NodeFeatures
from gistgnn.utils.transfer import column_blocks
from tests.helpers.refusals import refused
from tests.nn.strategies import examples

CPU = torch.device("cpu")


@given(st.integers(1, 100), st.integers(1, 120))
def test_column_blocks(width: int, most: int) -> None:
    blocks = column_blocks(width, most)
    assert [c for block in blocks for c in range(width)[block]] == list(range(width))
    sizes = [block.stop - block.start for block in blocks]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(blocks) == -(-width // most)


@examples
@given(st.data(), st.booleans(), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_what_was_put_is_read(data: st.DataObject, in_file: bool, dtype: torch.dtype) -> None:
    nodes, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 7))
    expected = torch.randn(nodes, width).to(dtype)
    blocks = column_blocks(width, data.draw(st.integers(1, 7)))
    stored = NodeFeatures.empty(nodes, blocks, CPU, dtype, in_file=in_file)
    step = data.draw(st.integers(1, 9))
    for start in range(0, nodes, step):
        piece = slice(start, min(start + step, nodes))
        stored.put(piece, expected[piece])
    start = data.draw(st.integers(0, nodes))
    assert torch.equal(stored.rows(slice(start, nodes)), expected[start:])
    some = torch.randperm(nodes)
    assert torch.equal(stored.rows(some), expected[some])
    for index, columns in enumerate(stored.blocks):
        assert torch.equal(stored.block(index), expected[:, columns])
        stored.put_block(index, slice(0, nodes), expected[:, columns] + 1)
    assert torch.equal(stored.rows(slice(0, nodes)), expected + 1)
    stored.close()
    stored.close()


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stored = NodeFeatures.empty(4, [slice(0, 2)], CPU, torch.float32, in_file=True)
    stored.put(slice(0, 4), torch.ones(4, 2))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, refused("missing", "No such file or directory", "TMPDIR"):
        patch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        NodeFeatures.empty(4, [slice(0, 2)], CPU, torch.float32, in_file=True)

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with refused("No space left on device", "allow more memory"):
        NodeFeatures.empty(4, [slice(0, 2)], CPU, torch.float32, in_file=True)
