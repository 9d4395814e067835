import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.gist import choose_training
from gistgnn.settings import LONGEST_ROUND, SHORTEST_ROUND, Training
from tests.helpers.refusals import refused


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


BAD: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("epochs", "local_steps", "evaluate_every", "patience"), (0, -3, 1.5, "2", True)),
    "lr": (0, 0.0, -1, math.nan, math.inf, "0.1", None),
    "weight_decay": (-1e-9, math.nan, math.inf, "0"),
    "momentum": (-0.1, 1.0, 2, math.nan, 0.9),  # the last: of Adam, which has none
    "clip_norm": (0, -1, math.nan, math.inf),
    "training": ("both",),
    "optimizer": ("lion",),
    "schedule": ("linear",),
    "optimizer_state": ("keep",),
    "precision": ("fp16",),
}


@pytest.mark.parametrize("name", BAD)
def test_a_value_out_of_range_is_refused(name: str) -> None:
    for value in BAD[name]:
        with refused(f"{name} is ", str(value)):
            Training(**{"epochs": 1, name: value})  # type: ignore[arg-type]


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


def test_settings_are_given_as_a_whole_or_one_by_one() -> None:
    assert choose_training(None, {"epochs": 3, "lr": 0.5, "patience": None}) == Training(3, lr=0.5)
    assert choose_training(Training(3), {"epochs": None, "lr": None}) == Training(3)
    with refused("epochs is missing"):
        choose_training(None, {"epochs": None, "lr": 0.5})
    with refused("lr is given beside a Training"):
        choose_training(Training(3), {"epochs": None, "lr": 0.5})
