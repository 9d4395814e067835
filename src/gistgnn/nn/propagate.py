"""The linear parts of a layer: h Wᵀ and Ā h Wᵀ."""

from torch import Tensor
from torch.nn import functional as F

from gistgnn.nn.sparse import SparseMatrix


def project(h: Tensor | SparseMatrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """H Wᵀ + b: [N, d_out], for ``h``: [N, d_in], dense or sparse, and ``weight``: [d_out, d_in]."""
    if isinstance(h, Tensor):
        return F.linear(h, weight, bias)
    out = h @ weight.t()
    return out if bias is None else out + bias


def propagate(operator: SparseMatrix, h: Tensor | SparseMatrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Ā H Wᵀ + b: [N, d_out], in the cheaper order; ``operator`` is Ā: [N, N], the rest as in ``project``.

    Both orders pay the same for the projection, so the sparse product decides: nnz·d_in multiply-adds before it,
    nnz·d_out after. Sparse features are projected first: Ā H would fill in.
    """
    d_out, d_in = weight.shape
    if isinstance(h, Tensor) and d_in <= d_out:
        return project(operator @ h, weight, bias)
    out = operator @ project(h, weight)
    return out if bias is None else out + bias
