"""Whether the threads between which torch splits an operation keep denormal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gistgnn.utils.denormals import denormals_as_zero


def denormal_products() -> set[str]:
    """Return which denormal products of each half are kept: all, some, or none.

    With two threads of torch, each of them computes a half.
    """
    products = torch.full((400_000,), 2.0**-120) * 2.0**-10
    kinds = set[str]()
    # As integers: a comparison of denormal numbers may take them for zero.
    for half in products.view(torch.int32).chunk(2):
        nonzero = int((half != 0).sum())
        if nonzero == 0:
            kinds.add("none")
        elif nonzero == len(half):
            kinds.add("all")
        else:
            kinds.add("some")
    return kinds


@contextmanager
def having_denormals(kept: bool) -> Iterator[None]:
    """Keep denormal numbers in the block, or not, as a user's program may have set it."""
    torch.set_flush_denormal(not kept)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def two_threads_of_torch() -> Iterator[None]:
    """Have two threads of torch in the block, of which the second has computed before."""
    torch.set_num_threads(2)
    denormal_products()
    try:
        yield
    finally:
        with denormals_as_zero():
            pass  # this ends threads that the block has left with another state
        torch.set_num_threads(1)
