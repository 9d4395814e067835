"""Temperature scaling: logits / T give probabilities that fit the validation nodes.

The source is Guo et al., 2017. A merged model sums over its m sub-GCNs, so its logits are up to m
times as large as those that were trained.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_NODES = 2000  # These are enough for one number.
LEAST = 0.2
MOST = 50.0


def fitting_nodes(mask: Tensor) -> Tensor:
    """Return the mask [N] of at most `MOST_NODES` nodes of a mask, evenly spaced."""
    nodes = mask.nonzero().squeeze(1)
    chosen = torch.zeros_like(mask)
    chosen[nodes[:: math.ceil(max(len(nodes), 1) / MOST_NODES)]] = True
    return chosen


def fitted_temperature(logits: Tensor, targets: Tensor) -> float:
    """Return the T of the least negative log-likelihood.

    Args:
        logits: [n, C].
        targets: classes [n] or labels [n, C].
    """
    from scipy.optimize import minimize_scalar  # slow to import

    logits = logits.float().cpu()
    targets = targets.cpu()
    is_multi_label = targets.dim() == 2
    targets = targets.float() if is_multi_label else targets.long()

    def loss(log_temperature: float) -> float:
        likelihood = F.binary_cross_entropy_with_logits if is_multi_label else F.cross_entropy
        return float(likelihood(logits / math.exp(log_temperature), targets))

    bounds = (math.log(LEAST), math.log(MOST))
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01})
    return math.exp(best.x)
