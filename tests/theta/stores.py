"""The same run with Θ in every store."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn import GIST
from gistgnn.distributed import Alone
from gistgnn.layout.axes import Layout
from gistgnn.theta import Store
from gistgnn.theta.exchange import Exchange
from gistgnn.theta.memory import InMemory
from gistgnn.theta.slices import MOMENTS, Slices
from gistgnn.theta.theta import Theta
from gistgnn.utils.tensors import TensorSpec

OPTIMIZERS: dict[str, Any] = {
    "adam": partial(torch.optim.Adam, lr=0.1),
    "amsgrad": partial(torch.optim.Adam, lr=0.1, amsgrad=True),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "sgd": partial(torch.optim.SGD, lr=0.1),
}


def store(kind: str, folder: Path, precision: str = "float32") -> Store:
    return Store(kind, folder / "theta" if kind == "disk" else None, precision)


def theta_in_memory(layout: Layout, widths: Sequence[int], tensors: Mapping[str, Tensor]) -> Theta:
    """A Θ in the memory of one process, with tensors that are not copied."""
    specs = {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}
    return Theta(InMemory(Slices(layout, widths, specs), tensors), Exchange(Alone()))


def values(theta: Theta) -> dict[str, Tensor]:
    """Parameters, buffers and moments."""
    all_tensors = {
        **theta.place.tensors,
        **{key.removeprefix(MOMENTS): value for key, value in theta.place.moments.items()},
    }
    return {name: tensor.detach().clone() for name, tensor in all_tensors.items()}


def shaken(gist: GIST, rounds: int, carry: Any = None) -> None:
    """Rounds in which every sub-GCN takes two steps on random gradients.

    The gradients follow from the number of the round and from that of the sub-GCN.
    """
    for round_ in gist.rounds(rounds):
        for i, sub in enumerate(round_):
            generator = torch.Generator().manual_seed(1000 * round_.number + i)
            optimizer = (carry or torch.optim.Adam)(sub.parameters())
            if carry:
                round_.carry(i, optimizer)
            for _ in range(2):
                for parameter in sub.parameters():
                    parameter.grad = torch.randn(parameter.shape, generator=generator)
                optimizer.step()
            for buffer in sub.buffers():
                buffer += 1
