"""Times from rates."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.planning.ledger import Product, SparseProduct, Work
from gistgnn.planning.rates import Rates, measure, measured, measured_sparse

LARGE = Product(1, 5000, 300, 2000, torch.float32)
SPARSE = SparseProduct(10**5, 10**4, 500)


def test_time_is_work_over_rate() -> None:
    rates = Rates({measured(LARGE): 1e9}, {measured_sparse(SPARSE): 1e8}, 2e9, 1e9, 1e4, (0.1, 1e-3))
    work = Work(Counter({LARGE: 3}), Counter({SPARSE: 2}), bytes=4 * 10**9, large=10**9, filed=10**9, operations=5000)
    seconds = 3 * 2 * 5 * 0.3 * 2 + 2 * 2 * 0.5 + 2 + 1 + 1 + 0.5
    assert rates.seconds(work) == pytest.approx(seconds)
    work.scored = 200
    assert rates.seconds(work) == pytest.approx(seconds + 0.1 + 0.2)


def test_work_adds_up() -> None:
    work = Work(Counter({LARGE: 1}), bytes=10, large=4, operations=2)
    work.add(Work(Counter({LARGE: 2}), Counter({SPARSE: 1}), bytes=10, filed=3, operations=1), times=1.5)
    assert work.products == {LARGE: 4}
    assert work.sparse == {SPARSE: 1.5}
    assert (work.bytes, work.large, work.filed, work.operations) == (25, 4, 4, 4)


def test_large_products_are_measured_at_a_smaller_size() -> None:
    assert measured(LARGE) == Product(1, 1024, 300, 1024, torch.float32)
    assert measured(measured(LARGE)) == measured(LARGE)


@given(st.builds(SparseProduct, *[st.integers(0, 10**10)] * 3))
def test_sparse_products_are_measured_at_few_sizes(product: SparseProduct) -> None:
    size = measured_sparse(product)
    assert measured_sparse(size) == size
    assert 2 * size.entries * size.columns <= 2**27
    assert 4 * size.inputs * size.columns <= 2**25


def test_the_machine_is_measured_at_the_shapes_in_question() -> None:
    shapes = [Product(1, 64, 32, 16, torch.float32), Product(3, 8, 8, 8, torch.bfloat16)]
    work = [Work(Counter({shape: 1}), Counter({SPARSE: 1}), bytes=1000, large=1000) for shape in shapes]
    rates = measure(work, torch.device("cpu"))
    assert set(rates.products) == set(shapes)
    assert all(0 < rates.seconds(each) < 1 for each in work)
