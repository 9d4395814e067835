"""Checkpoints that several processes write, and others read."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.storage.checkpoints import Checkpoint, Checkpoints, Part
from gistgnn.utils.tensors import digest_of

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]


def rows_of(tensor: Tensor, count: int, rank: int) -> range:
    """A rank's rows, as `torch.chunk` deals them; single numbers are rank 0's."""
    rows = (*tensor.shape, 1)[0]
    each = -(-rows // count)
    return range(min(rank * each, rows), min((rank + 1) * each, rows))


def parts_of(tensors: dict[str, Tensor], count: int, rank: int) -> dict[str, Part]:
    parts = {}
    for name, tensor in tensors.items():
        if own := rows_of(tensor, count, rank):
            part = tensor[own.start : own.stop] if tensor.dim() else tensor
            parts[name] = Part(part, tensor.shape, own.start)
    return parts


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Tensor]:
    found = {}
    for k in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(1, 9), max_size=3))
        values = torch.randn(shape, generator=torch.Generator().manual_seed(k)) * 100
        tensor = values.to(draw(st.sampled_from(DTYPES)))
        found[f"theta/conv.{k}/w"] = tensor.T.contiguous().T if tensor.dim() == 2 else tensor
    return found


@settings(max_examples=40, deadline=None)
@given(tensors(), st.integers(1, 5), st.integers(1, 5))
def test_what_some_write_others_read(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Tensor], writers: int, readers: int
) -> None:
    saved = Checkpoints(tmp_path_factory.mktemp("parts"))
    for rank in range(writers):
        saved.write(4, parts_of(tensors, writers, rank), rank)
    saved.complete(4, {"a": 1}, {"lr": 0.1}, writers)
    assert saved.newest_state(dict) == {"a": 1}
    found = Checkpoint(saved.place(4), {"lr": 0.1})
    assert found.shapes == {name: tensor.shape for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        assert torch.equal(found.tensor(name), tensor)
        for rank in range(readers) if tensor.dim() else ():
            own = rows_of(tensor, readers, rank)
            assert torch.equal(found.rows(name, own.start, own.stop), tensor[own.start : own.stop])


def test_the_id_of_a_run_follows_from_its_settings() -> None:
    one = {"lr": 0.1, "widths": (8, 8), "graph": ["cora", 5]}
    assert digest_of(one) == digest_of({"graph": ["cora", np.int64(5)], "widths": [8, 8], "lr": np.float64(0.1)})
    assert digest_of(one) != digest_of({**one, "lr": 0.2})
