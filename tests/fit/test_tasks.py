"""What a loss says of the task, against plain torch.

Integers may be numbers, and two classes one decision.
"""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn import GIST, Graph
from gistgnn.training.loss import task_of
from tests.helpers.fitting import same, theta
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused

GRAPH = tiny_graph(60)
STEPS = 6
COUNTS = (GRAPH.x[:, 0] * 3).round().long() + 12
BINARY = (GRAPH.x[:, 0] > 0).long()


def data(y: Any) -> Data:
    masks = {f"{name}_mask": getattr(GRAPH, name) for name in ("train", "val", "test")}
    return Data(x=GRAPH.x, edge_index=GRAPH.edge_index, y=y, **masks)


def trainer(m: int = 1, outputs: int = 1) -> GIST:
    return GIST(
        lambda width: pyg.models.GraphSAGE(GRAPH.num_features, width, 2, outputs),
        8,
        m,
        seed=3,
        width_scaling="none",
    )


def plain(loss: Any, targets: Tensor) -> dict[str, Tensor]:
    """The parameters of PyG's model after a loop of torch alone."""
    model = trainer().model().train()
    model.load_state_dict(trainer().model().state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        out = model(GRAPH.x, GRAPH.edge_index)[GRAPH.train]
        loss(out, targets[GRAPH.train].float().reshape(out.shape)).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def check_trained(loss: Any, y: Any, expected: dict[str, Tensor], **options: Any) -> Any:
    gist = trainer()
    result = gist.fit(
        y,
        epochs=STEPS,
        schedule="constant",
        lr=0.01,
        standardise=False,
        loss=loss,
        progress=False,
        **options,
    )
    for name, tensor in theta(gist).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6)
    return result


NUMBERS: dict[str, tuple[Any, Any]] = {
    "mse": ("mse", F.mse_loss),
    "l1": ("l1", F.l1_loss),
    "huber": ("huber", F.huber_loss),
    "a module": (nn.MSELoss(), F.mse_loss),
    "a module with settings": (nn.HuberLoss(delta=0.3), partial(F.huber_loss, delta=0.3)),
    "counts": (nn.PoissonNLLLoss(), F.poisson_nll_loss),
    "a function": (F.smooth_l1_loss, F.smooth_l1_loss),
    "a partial": (partial(F.huber_loss, delta=0.3), partial(F.huber_loss, delta=0.3)),
    "by the name of a function": ("torch.nn.functional:mse_loss", F.mse_loss),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NUMBERS)
def test_integers_are_numbers_to_a_loss_of_numbers(name: str) -> None:
    loss, function = NUMBERS[name]
    expected = plain(function, COUNTS)
    result = check_trained(loss, data(COUNTS), expected)
    assert set(result.test) == {"r2", "mae", "rmse"}
    for y in (COUNTS.int(), COUNTS[:, None], COUNTS.double(), COUNTS.numpy()):
        check_trained(loss, data(y), expected)
    graph_of_classes = Graph.from_pyg(data(COUNTS))
    check_trained(loss, graph_of_classes, expected)
    assert graph_of_classes.num_classes > 1


def test_several_columns_of_integers_are_numbers_too() -> None:
    y = torch.stack([BINARY, 1 - BINARY], dim=1)
    gist = trainer(2, outputs=2)
    result = gist.fit(data(y), epochs=4, loss="mse", progress=False)
    assert set(result.test) == {"r2", "mae", "rmse"}
    with refused("the model gives 3 outputs", "build it with 1"):
        trainer(1, outputs=3).fit(data(COUNTS), epochs=1, loss="mse", progress=False)


DECISIONS: dict[str, tuple[Any, Any]] = {
    "by name": ("binary-cross-entropy", F.binary_cross_entropy_with_logits),
    "a module": (nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits),
    "weighted": (
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])),
        partial(F.binary_cross_entropy_with_logits, pos_weight=torch.tensor([3.0])),
    ),
    "a function": (F.binary_cross_entropy_with_logits, F.binary_cross_entropy_with_logits),
    "one's own": (
        lambda logits, targets: F.softplus(logits * (1 - 2 * targets)).mean(),
        F.binary_cross_entropy_with_logits,
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DECISIONS)
def test_two_classes_and_one_output_are_a_decision(name: str) -> None:
    loss, function = DECISIONS[name]
    expected = plain(function, BINARY)
    for y in (BINARY, BINARY.float(), BINARY[:, None]):
        result = check_trained(loss, data(y), expected)
        chosen = result.model(GRAPH.x, GRAPH.edge_index)[:, 0] > 0
        right = (chosen.long() == BINARY)[GRAPH.test].float().mean()
        assert result.test["accuracy"] == pytest.approx(float(right))
        assert result.metric.name == "accuracy"
    check_trained(loss, Graph.from_pyg(data(BINARY)), expected, metric="roc_auc")


def test_two_outputs_stay_two_classes() -> None:
    by_class = trainer(1, outputs=2)
    by_class.fit(data(BINARY), epochs=STEPS, loss="binary-cross-entropy", progress=False)
    labels = trainer(1, outputs=2)
    labels.fit(data(F.one_hot(BINARY).float()), epochs=STEPS, progress=False)
    assert same(theta(by_class), theta(labels))
    with refused("2"):
        trainer(1, outputs=1).fit(data(BINARY), epochs=1, loss="cross-entropy", progress=False)


def test_a_loss_of_classes_says_so_and_others_leave_it_open() -> None:
    for loss in (nn.CrossEntropyLoss(), "cross-entropy", F.nll_loss):
        assert task_of(loss) == "classes"
    for loss in (None, lambda outputs, targets: outputs):
        assert task_of(loss) is None
