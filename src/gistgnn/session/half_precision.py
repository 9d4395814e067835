"""A note where bf16 makes a run slower: many processors compute in bfloat16 only by a detour."""

import logging
import time
from dataclasses import replace

import torch
import torch.nn.functional as F

from gistgnn.session.trainer import Trainer
from gistgnn.settings import Training

log = logging.getLogger(__name__)

LARGEST = 1024  # width of a measured product; wider ones are in the same ratio
OPERATIONS = 5e8  # of a product, so that all of it takes tenths of a second
REPEATS = 3
NOTED = 1.1  # a smaller ratio may be chance


def note_if_bf16_is_slower(trainer: Trainer, training: Training, nodes: int) -> None:
    """Measure a product of the sub-GCNs in float32 and bf16, on the CPU, and log by how much bf16 is slower.

    Args:
        trainer: the model, and how it is split.
        training: its precision; nothing is measured for float32.
        nodes: of a batch.
    """
    spec = trainer._full_spec
    if training.precision != "bf16" or spec.device.type != "cpu" or not trainer.ranks.leads:
        return
    widths = tuple(max(count, 1) for count in trainer.partition.sizes(0)[0])
    shapes = [one.shape for one in replace(spec, widths=widths).tensor_specs().values() if len(one.shape) == 2]
    if not shapes:
        return
    outputs, inputs = (min(size, LARGEST) for size in max(shapes, key=lambda shape: shape.numel()))
    rows = max(1, min(nodes, int(OPERATIONS / (2 * inputs * outputs))))
    ratio = seconds_of(rows, inputs, outputs, "bf16") / seconds_of(rows, inputs, outputs, "float32")
    if ratio > NOTED:
        log.warning(
            "precision bf16 makes this run slower: a product of the model takes %.1f times as long as in float32 on "
            "this processor; leave precision at float32",
            ratio,
        )


def seconds_of(rows: int, inputs: int, outputs: int, precision: str) -> float:
    """Return the least seconds of a linear layer, forward and backward, as a step computes it."""
    x, weight = (torch.ones(size, inputs, requires_grad=True) for size in (rows, outputs))
    seconds = []
    for _ in range(1 + REPEATS):  # the first prepares
        begun = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            out = F.linear(x, weight)
        torch.autograd.grad(out, (x, weight), torch.ones_like(out))
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])
