"""The planned work of an evaluation, whatever its method."""

from dataclasses import replace

import pytest

from gistgnn.evaluation import Evaluation
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.planning.ledger import Work
from gistgnn.planning.rates import flops, sparse_flops
from gistgnn.planning.rehearsal import rehearse
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training

SIZES = GraphSizes(4000, 40_000, 1000, "a graph", 50, 7)
CONFIG = RunConfig("a graph", ModelConfig("gcn", (64, 64)), 4, training=Training(epochs=8, local_steps=2))


def scoring(**evaluation: object) -> Work:
    (found,) = rehearse(replace(CONFIG, evaluation=Evaluation(**evaluation)), SIZES)
    return found.scoring


def arithmetic(work: Work) -> float:
    dense = sum(flops(shape) * times for shape, times in work.products.items())
    return dense + sum(sparse_flops(shape) * times for shape, times in work.sparse.items())


def test_layer_by_layer_the_arithmetic_is_that_of_the_whole_graph() -> None:
    whole, layers = scoring(method="whole"), scoring(method="layers")
    assert arithmetic(whole) > 2 * 4000 * (50 * 64 + 64 * 64 + 64 * 7)
    assert arithmetic(layers) == pytest.approx(arithmetic(whole), rel=0.2)
    assert layers.large + layers.bytes > whole.large + whole.bytes  # features are stored between steps


def test_features_in_files_take_time() -> None:
    assert scoring(method="layers").filed == 0
    assert scoring(method="layers", memory=2_200_000).filed > 2 * 4000 * 64 * 4


def test_every_part_is_counted() -> None:
    whole, parts = scoring(method="whole"), scoring(method="parts", parts=40)
    assert sum(flops(shape) * times for shape, times in parts.products.items()) == pytest.approx(
        sum(flops(shape) * times for shape, times in whole.products.items()), rel=0.2
    )
    half = scoring(method="parts", parts=40, sample=20)
    assert arithmetic(half) == pytest.approx(arithmetic(parts) / 2, rel=0.2)
