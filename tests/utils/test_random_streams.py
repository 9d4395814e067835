import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.utils.random_streams import check_seed, generator, torch_stream
from tests.helpers.refusals import refused

keys = st.tuples(st.integers(0, 2**40), st.sampled_from(["a", "b", "blocks"]), st.integers(0, 99), st.integers(0, 99))


@settings(deadline=None, max_examples=50)
@given(one=keys, other=keys)
def test_streams_are_equal_exactly_if_the_keys_are(one: tuple, other: tuple) -> None:
    drawn = [generator(*key).integers(2**62, size=4).tolist() for key in (one, other)]
    assert (drawn[0] == drawn[1]) == (one == other)
    with torch_stream(*one):
        first = torch.rand(8)
    with torch_stream(*other):
        second = torch.rand(8)
    assert torch.equal(first, second) == (one == other)


def test_torch_stream_leaves_the_global_stream_as_it_was() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2, 5)
    torch.manual_seed(3)
    first = torch.rand(5)
    with torch_stream(1, "a"):
        torch.rand(100)
    assert torch.equal(torch.stack([first, torch.rand(5)]), expected)


def test_torch_stream_restores_after_an_error() -> None:
    before = torch.random.get_rng_state()

    def failing() -> None:
        with torch_stream(1, "a"):
            torch.rand(3)
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0", None])
def test_bad_seed_is_refused(seed: object) -> None:
    with refused("seed is", repr(seed)):
        check_seed(seed)  # type: ignore[arg-type]
