"""Gram matrices of the rows of X̂: H^∞, H(t, t', k) and K (appendix C.4). `kernel.py` makes the kernels G = ĀHĀ of them.

The paper writes H^∞ with 1/(d_1 m). 1/m is right: H(t, t', k) has 1/d_1 before a sum of d_1 terms, and each term counts
with probability 1/m.
"""

import math

import torch
from torch import Tensor

_NEARLY_PARALLEL = 1e-4  # where 1 − |cos| of two rows is smaller, the cosine has lost too many digits of their angle
_NUMBERS_AT_ONCE = 2**24  # the most numbers of X̂ that are subtracted at a time


def angles(x_hat: Tensor) -> Tensor:
    """Return ∠(x̂_i, x̂_j), [n, n]; a row of zeros has the angle π/2 to all other rows."""
    norms = x_hat.norm(dim=1).clamp(min=torch.finfo(x_hat.dtype).tiny)
    units = x_hat / norms[:, None]
    cosine = (units @ units.T).clamp(-1.0, 1.0)
    phi = cosine.arccos()
    rows, columns = (1.0 - cosine.abs() < _NEARLY_PARALLEL).nonzero().T
    size = max(1, _NUMBERS_AT_ONCE // max(1, x_hat.shape[1]))
    for i, j in zip(rows.split(size), columns.split(size), strict=True):
        chord, opposite = (units[i] - units[j]).norm(dim=1), (units[i] + units[j]).norm(dim=1)
        phi[i, j] = 2.0 * torch.atan2(chord, opposite)
    return phi


def limit_gram(x_hat: Tensor, m: int) -> Tensor:
    """Return H^∞_ij = <x̂_i, x̂_j> (π − ∠(x̂_i, x̂_j)) / (2π m), [n, n] (appendix C.4).

    The fraction is P(<x̂_i, θ> >= 0, <x̂_j, θ> >= 0) / m for θ ~ N(0, I), which the paper leaves as an expectation.
    """
    return x_hat @ x_hat.T * (math.pi - angles(x_hat)) / (2.0 * math.pi * m)


def gram(x_hat: Tensor, theta: Tensor, d_1: int) -> Tensor:
    """Return H(t, t', k)_ij = <x̂_i, x̂_j> (1/d_1) Σ_r I{<x̂_i, θ_r> >= 0, <x̂_j, θ_r> >= 0}, [n, n] (appendix C.4).

    theta is [d, d^(j)], the weights of the neurons r that the mask M^(j)_t leaves active.
    """
    active = (x_hat @ theta >= 0).to(x_hat.dtype)
    return x_hat @ x_hat.T * (active @ active.T) / d_1


def output_gram(x_hat: Tensor) -> Tensor:
    """Return K_ij = E[σ(<x̂_i, θ>) σ(<x̂_j, θ>)] for θ ~ N(0, I), [n, n]: the second moments of a hidden neuron.

    It is ‖x̂_i‖ ‖x̂_j‖ (sin φ + (π − φ) cos φ) / 2π with φ = ∠(x̂_i, x̂_j), the arc-cosine kernel of degree one.
    """
    phi, norms = angles(x_hat), x_hat.norm(dim=1)
    return norms[:, None] * norms * (phi.sin() + (math.pi - phi) * phi.cos()) / (2.0 * math.pi)
