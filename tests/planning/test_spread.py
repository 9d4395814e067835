"""Projections of a run on many ranks."""

from dataclasses import replace

import pytest

from gistgnn.planning import GraphSizes, Network, spread
from gistgnn.planning.spread import DELAYS
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from tests.helpers.refusals import refused

SIZES = GraphSizes(2000, 20000, 1000, "g", 100, 10)
CONFIG = RunConfig("g", ModelConfig("graphsage", (64, 64)), training=Training(4, 50))


def test_more_ranks_train_less_each_and_send_less_each() -> None:
    network = Network(1e6, 0.01)
    found = spread(CONFIG, SIZES, [1, 2, 4, 8], network, [8])
    assert [each.ranks for each in found] == [1, 2, 4, 8]
    alone = found[0]
    assert alone.exchange == alone.costs.gist == alone.local_sgd == 0
    assert alone.speedup == 1
    for each in found[1:]:
        assert each.training == pytest.approx(alone.training / each.ranks)
        assert each.exchange == pytest.approx(each.costs.gist / 1e6 + DELAYS * 0.01)
        assert each.speedup == pytest.approx(alone.round / each.round)
        assert each.costs.gist < each.costs.local_sgd < each.costs.data_parallel
        assert each.over_baseline / each.speedup == pytest.approx(alone.over_baseline)
    assert found[1].costs.gist > found[2].costs.gist > found[3].costs.gist
    assert found[1].theta == pytest.approx(alone.theta / 2, abs=1)


def test_as_many_sub_gcns_as_ranks_unless_it_is_said() -> None:
    network = Network(1e9)
    assert [(each.ranks, each.sub_gcns) for each in spread(CONFIG, SIZES, [2, 4], network)] == [(2, 2), (4, 4)]
    found = spread(CONFIG, SIZES, [2, 4], network, [2, 8])
    assert [(each.ranks, each.sub_gcns) for each in found] == [(2, 2), (2, 8), (4, 8)]


def test_carried_moments_travel_too() -> None:
    carried = RunConfig("g", CONFIG.model, training=replace(CONFIG.training, optimizer_state="carry"))
    reset, carry = (spread(config, SIZES, [4], Network(1e9))[0].costs.gist for config in (CONFIG, carried))
    assert carry == pytest.approx(3 * reset, rel=1e-3)  # Adam's two, and its counts of steps


def test_what_cannot_be_is_refused() -> None:
    with refused("m = 128 is more than the widths allow", "fewer --ranks"):
        spread(CONFIG, SIZES, [2, 128], Network(1e9))
    with refused("ranks is 16, more than any m (8)", "each rank trains one at least"):
        spread(CONFIG, SIZES, [4, 16], Network(1e9), [2, 8])
