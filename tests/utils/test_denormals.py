"""Denormal numbers: zero in every thread that computes in the block, and as before after it."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from gistgnn.utils.denormals import denormals_as_zero
from gistgnn.utils.prefetch import prefetch
from tests.helpers.denormals import denormal_products, having_denormals, two_threads_of_torch


@pytest.fixture
def two_threads() -> Iterator[None]:
    with two_threads_of_torch():
        yield


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_all_threads_of_torch_change_and_change_back(
    two_threads: None, keep: bool, error: type[BaseException] | None
) -> None:
    with having_denormals(keep):
        with pytest.raises(error) if error else nullcontext(), denormals_as_zero():
            assert denormal_products() == {"none"}
            if error:
                raise error
        assert denormal_products() == ({"all"} if keep else {"none"})


def test_a_block_within_a_block_leaves_the_outer_one_as_it_was(two_threads: None) -> None:
    with denormals_as_zero():
        with denormals_as_zero():
            assert denormal_products() == {"none"}
        assert denormal_products() == {"none"}
    assert denormal_products() == {"all"}


def test_a_prefetching_thread_computes_as_the_block_where_it_began(two_threads: None) -> None:
    with denormals_as_zero():
        within = list(prefetch(denormal_products() for _ in range(3)))
    after = list(prefetch(denormal_products() for _ in range(3)))
    assert within == [{"none"}] * 3
    assert after == [{"all"}] * 3


def test_backward_computes_as_the_block(two_threads: None) -> None:
    seen = list[set[str]]()
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda gradient: seen.append(denormal_products()))
    with denormals_as_zero():
        (2 * weight).sum().backward()
    (2 * weight).sum().backward()
    assert seen == [{"none"}, {"all"}]


def test_a_processor_that_keeps_denormal_numbers_goes_on(
    two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_flush_denormal", lambda mode: False)
    with denormals_as_zero():
        assert denormal_products() == {"all"}
    assert denormal_products() == {"all"}
