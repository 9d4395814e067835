"""The fast training of the long run against training with `GIST`."""

import pytest
import torch

from benchmarks.theory_long_run import ERROR, train_fast
from gistgnn.theory import complete, make_gist, recommended_step, train
from gistgnn.theory.model import start_without_error


@pytest.mark.parametrize(("m", "from_zero"), [(2, False), (3, True)])
def test_the_fast_training_is_that_of_gist(m: int, from_zero: bool) -> None:
    p = complete(5)
    d_1 = 64
    rounds = 40
    eta = recommended_step(p, m)
    fast = [at[ERROR] for at in train_fast(p, d_1, m, eta, rounds, 3, from_zero=from_zero)]
    start = start_without_error(p, d_1, m, 3) if from_zero else (make_gist(p, d_1, m, 3), p)
    slow = train(*start, rounds, 1, eta)
    torch.testing.assert_close(torch.tensor(fast, dtype=torch.float64), slow, rtol=1e-9, atol=1e-14)
