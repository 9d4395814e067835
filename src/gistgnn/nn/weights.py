"""Weights of edges in the operators of an `Adjacency`, as in PyG's GCNConv: a missing self-loop has weight 1."""

from __future__ import annotations

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.nn.pattern import Pattern
from gistgnn.nn.sparse import SparseMatrix


def check_weights(weight: Tensor) -> None:
    """Refuse negative weights.

    Raises:
        InputError: a weight is below 0.
    """
    if weight.numel() and (least := float(weight.min())) < 0:
        raise InputError(
            f"edge_weight holds {least:g}; expected 0 or more: the models of gistgnn.nn divide by sums of weights"
        )


def row_sums(pattern: Pattern, value: Tensor) -> Tensor:
    """Return the sum of every row's values: [R], for ``value``: [nnz]."""
    return (SparseMatrix.from_pattern(pattern, value) @ value.new_ones(pattern.shape[1], 1)).squeeze(1)


def loop_weights(pattern: Pattern, weight: Tensor) -> Tensor:
    """Return the weight of every row's self-loop: [R]. It is 1 where there is none."""
    loops = weight.new_ones(pattern.shape[0])
    given = pattern.row == pattern.col
    loops[pattern.row[given].long()] = weight[given]
    return loops


def with_self(pattern: Pattern, weight: Tensor | None, dtype: torch.dtype) -> SparseMatrix:
    """Return A + I: [R, C]. A given self-loop counts beside the 1 of I; ``weight``: [nnz], None: 1."""
    weight = torch.ones(pattern.nnz, dtype=dtype, device=pattern.col.device) if weight is None else weight
    given = torch.where(pattern.row == pattern.col, weight, 0)
    loops = weight.new_ones(pattern.shape[0]).index_add_(0, pattern.row, given)
    return SparseMatrix.from_pattern(*looped(pattern, weight, loops))


def without_zeros(degree: Tensor) -> Tensor:
    """Return degrees [n] with infinity in place of 0, so that dividing by them gives 0."""
    return torch.where(degree > 0, degree, torch.inf)


def looped(pattern: Pattern, weight: Tensor, loops: Tensor | None = None) -> tuple[Pattern, Tensor]:
    """Return the pattern with exactly one self-loop in every row, and the weights of its entries.

    Args:
        pattern: [R, C].
        weight: [nnz], of its entries.
        loops: [R], of the self-loops; None: 1.
    """
    with_loops, keep, place = pattern.looped()
    value = weight.new_ones(with_loops.nnz)
    value[place] = weight[keep]
    if loops is not None:
        value[with_loops.rowptr[1:].long() - 1] = loops  # a row's self-loop is its last entry
    return with_loops, value
