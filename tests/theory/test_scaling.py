"""How what GIST adds to the error depends on the width, m and ζ."""

import pytest

from gistgnn.theory import Bound, recommended_step
from gistgnn.theory.measure_training import exponent, measure_added_error
from tests.theory.problems import orthogonal


def test_what_a_round_adds_falls_as_the_inverse_width() -> None:
    p, widths = orthogonal(), [256, 1024, 4096]
    eta = recommended_step(p, 2) / 4
    added = [measure_added_error(p, d_1, 2, 1, eta, draws=25, seeds=20) for d_1 in widths]
    assert abs(exponent(widths, added) + 1.0) <= 0.15


def test_what_a_round_adds_grows_with_short_local_steps_and_is_nothing_for_one_sub_gcn() -> None:
    p = orthogonal()
    eta = recommended_step(p, 2) / 400
    one, two, four = (measure_added_error(p, 1024, 2, zeta, eta, draws=25, seeds=4) for zeta in (1, 2, 4))
    assert one < two < four
    assert measure_added_error(p, 1024, 1, 2, eta, draws=2, seeds=2) < 1e-25
    assert four / one == pytest.approx(16.0, rel=0.05)  # ζ², while ηζ is small: the bound has ζ
    # where the sub-GCNs train until they fit y, they agree: with large steps it falls
    eta = recommended_step(p, 2)
    many, single = (measure_added_error(p, 1024, 2, zeta, eta, draws=10, seeds=2) for zeta in (32, 1))
    assert many < 0.1 * single


def test_with_m_what_a_round_adds_falls_where_the_bound_grows() -> None:
    p = orthogonal()
    eta = recommended_step(p, 2) / 40
    measured = [measure_added_error(p, 1024, m, 1, eta, draws=25, seeds=8) for m in (2, 4, 8)]
    bounds = [Bound(p, m, 1, eta, 1024, printed=True).round_error for m in (2, 4, 8)]
    assert bounds[0] < bounds[1] < bounds[2]
    for m, value in zip((4, 8), measured[1:], strict=True):
        assert value / measured[0] == pytest.approx(((m - 1) / m**4) / (1 / 2**4), rel=0.35)
