"""The fast training of the long run against training with `GIST`."""

from itertools import islice

import pytest
import torch

from benchmarks.theory_long_run import DRIFT, ERROR, NORMS, train_fast, window
from gistgnn.theory import complete, global_weights, limit_kernel, make_gist, recommended_step, train
from gistgnn.theory.model import start_without_error
from gistgnn.theory.problem import kernel
from tests.theory.test_round_lemmas import expected_deviation


@pytest.mark.parametrize(("m", "from_zero"), [(2, False), (3, True)])
def test_the_fast_training_is_that_of_gist(m: int, from_zero: bool) -> None:
    p, d_1, rounds = complete(5), 64, 40
    eta = recommended_step(p, m)
    fast = [at[ERROR] for at in train_fast(p, d_1, m, eta, rounds, 3, from_zero=from_zero)]
    start = start_without_error(p, d_1, m, 3) if from_zero else (make_gist(p, d_1, m, 3), p)
    slow = train(*start, rounds, 1, eta)
    torch.testing.assert_close(torch.tensor(fast, dtype=torch.float64), slow, rtol=1e-9, atol=1e-14)


def test_its_other_numbers_are_those_of_the_weights() -> None:
    p, d_1, m = complete(5), 64, 2
    gist = make_gist(p, d_1, m, 1)
    eta = recommended_step(p, m)
    train(gist, p, 3, 1, eta)
    *_, last = islice(train_fast(p, d_1, m, eta, 3, 1, from_zero=False, every=1), 4)
    theta = global_weights(gist)
    assert last[NORMS] == pytest.approx(expected_deviation(p, theta, m) * m**2 / (m - 1), rel=1e-9)
    limit = limit_kernel(p, m)
    off = [float(torch.linalg.matrix_norm(kernel(p, theta[:, b], d_1) - limit, ord=2)) for (b,) in gist.blocks(3)]
    assert last[DRIFT] == pytest.approx(max(off), rel=1e-9)


def test_a_window_is_the_last_fifth() -> None:
    assert window([0.0] * 81 + [1.0] * 20 + [9.0], 100) == pytest.approx(20 / 21)
