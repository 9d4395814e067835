"""subTrain: local steps of one sub-GCN (section 2.2)."""

import logging
from collections.abc import Iterable
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from gistgnn.nn.functional import cross_entropy
from gistgnn.sampling import Batch, forward
from gistgnn.sampling.call import signature
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.training.loss import Criterion

log = logging.getLogger(__name__)

# The settings of the runs that have left out a batch of one node, which each of them notes once.
_NOTED: WeakValueDictionary[int, Training] = WeakValueDictionary()


def loss_of(logits: Tensor, batch: Batch, training: Training | None = None) -> Tensor:
    """Return the loss of a batch.

    It is the settings' `Criterion`, or else cross-entropy, binary for multi-label graphs: the mean
    over the nodes, or the sum with the batch's weights.

    Args:
        logits: of the batch's loss nodes, [n, C], or [m, n, C] of m sub-GCNs.
        batch: has the targets and the weights.
        training: the settings. Defaults to None, as in a loop of the user's own.

    Returns:
        One number, or one for each sub-GCN: [m].
    """
    targets = batch.y[batch.loss_nodes]
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    weights = batch.loss_weights
    if training is not None and isinstance(training.loss, Criterion):
        return training.loss(logits, targets, weights)
    if targets.dim() == 1 and logits.dim() == 3:
        return cross_entropy(logits, targets, None if weights is None else weights.to(logits.dtype))
    # These are torch's own, so that a user's loop gives the same bits.
    loss = F.cross_entropy if targets.dim() == 1 else F.binary_cross_entropy_with_logits
    if logits.dim() == 2 and weights is None:
        return loss(logits, targets)
    if targets.dim() == 1:
        losses = loss(logits, targets, reduction="none")
    else:
        losses = loss(logits, targets.expand_as(logits), reduction="none").mean(dim=-1)
    # A model of float64 has losses of float64, while weights are float32.
    return losses.mean(dim=-1) if weights is None else losses @ weights.to(losses.dtype)


def subtrain(
    sub: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[Batch],
    training: Training,
    steps: StepRange,
) -> Tensor | None:
    """Train one sub-GCN by one step on each batch that has training nodes.

    Returns:
        The mean loss of the steps, or None if there were none.
    """
    # Its output has the full number of classes, so its loss is that of the global model.
    losses = MeanLoss()
    for k, batch in enumerate(batches):
        if not trains_on(sub, batch, training):
            continue
        steps.begin(optimizer, training, k)
        losses.add(backward(sub, batch, training))
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # The next sub-GCN has gradients of its own.
    return losses.mean


def trains_on(sub: nn.Module, batch: Batch, training: Training) -> bool:
    """Whether a sub-GCN takes a step on a batch.

    The batch needs training nodes, and as many nodes as batch norm needs.
    """
    if not batch.loss_nodes.numel():
        return False
    if not norms_one_node(sub, batch):
        return True
    if id(training) not in _NOTED:
        _NOTED[id(training)] = training
        log.warning(
            "batches of one node are left out, as batch norm needs two: larger batches or another "
            "norm avoid them"
        )
    return False


def norms_one_node(sub: nn.Module, batch: Batch) -> bool:
    """Whether a batch norm of the module in training mode sees a single node, which it refuses."""
    return min(_rows_of_norms(sub, batch), default=2) < 2


def _rows_of_norms(sub: nn.Module, batch: Batch) -> list[int]:
    """Return how many rows of a batch the batch norms of a module in training mode see."""
    norms = [
        module for module in sub.modules() if isinstance(module, _BatchNorm) and module.training
    ]
    if not norms:
        return []
    taking_one_node = {
        norm
        for module in sub.modules()
        if getattr(module, "allow_single_element", False)
        for norm in module.children()
    }
    if taking_one_node.issuperset(norms):
        return []
    if signature(sub).structure != "adj":
        return [len(batch.x)]
    hidden = getattr(sub, "num_layers", 2) - 1  # There is no norm after the output layer.
    return [batch.adj.layer(number).pattern.shape[0] for number in range(hidden)]


class MeanLoss:
    """The mean of the losses of some steps; None before the first."""

    # A sum in place: a small tensor that is kept from every step leaves a gap in the heap, between
    # large ones.
    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._count = 0

    def add(self, loss: Tensor) -> None:
        """Add the loss of a step, without gradients."""
        if self._total is None:
            # A copy, as the next step may write its loss into the same tensor.
            self._total = loss.to(torch.float64, copy=True)
        else:
            self._total.add_(loss)
        self._count += 1

    @property
    def mean(self) -> Tensor | None:
        return None if self._total is None else self._total / self._count


def backward(sub: nn.Module, batch: Batch, training: Training) -> Tensor:
    """Compute the gradient of a batch's loss, clipped; return the loss."""
    with training.autocast(batch.x.device):
        loss = loss_of(forward(sub, batch, nodes=batch.loss_nodes), batch, training)
    loss.backward()
    change_gradients(sub, training)
    return loss.detach()


def change_gradients(model: nn.Module, training: Training) -> None:
    """Change gradients as the settings say, between the backward pass and the optimiser's step.

    The fused runner does the same for all sub-GCNs at once, in `Group._take_step`.
    """
    if training.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
