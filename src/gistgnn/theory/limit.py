"""The kernels of an infinitely wide layer, in closed form (appendix C.4).

Where the paper writes H^∞ with 1/(d_1 m), 1/m is right: H(t, t', k) has 1/d_1 before a sum of d_1 terms, each of which
counts with probability 1/m. So the kernel of a sub-GCN carries 1/m, and the sum of the m kernels is that of the GCN.
"""

import math

import torch
from torch import Tensor

_CLOSE = 1e-4  # 1 − |cos| of two rows below which the cosine has lost too many digits of their angle
_AT_ONCE = 2**24  # numbers of the rows that are subtracted at the same time


def angles(x_hat: Tensor) -> Tensor:
    """Return ∠(x̂_i, x̂_j), [n, n]; a row of zeros is at π/2 to all others.

    Args:
        x_hat: [n, d].
    """
    norms = x_hat.norm(dim=1).clamp(min=torch.finfo(x_hat.dtype).tiny)
    units = x_hat / norms[:, None]
    cosine = (units @ units.T).clamp(-1.0, 1.0)
    phi = cosine.arccos()
    rows, columns = (1.0 - cosine.abs() < _CLOSE).nonzero().T
    size = max(1, _AT_ONCE // max(1, x_hat.shape[1]))
    for i, j in zip(rows.split(size), columns.split(size), strict=True):
        chord, opposite = (units[i] - units[j]).norm(dim=1), (units[i] + units[j]).norm(dim=1)
        phi[i, j] = 2.0 * torch.atan2(chord, opposite)
    return phi


def limit_gram(x_hat: Tensor, m: int) -> Tensor:
    """Return H^∞_ij = <x̂_i, x̂_j> (π − ∠(x̂_i, x̂_j)) / (2π m), [n, n].

    The fraction is P(<x̂_i, θ> >= 0, <x̂_j, θ> >= 0) of θ ~ N(0, I) in closed form; the paper leaves the expectation.

    Args:
        x_hat: [n, d].
        m: the number of sub-GCNs.
    """
    return x_hat @ x_hat.T * (math.pi - angles(x_hat)) / (2.0 * math.pi * m)


def output_gram(x_hat: Tensor) -> Tensor:
    """Return K_ij = E[σ(<x̂_i, θ>) σ(<x̂_j, θ>)], θ ~ N(0, I), [n, n].

    It is ‖x̂_i‖ ‖x̂_j‖ (sin φ + (π − φ) cos φ) / 2π, the arc-cosine kernel of degree one.

    Args:
        x_hat: [n, d].
    """
    phi, norms = angles(x_hat), x_hat.norm(dim=1)
    return norms[:, None] * norms * (phi.sin() + (math.pi - phi) * phi.cos()) / (2.0 * math.pi)
