"""The edges of a graph on the host, where samplers read the rows of some nodes."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.graphs.csr import CSR, index_dtype
from gistgnn.nn.sampled import Degrees
from gistgnn.nn.sparse import (
    SparseMatrix,
    check_weights,
    loop_weights,
    row_sums,
    self_loops,
    without_zeros,
)
from gistgnn.sampling.batch import Batch
from gistgnn.utils.tensors import Array, to_device


class Structure:
    """A graph's edges on the host, and its features and labels on their device.

    Negative weights are refused.
    """

    def __init__(self, full_batch: Batch) -> None:
        pattern = full_batch.csr
        self.nodes = full_batch.x.shape[0]
        # A has a 1 at (target, source).
        self.edges = _matrix(pattern, torch.ones(pattern.num_edges, dtype=torch.int8))
        self.values = self.edges  # or the edges' weights, if there are any
        # Edge data are in the order of the entries.
        self.edge_data = {name: value.cpu() for name, value in full_batch.edge_data.items()}
        counts = pattern.rowptr.diff()
        loops_in_a = pattern.row[self_loops(pattern)].long()
        # A node may have many parallel self-loops.
        self.loops = torch.bincount(loops_in_a, minlength=self.nodes)
        looped = counts - self.loops + 1
        self.degrees = Degrees(counts.to(full_batch.dtype), looped.to(full_batch.dtype))
        if "edge_weight" in self.edge_data:  # degrees are sums of weights
            weight = self.edge_data["edge_weight"].to(full_batch.dtype)
            check_weights(weight)
            self.values = _matrix(pattern, weight)
            sums = row_sums(pattern, weight)
            loops = loop_weights(pattern, weight)
            is_loop = self_loops(pattern)
            from_others = sums - row_sums(pattern, weight * is_loop)
            self.degrees = Degrees(
                without_zeros(sums), without_zeros(from_others + loops), loops=loops
            )
        self.y = full_batch.y
        self.train = full_batch.loss_nodes.cpu().numpy()
        self._device = full_batch.device
        self.sparse = full_batch.is_sparse  # features are gathered as sparse matrices
        self._features = full_batch.x if full_batch.is_stored else full_batch.features

    @cached_property
    def counts(self) -> Tensor:
        """The number of edges into every node: [N] int64."""
        return torch.from_numpy(np.diff(self.edges.indptr)).long()

    @cached_property
    def missing_loops(self) -> Array:
        """1 for nodes without a self-loop in A, 0 for the others: [N] float32."""
        return (self.loops == 0).numpy().astype(np.float32)

    @cached_property
    def entries(self) -> sp.csr_matrix:
        """A with the number of its entry, from 0, at every edge."""
        numbers = np.arange(self.edges.nnz)
        return sp.csr_matrix(
            (numbers, self.edges.indices, self.edges.indptr), shape=self.edges.shape
        )

    def data_of(self, entries: Array) -> dict[str, Tensor]:
        """Return the edge data of some entries of `edges`, by name.

        They are on the device of the features.
        """
        if not self.edge_data:
            return {}
        places = torch.from_numpy(entries)
        return {
            name: to_device(value.index_select(0, places), self._device)
            for name, value in self.edge_data.items()
        }

    @cached_property
    def column_squares(self) -> Array:
        """Σ_i Ā_ij² of every node j, with Ā of eq. 1: [N] float32."""
        return self._weighted_squares(self.values, np.arange(self.nodes)) * self._inverse

    def squares_above_zero(self, rows: sp.csr_matrix, nodes: Array) -> tuple[Array, Array]:
        """Return the nodes j whose Σ_i Ā_ij² over some ``nodes`` i is not 0, and these sums.

        ``rows`` are those of `values` at these nodes.
        """
        sums = self._weighted_squares(rows, nodes)
        # NumPy finds the true entries of a mask several times faster than non-zero numbers.
        nonzero = np.flatnonzero(sums > 0)
        return nonzero, sums[nonzero] * self._inverse[nonzero]

    def _weighted_squares(self, rows: sp.csr_matrix, nodes: Array) -> Array:
        """Return Σ_i w_ij² / d̃_i of every node j, with the self-loops.

        They lead to Ā_ij² = w_ij² / (d̃_i d̃_j).
        """
        weight = self._inverse[nodes]
        sums: Array = (rows if self.values is self.edges else rows.power(2)).T @ weight
        sums[nodes] += weight * self.missing_loops[nodes]
        return sums

    @cached_property
    def _inverse(self) -> Array:
        """1 / d̃ of every node: [N] float32."""
        return self.degrees.looped.float().reciprocal().numpy()

    @cached_property
    def cumulated_squares(self) -> Array:
        return self.column_squares.cumsum(dtype=np.float64)

    @cached_property
    def normalised(self) -> Degrees:
        """The degrees with the row sums of Ā, to which rows are then scaled."""
        scale = self.degrees.looped.rsqrt()
        if self.values is self.edges:  # The type of its entries is too small for their sums.
            loops_in_a = self.loops.numpy().astype(np.float32)
        else:
            loops_in_a = self.values.diagonal()
        from_others = torch.from_numpy(self.values @ scale.numpy() - loops_in_a * scale.numpy())
        from_itself = scale if self.degrees.loops is None else scale * self.degrees.loops
        return replace(self.degrees, row_sums=scale * (from_others + from_itself))

    def features(self, nodes: Tensor) -> Tensor:
        """Return rows of X, [n, F]: a CSR tensor where features are sparse."""
        if isinstance(self._features, Tensor):
            rows = self._features.index_select(0, to_device(nodes, self._features.device))
            rows = to_device(rows, self._device)
            return SparseMatrix.from_dense(rows).csr if self.sparse else rows
        return self._features.rows(to_device(nodes, self._device)).csr


def pattern_of(rows: sp.csr_matrix) -> CSR:
    """Return the places of a matrix's entries, in the same order."""
    dtype = index_dtype(*rows.shape, rows.nnz)
    return CSR(
        torch.from_numpy(rows.indptr).to(dtype),
        torch.from_numpy(rows.indices).to(dtype),
        rows.shape,
    )


def _matrix(pattern: CSR, values: Tensor) -> sp.csr_matrix:
    return sp.csr_matrix(
        (values.numpy(), pattern.col.numpy(), pattern.rowptr.numpy()), shape=pattern.shape
    )
