"""Weights of edges in the operators of an `Adjacency`, as in PyG's GCNConv: a missing self-loop has weight 1."""

from __future__ import annotations

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR
from gistgnn.nn.sparse import SparseMatrix


def check_weights(weight: Tensor) -> None:
    """Raise InputError if a weight is negative."""
    if weight.numel() and (least := float(weight.min())) < 0:
        raise InputError(
            f"edge_weight holds {least:g}; expected 0 or more: the models of gistgnn.nn divide by sums of weights"
        )


def row_sums(pattern: CSR, value: Tensor) -> Tensor:
    """Return the sum of every row's values: [R], for ``value``: [nnz]."""
    return (SparseMatrix.from_pattern(pattern, value) @ value.new_ones(pattern.shape[1], 1)).squeeze(1)


def loop_weights(pattern: CSR, weight: Tensor, own: Tensor | None = None) -> Tensor:
    """Return the weight of every row's self-loop: [R]. It is 1 where there is none. ``own`` is as for `CSR.looped`."""
    loops = weight.new_ones(pattern.shape[0])
    given = self_loops(pattern, own)
    loops[pattern.row[given].long()] = weight[given]
    return loops


def self_loops(pattern: CSR, own: Tensor | None = None) -> Tensor:
    """Return the mask of the entries that are self-loops: [nnz]. ``own`` is as for `CSR.looped`."""
    return (pattern.row if own is None else pattern.repeated(own)) == pattern.col


def with_self(pattern: CSR, weight: Tensor | None, dtype: torch.dtype, own: Tensor | None = None) -> SparseMatrix:
    """Return A + I: [R, C], for A's entries and their ``weight``: [nnz]; None: 1.

    A given self-loop counts beside the 1 of I. ``own`` is as for `CSR.looped`.
    """
    weight = torch.ones(pattern.num_edges, dtype=dtype, device=pattern.col.device) if weight is None else weight
    given = torch.where(self_loops(pattern, own), weight, 0)
    loops = weight.new_ones(pattern.shape[0]).index_add_(0, pattern.row, given)
    return SparseMatrix.from_pattern(*looped(pattern, weight, loops, own))


def without_zeros(degree: Tensor) -> Tensor:
    """Return degrees [n] with infinity in place of 0, so that dividing by them gives 0."""
    return torch.where(degree > 0, degree, torch.inf)


def looped(pattern: CSR, weight: Tensor, loops: Tensor | None = None, own: Tensor | None = None) -> tuple[CSR, Tensor]:
    """Return the entries with exactly one self-loop in every row, and their weights.

    ``weight``: [nnz] is of the entries, ``loops``: [R] of the self-loops; None: 1. ``own`` is as for `CSR.looped`.
    """
    with_loops, keep, place = pattern.looped(own)
    value = weight.new_ones(with_loops.num_edges)
    value[place] = weight[keep]
    if loops is not None:
        value[with_loops.rowptr[1:].long() - 1] = loops  # a row's self-loop is its last entry
    return with_loops, value
