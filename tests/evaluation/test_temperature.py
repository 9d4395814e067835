"""The temperature that makes probabilities of a model's logits."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gistgnn import GIST, load_run
from gistgnn.evaluation.scores import predict
from gistgnn.evaluation.temperature import LEAST, MOST_NODES, fitted_temperature, fitting_nodes
from gistgnn.graphs import load
from gistgnn.nn import GCN
from gistgnn.sampling import whole_graph


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_the_temperature_undoes_a_factor(several: bool, factor: float) -> None:
    torch.manual_seed(0)
    logits = 2 * torch.randn(20_000, 5)
    if several:
        targets = logits.sigmoid().bernoulli()
    else:
        targets = logits.softmax(dim=1).multinomial(1).squeeze(1)
    assert fitted_temperature(factor * logits, targets) == pytest.approx(factor, rel=0.05)


def test_the_temperature_has_a_bound_where_every_node_is_right() -> None:
    assert fitted_temperature(torch.eye(3), torch.arange(3)) == pytest.approx(LEAST, rel=0.05)


@pytest.mark.parametrize("nodes", [0, 10, MOST_NODES, MOST_NODES + 1, 7 * MOST_NODES])
def test_the_temperature_is_fitted_to_a_bounded_number_of_nodes(nodes: int) -> None:
    mask = torch.arange(8 * MOST_NODES) < nodes
    few = fitting_nodes(mask)
    assert not (few & ~mask).any()
    assert min(nodes, MOST_NODES) // 2 <= int(few.sum()) <= MOST_NODES


def test_a_merged_model_is_less_sure_of_itself_with_its_temperature(tmp_path: Path) -> None:
    graph = load("digits")

    def build(widths: Sequence[int]) -> GCN:
        return GCN(graph.num_features, widths, graph.num_classes)

    gist = GIST(build, widths=(32, 32), sub_gcns=4, width_scaling="none")
    result = gist.fit(graph, epochs=100, lr=0.04, progress=False)
    result.save(tmp_path / "run")
    assert load_run(tmp_path / "run", build).temperature == result.temperature > 1.5
    logits = predict(result.model, whole_graph(graph))[graph.test]
    truth = graph.y[graph.test]
    with_temperature = F.cross_entropy(logits / result.temperature, truth)
    assert with_temperature < 0.8 * F.cross_entropy(logits, truth)
