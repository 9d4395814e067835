"""subTrain: local steps of one sub-GCN (section 2.2)."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.nn.functional import cross_entropy, rows
from gistgnn.sampling import Batch, forward
from gistgnn.settings import Training
from gistgnn.training.loss import Criterion


def loss_of(logits: Tensor, batch: Batch, training: Training | None = None) -> Tensor:
    """Return the batch's loss: the settings' `Criterion`, or else cross-entropy, binary for multi-label graphs."""
    # The mean over the batch's training nodes, or the sum with the batch's weights: one number for logits [N, C], one
    # for each sub-GCN, [m], for logits [m, N, C].
    targets = batch.y[batch.loss_nodes]
    chosen = rows(logits, batch.loss_nodes)
    chosen = chosen.float() if chosen.dtype == torch.bfloat16 else chosen
    if training is not None and isinstance(training.loss, Criterion):  # a loop of the user's own has none
        return training.loss(chosen, targets, batch.loss_weights)
    if targets.dim() == 1 and logits.dim() == 3:
        return cross_entropy(chosen, targets, batch.loss_weights)
    # torch's own, so that a user's loop gives the same bits.
    loss = F.cross_entropy if targets.dim() == 1 else F.binary_cross_entropy_with_logits
    if logits.dim() == 2 and batch.loss_weights is None:
        return loss(chosen, targets)
    each = loss(chosen, targets if targets.dim() == 1 else targets.expand_as(chosen), reduction="none")
    each = each if targets.dim() == 1 else each.mean(dim=-1)
    return each.mean(dim=-1) if batch.loss_weights is None else each @ batch.loss_weights


def subtrain(
    sub: nn.Module, optimizer: Optimizer, batches: Iterable[Batch], training: Training, rate: Callable[[int], float]
) -> Tensor | None:
    """Train one sub-GCN by one step on each batch that has training nodes, and return the mean loss of the steps."""
    # Its output has the full number of classes, so its loss is that of the global model. `rate`: of step k, from 0.
    losses = MeanLoss()
    for k, batch in enumerate(batches):
        if not batch.loss_nodes.numel():
            continue
        begin_step(optimizer, rate(k))
        losses.add(backward(sub, batch, training))
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # the next sub-GCN has its own
    return losses.mean


class MeanLoss:
    """The mean of the losses of some steps; None before the first."""

    # A sum in place: a small tensor that is kept from every step leaves a gap in the heap, between large ones.
    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._count = 0

    def add(self, loss: Tensor) -> None:
        """Add the loss of a step, without gradients."""
        self._total = loss.double() if self._total is None else self._total.add_(loss)
        self._count += 1

    @property
    def mean(self) -> Tensor | None:
        return None if self._total is None else self._total / self._count


def backward(sub: nn.Module, batch: Batch, training: Training) -> Tensor:
    """Compute the gradient of a batch's loss, clipped; return the loss."""
    with training.autocast(batch.x.device):
        loss = loss_of(forward(sub, batch), batch, training)
    loss.backward()
    if training.clip_norm is not None:
        nn.utils.clip_grad_norm_(sub.parameters(), training.clip_norm)
    return loss.detach()


def begin_step(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate, and clear the gradients of the last step."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
