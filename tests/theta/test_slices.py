"""Cutting a slice out of a tensor in memory, and setting it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.theta import slices
from gistgnn.theta.slices import gather, gather_into, index_of, scatter


@pytest.mark.parametrize("entries", [1, 50, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_in_pieces_as_at_once(entries: int, dtype: torch.dtype, data: st.DataObject) -> None:
    """However many entries are copied at a time."""
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 40)))
    values = torch.randint(2, shape).to(dtype) if dtype == torch.bool else torch.randn(shape).mul(9).to(dtype)
    cut = tuple(
        None
        if data.draw(st.booleans())
        else torch.tensor(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1))))
        for size in shape
    )
    expected = values[index_of(values, cut)].clone()
    before, slices._ENTRIES = slices._ENTRIES, entries
    try:
        assert torch.equal(gather(values, cut), expected)
        found: Tensor = torch.empty_like(expected, dtype=torch.float64)
        gather_into(found, values, cut)
        assert torch.equal(found.to(dtype), expected)
        found = torch.empty_like(expected)
        gather_into(found, values, cut)
        assert torch.equal(found, expected)
        new, target = torch.zeros_like(expected), values.clone()
        scatter(target, cut, new)
    finally:
        slices._ENTRIES = before
    values[index_of(values, cut)] = new
    assert torch.equal(target, values)
