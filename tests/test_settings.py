import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.settings import LONGEST_ROUND, SHORTEST_ROUND, Training


@given(epochs=st.integers(1, 500), per_epoch=st.integers(1, 20), m=st.integers(1, 32))
def test_steps(epochs: int, per_epoch: int, m: int) -> None:
    each = Training(epochs, training="each").steps(per_epoch, m)
    split = Training(epochs).steps(per_epoch, m)
    assert each == epochs * per_epoch
    assert split >= 1
    assert split == 1 or abs(m * split - each) <= m / 2  # together the baseline's steps, to within rounding


@given(lr=st.floats(1e-6, 10), progress=st.floats(0, 1, exclude_max=True))
def test_rates(lr: float, progress: float) -> None:
    step, steps = int(progress * 10**6), 10**6
    assert Training(1, lr=lr).rate_at(step, steps) == lr
    tenths = 0 if step < steps / 2 else 1 if step < 3 * steps / 4 else 2
    assert Training(1, lr=lr, schedule="step").rate_at(step, steps) == pytest.approx(lr / 10**tenths)
    cosine = lr * math.cos(math.pi * step / steps / 2) ** 2
    assert Training(1, lr=lr, schedule="cosine").rate_at(step, steps) == pytest.approx(cosine, rel=1e-6, abs=1e-12)


@given(steps=st.integers(1, 10**6), m=st.integers(2, 64), every=st.integers(1, 4))
def test_chosen_rounds_train_nearly_every_weight(steps: int, m: int, every: int) -> None:
    zeta = Training(epochs=1, redraw_every=every).steps_in_round(steps, m)
    assert SHORTEST_ROUND <= zeta <= LONGEST_ROUND
    draws = -(-steps // zeta) // every
    enough = (1 - 1 / m) ** draws < 0.02 and draws >= 4 * m
    assert enough or zeta == SHORTEST_ROUND
    longer_would_not_do = steps // (zeta + 1) < 4 * m * every
    assert longer_would_not_do or zeta == LONGEST_ROUND
    assert Training(epochs=1, local_steps=3).steps_in_round(steps, m) == 3
