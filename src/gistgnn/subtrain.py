"""subTrain: local steps of one sub-GCN (section 2.2)."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.sampling import Batch, forward


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean loss over the batch's training nodes: cross-entropy, or binary cross-entropy for multi-label."""
    logits = forward(model, batch)[batch.loss_nodes]
    targets = batch.y[batch.loss_nodes]
    if targets.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, targets)
    return F.cross_entropy(logits, targets)


def subtrain(
    sub: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[Batch],
    rate: Callable[[int], float],
    clip_norm: float | None = None,
) -> Tensor | None:
    """Train one sub-GCN for a step on each batch, and return the mean loss of the steps.

    A batch without training nodes has no loss: its step is passed over, and changes nothing. Where all are such, None
    is returned.

    The loss is that of the global model: a sub-GCN's output has the full number of classes.

    Args:
        sub: the sub-GCN, in training mode.
        optimizer: of its parameters.
        batches: ζ of them.
        rate: the learning rate of the k-th of these steps.
        clip_norm: largest norm of the gradient, or None.
    """
    losses = []
    for k, batch in enumerate(batches):
        if not batch.loss_nodes.numel():
            continue
        for group in optimizer.param_groups:
            group["lr"] = rate(k)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(sub, batch)
        loss.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(sub.parameters(), clip_norm)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean() if losses else None
