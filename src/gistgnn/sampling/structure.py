"""The edges of a graph on the host, where samplers read the rows of some nodes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.nn.pattern import Pattern, index_dtype
from gistgnn.nn.sampled import Degrees
from gistgnn.sampling.batch import Batch, Share, unshared
from gistgnn.sampling.sampler import Array


class Structure:
    """A graph's edges on the host, and its features and labels on their device.

    Attributes:
        edges: A, [N, N] in CSR form: 1 at (target, source).
        degrees: of every node.
        sparse: whether features are gathered as sparse matrices.
    """

    def __init__(self, whole: Batch, share: Share = unshared) -> None:
        host = share(lambda: _on_host(whole))
        rowptr, col = host["rowptr"].numpy(), host["col"].numpy()
        self.nodes = whole.x.shape[0]
        self.edges = sp.csr_matrix((host["ones"].numpy(), col, rowptr), shape=(self.nodes, self.nodes))
        self.degrees = Degrees(host["own"], host["looped"])
        self.y, self.train = whole.y, whole.loss_nodes.cpu().numpy()
        self._features, self._device, self.sparse = whole.features, whole.x.device, whole.is_sparse

    @cached_property
    def inverse(self) -> Array:
        """1 / d̃ of every node, with d̃ its in-degree in A + I: [N] float32."""
        return self.degrees.looped.float().reciprocal().numpy()

    @cached_property
    def missing_loops(self) -> Array:
        """1 for nodes without a self-loop in A, 0 for the others."""
        return (self.degrees.looped - self.degrees.plain).float().numpy()

    @cached_property
    def column_squares(self) -> Array:
        """Σ_i Ā_ij² of every node j, with Ā of eq. 1: [N] float32."""
        return self.squares(self.edges, np.arange(self.nodes))

    def squares(self, rows: sp.csr_matrix, nodes: Array) -> Array:
        """Return Σ_i Ā_ij² of every node j over the rows i in ``nodes``, of which A's are ``rows``: [N] float32."""
        weight = self.inverse[nodes]  # Ā_ij² = 1 / (d̃_i d̃_j), of the self-loops too
        sums = rows.T @ weight
        sums[nodes] += weight * self.missing_loops[nodes]
        return sums * self.inverse

    def normalised(self) -> Degrees:
        """Return the degrees with the row sums of Ā, to which rows are then scaled."""
        scale = self.degrees.looped.rsqrt()
        others = self.edges @ scale.numpy() - self.edges.diagonal() * scale.numpy()
        return Degrees(self.degrees.plain, self.degrees.looped, scale * (torch.from_numpy(others) + scale))

    def features(self, nodes: Tensor) -> Tensor:
        """Return rows of X, [n, F]: a CSR tensor where features are sparse."""
        nodes = nodes.to(self._device)
        if isinstance(self._features, Tensor):
            return self._features.index_select(0, nodes)
        return self._features.select_rows(nodes).csr


def pattern_of(rows: sp.csr_matrix) -> Pattern:
    """Return the places of a matrix's entries, in the same order."""
    dtype = index_dtype(*rows.shape, rows.nnz)
    return Pattern(torch.from_numpy(rows.indptr).to(dtype), torch.from_numpy(rows.indices).to(dtype), rows.shape)


def _on_host(whole: Batch) -> dict[str, Tensor]:
    pattern = whole.adj.pattern.to(torch.device("cpu"))
    own, ones = pattern.rowptr.diff(), torch.ones(pattern.nnz, dtype=torch.int8)
    edges = sp.csr_matrix((ones.numpy(), pattern.col.numpy(), pattern.rowptr.numpy()), pattern.shape)
    looped = own - torch.from_numpy(edges.diagonal()).to(own.dtype) + 1
    degrees = {"own": own.to(whole.x.dtype), "looped": looped.to(whole.x.dtype)}
    return {"rowptr": pattern.rowptr, "col": pattern.col, "ones": ones, **degrees}
