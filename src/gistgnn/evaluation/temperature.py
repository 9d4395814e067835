"""A temperature T: probabilities of logits / T fit the validation nodes (Guo et al., 2017,
temperature scaling).

A merged model sums over its m sub-GCNs, so its logits are up to m times as large as those that were
trained.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_NODES = 2000  # enough for one number
LEAST = 0.2
MOST = 50.0


def fitting_nodes(mask: Tensor) -> Tensor:
    """Return the mask [N] of at most `MOST_NODES` nodes of a mask, evenly spaced."""
    nodes = mask.nonzero().squeeze(1)
    few = torch.zeros_like(mask)
    few[nodes[:: math.ceil(max(len(nodes), 1) / MOST_NODES)]] = True
    return few


def fitted_temperature(logits: Tensor, targets: Tensor) -> float:
    """Return the T of the least negative log-likelihood; logits: [n, C], targets: classes [n] or
    labels [n, C].
    """
    from scipy.optimize import minimize_scalar  # slow to import

    logits = logits.float().cpu()
    targets = targets.cpu()
    several = targets.dim() == 2
    targets = targets.float() if several else targets.long()

    def loss(log: float) -> float:
        score = F.binary_cross_entropy_with_logits if several else F.cross_entropy
        return float(score(logits / math.exp(log), targets))

    bounds = math.log(LEAST), math.log(MOST)
    return math.exp(
        minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01}).x
    )
