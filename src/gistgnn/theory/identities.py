"""What holds exactly for the outputs of the sub-GCNs of one round, whatever the weights (appendix C.5).

Both lemmas are the decomposition of a variance: they hold because the global output is the mean of the sub-GCNs',
ŷ = (1/m) Σ_j ŷ^(j), every neuron being in exactly one. Where the paper has f = Σ_j f^(j) the 1/m is missing; with the
sum, neither lemma holds.
"""

import torch
from torch import Tensor

from gistgnn.theory.problem import Problem


def disagreement(outputs: Tensor) -> Tensor:
    """Return Σ_j Σ_{j' < j} ‖ŷ^(j) − ŷ^(j')‖², each pair once.

    Args:
        outputs: [m, n].
    """
    return (outputs[:, None] - outputs[None]).square().sum() / 2


def decomposed_error(y: Tensor, outputs: Tensor) -> Tensor:
    """Return the right-hand side of Lemma global_error_decompose, which is ‖y − ŷ(t + 1)‖².

    (1/m) Σ_j ‖y − ŷ^(j)(t, ζ)‖² − (1/m²) Σ_{j' < j} ‖ŷ^(j)(t, ζ) − ŷ^(j')(t, ζ)‖²

    Args:
        y: [n].
        outputs: ŷ^(j)(t, ζ), [m, n].
    """
    m = len(outputs)
    return (y - outputs).square().sum() / m - disagreement(outputs) / m**2


def total_deviation(outputs: Tensor) -> Tensor:
    """Return the right-hand side of Lemma subnetwork_deviation, which is Σ_j ‖ŷ(t) − ŷ^(j)(t, 0)‖².

    Args:
        outputs: ŷ^(j)(t, 0), [m, n].
    """
    return disagreement(outputs) / len(outputs)


def expected_deviation(problem: Problem, theta: Tensor, m: int) -> float:
    """Return E‖ŷ(t) − ŷ^(j)(t, 0)‖² over the masks: (m − 1) / (m² d_1) ‖Ā σ(X̂Θ)‖_F², exactly.

    The paper bounds it by 4n (m − 1) / m², with a lemma for networks without Ā (see `lemmas.deviation`).

    Args:
        problem: Ā and X̂.
        theta: Θ_t, [d, d_1].
        m: the number of sub-GCNs.
    """
    hidden = problem.a_bar @ (problem.x_hat @ theta).relu()
    return float(torch.sum(hidden**2)) * (m - 1) / (m**2 * theta.shape[1])
