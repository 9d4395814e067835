import contextlib

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.utils.random_streams import Stream, generator

keys = st.tuples(
    st.integers(0, 2**40),
    st.sampled_from(["a", "b", "blocks"]),
    st.integers(0, 99),
    st.integers(0, 99),
)


@settings(deadline=None, max_examples=50)
@given(one=keys, other=keys)
def test_streams_are_equal_exactly_if_the_keys_are(one: tuple, other: tuple) -> None:
    drawn = [generator(*key).integers(2**62, size=4).tolist() for key in (one, other)]
    assert (drawn[0] == drawn[1]) == (one == other)
    before = torch.random.get_rng_state()
    with contextlib.suppress(KeyError), Stream(*one):
        first = torch.rand(8)
        raise KeyError
    with Stream(*other):
        second = torch.rand(8)
    assert torch.equal(torch.random.get_rng_state(), before)  # also after an error
    assert torch.equal(first, second) == (one == other)
