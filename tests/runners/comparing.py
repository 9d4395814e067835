"""Rounds trained by one runner and by another, and by how much what they leave behind differs."""

from typing import Any

import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.nn import GCN
from gistgnn.runners.fused import Fused
from gistgnn.runners.in_turn import InTurn
from gistgnn.runners.registry import Runner
from gistgnn.sampling import Batch, FullGraph, Sampler, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from tests.helpers.logs import logged
from tests.helpers.models import C, Case, tiny_graph


def in_double(batch: Batch) -> Batch:
    return Batch(
        batch.x.double(),
        batch.edges,
        batch.y.double() if batch.y.dim() == 2 else batch.y,
        batch.loss_nodes,
    )


def of_inputs(widths: tuple[int, ...]) -> nn.Module:
    return GCN(widths[0], widths[1:], C)


WHOLE = whole_graph(tiny_graph())
FULL = FullGraph(WHOLE)
DOUBLE = in_double(WHOLE)
PLAIN: dict[str, Any] = {"schedule": "constant", "optimizer_state": "reset"}
# Adam makes a large step of a gradient that is zero but for rounding.
SGD = Training(9, optimizer="sgd", lr=0.1, **PLAIN)
Left = tuple[dict[str, Tensor], list[float]]  # Θ and the carried moments by name; the losses


def trained(
    runner: Runner, gist: GIST, sampler: Sampler, training: Training, local_steps: int = 2
) -> Left:
    """Θ, its moments and the losses after two rounds."""
    losses = []
    for number in range(2):
        round_ = gist.begin_round()
        round_.keeps_moments |= training.keeps_moments  # as `fit` plans it
        losses_of_round = runner(
            round_, sampler, training, StepRange(number * local_steps, local_steps, 9), 5
        )
        # Batches without training nodes have no loss.
        losses.append(round_.aggregate(losses_of_round).get("loss", 0.0))
    return gist.theta.copy() | gist.theta.place.moments, losses


def runners_agree(
    case: Case, m: int, sampler: Sampler, training: Training, local_steps: int = 2, **options: Any
) -> list[str]:
    """Check that both runners leave the same but for rounding; return what the fused one notes.

    The models are of float64, as the batches have to be: batch norm makes much of float32's
    rounding. A batch of two nodes would not do: they may receive the same, of which batch norm
    makes 0 but for rounding, and ReLU has no gradient there. Nor would a score bias of 0 in GATv2:
    LeakyReLU has a kink there, and nodes without features are at it, on one side or the other by
    rounding. So is, at ReLU's kink, a feature of equal values after a norm's bias of 0.
    """

    def build(widths: Any) -> nn.Module:
        model: nn.Module = case[0](widths).double()
        for name, parameter in model.named_parameters():
            is_bias = name.endswith("score_bias") or ("norm" in name and name.endswith("bias"))
            if is_bias and not parameter.is_meta:
                nn.init.constant_(parameter, 0.05)
        return model

    def gist() -> GIST:
        # At a tenth of the base width, rates of SGD are so large that rounding would grow from step
        # to step.
        return GIST(build, case[1], m, base_width=8, **options)

    to_fuse = gist()  # which may note something of the model
    with logged() as notes:
        fused, losses = trained(Fused(), to_fuse, sampler, training, local_steps)
    expected, expected_losses = trained(InTurn(), gist(), sampler, training, local_steps)
    torch.testing.assert_close(fused, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-6, atol=1e-9)
    return notes
