"""The bytes that a round sends, against what the optimisers of its sub-GCNs really hold."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler

from gistgnn import GIST, Training
from gistgnn.layout.axes import named_tensors
from gistgnn.storage.record import Sent
from tests.helpers.fitting import GRAPH, gcn


def mixed(parameters: Any, lr: float) -> optim.Optimizer:
    """RMSprop with a momentum for the matrices alone."""
    parameters = list(parameters)
    groups = [[p for p in parameters if (p.dim() > 1) == matrices] for matrices in (True, False)]
    return optim.RMSprop([{"params": groups[0], "momentum": 0.5}, {"params": groups[1]}], lr=lr)


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {},
    "adamw": {"optimizer": "adamw"},
    "sgd": {"optimizer": "sgd"},
    "sgd with momentum": {"optimizer": "sgd", "momentum": 0.9},
    "momentum of a scheduler": {
        "optimizer": "sgd",
        "schedule": partial(lr_scheduler.OneCycleLR, max_lr=0.1),
    },
    "SGD": {"optimizer": optim.SGD},
    "SGD with momentum": {"optimizer": optim.SGD, "momentum": 0.9},
    "SGD with momentum in a partial": {"optimizer": partial(optim.SGD, momentum=0.9)},
    "Adam with amsgrad": {"optimizer": partial(optim.Adam, amsgrad=True)},
    "RMSprop": {"optimizer": optim.RMSprop},
    "RMSprop, centred": {"optimizer": partial(optim.RMSprop, centered=True, momentum=0.5)},
    "Adagrad": {"optimizer": optim.Adagrad},
    "by groups": {"optimizer": mixed},
}


def held_bytes(sub: nn.Module, training: Training) -> int:
    """The bytes of a sub-GCN's tensors and of its optimiser's state after a step.

    Counters of steps are left out.
    """
    optimizer = training.make_optimizer(sub.parameters())
    training.begin_step(optimizer, 0, 8)
    for parameter in sub.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    tensors = [*named_tensors(sub).values()]
    for state in optimizer.state.values():
        for key, value in state.items():
            if key != "step" and isinstance(value, Tensor):
                tensors.append(value)
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_traffic_is_what_sub_gcns_and_their_optimisers_hold(name: str, norm: str) -> None:
    m = 3
    options = {"local_steps": 2, **OPTIMIZERS[name]}
    gist = GIST(gcn(norm=norm), (9, 7), m)
    result = gist.fit(GRAPH, epochs=2 * m, progress=False, **options)
    slices = sum(
        held_bytes(sub, Training(1, **options))
        for sub in GIST(gcn(norm=norm), (9, 7), m).begin_round()
    )
    # A slice comes from the other ranks' rows, and goes back.
    times_sent = 2 * (m - 1) / m
    expected = times_sent * slices / m
    assert result.traffic == Sent(workers=m, bytes_per_round=pytest.approx(expected))
    reset = GIST(gcn(norm=norm), (9, 7), m).fit(
        GRAPH, epochs=m, progress=False, optimizer_state="reset", **options
    )
    without_moments = sum(
        tensor.nbytes
        for sub in GIST(gcn(norm=norm), (9, 7), m).begin_round()
        for tensor in named_tensors(sub).values()
    )
    assert reset.traffic.bytes_per_round == pytest.approx(times_sent * without_moments / m)
