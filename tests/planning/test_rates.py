"""Times from rates."""

from collections import Counter

import pytest
import torch

from gistgnn.planning.ledger import Product, Work
from gistgnn.planning.rates import Rates, measure, measured

LARGE = Product(1, 5000, 300, 2000, torch.float32)


def test_time_is_work_over_rate() -> None:
    rates = Rates({measured(LARGE): 1e9}, copied=2e9, sparse=1e8)
    work = Work(Counter({LARGE: 3}), bytes=4 * 10**9, sparse=10**8)
    assert rates.seconds(work) == pytest.approx(3 * 2 * 5 * 0.3 * 2 + 2 + 1)


def test_large_products_are_measured_at_a_smaller_size() -> None:
    assert measured(LARGE) == Product(1, 1024, 300, 1024, torch.float32)
    assert measured(measured(LARGE)) == measured(LARGE)


def test_the_machine_is_measured_at_the_shapes_in_question() -> None:
    shapes = [Product(1, 64, 32, 16, torch.float32), Product(3, 8, 8, 8, torch.bfloat16)]
    work = [Work(Counter({shape: 1}), bytes=1000, sparse=1000) for shape in shapes]
    rates = measure(work, torch.device("cpu"))
    assert set(rates.products) == set(shapes)
    assert all(0 < rates.seconds(each) < 1 for each in work)
