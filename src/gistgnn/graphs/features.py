"""Features of nodes: dense, or a sparse matrix where few of them are not zero.

The words of documents are such features.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.graphs.csr import CSR
from gistgnn.storage.tensors import read_ahead
from gistgnn.utils.tensors import Array

if TYPE_CHECKING:
    import scipy.sparse as sp

# Where a smaller share of the features is not 0, a sparse product is several times faster.
SPARSE_BELOW = 0.1
_SAMPLE = 2**16  # nodes that are looked at
# A sample has runs of so many neighbouring nodes: single rows of a mapped file would read all of
# it.
_RUN = 2**10


def is_sparse_matrix(value: Any) -> bool:
    """Tell whether a user's value is a sparse matrix of torch, SciPy or torch_sparse."""
    if isinstance(value, Tensor):
        return value.layout is not torch.strided
    return hasattr(value, "tocsr") or callable(getattr(value, "coo", None))


def csr_of(value: Any) -> Tensor:
    """Return a user's sparse matrix as a torch CSR tensor: [N, F], its values of their own type.

    Columns ascend within a row, values at the same place are added up, and zeros are left out.

    Raises:
        InputError: it is no matrix of real numbers, or it is damaged.
    """
    import scipy.sparse as sp  # loading it takes 0.2 s

    device = value.device if isinstance(value, Tensor) else torch.device("cpu")
    try:
        if isinstance(value, Tensor):
            matrix = _of_torch(value.detach().cpu())
        elif hasattr(value, "tocsr"):
            matrix = sp.csr_matrix(value, copy=True)
        else:
            row, col, values = value.coo()
            values = torch.ones(len(row)) if values is None else values.detach()
            matrix = sp.coo_matrix(
                (_numbers(values), (row.numpy(), col.numpy())), shape=value.sizes()
            )
        if matrix.dtype.kind not in "biuf":
            raise InputError(f"x has dtype {matrix.dtype}; expected real numbers")
        matrix = matrix.tocsr()
        matrix.check_format(full_check=True)
    except InputError:
        raise
    except (ValueError, IndexError, NotImplementedError) as error:  # the last one on device meta
        raise InputError(
            f"x is a sparse matrix that cannot be read ({reason(error)}): make it again"
        ) from error
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    places = CSR(torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices), matrix.shape)
    values = torch.from_numpy(matrix.data.astype(matrix.dtype.newbyteorder("="), copy=False))
    return places.for_products().with_values(values).to(device)


def _of_torch(value: Tensor) -> "sp.spmatrix":
    """Return a sparse tensor as a matrix of SciPy, which checks it.

    One from a file may be damaged.
    """
    import scipy.sparse as sp

    shape = tuple(value.shape)
    if value.layout is torch.sparse_coo:
        indices, values = entries_of_coo(value)
        entries: tuple[Any, ...] = (tuple(indices.numpy()),)
        kind = sp.coo_matrix
    elif value.layout is torch.sparse_csr:
        values = value.values()
        entries = (value.col_indices().numpy(), value.crow_indices().numpy())
        kind = sp.csr_matrix
    elif value.layout is torch.sparse_csc:
        values = value.values()
        entries = (value.row_indices().numpy(), value.ccol_indices().numpy())
        kind = sp.csc_matrix
    else:
        raise InputError(f"x is a tensor of the layout {value.layout}: call .to_sparse_csr() on it")
    if len(shape) != 2 or values.dim() != 1:
        raise InputError(f"x has shape {list(shape)}; expected a matrix [nodes, features]")
    return kind((_numbers(values), *entries), shape=shape)


def entries_of_coo(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places [2, nnz] and the values [nnz] of a COO tensor, in their own order."""
    # The public methods want it coalesced, which sorts the entries and adds up those of one place.
    return matrix._indices(), matrix._values()


def _numbers(values: Tensor) -> Array:
    """Return values of a type that NumPy has."""
    if values.dtype in (torch.bool, torch.float16, torch.bfloat16):
        values = values.float()
    return values.numpy()


def places_of(x: Tensor) -> CSR:
    """Return the places of the entries of a CSR tensor."""
    return CSR(x.crow_indices(), x.col_indices(), (x.shape[0], x.shape[1]))


def rows_of(x: Tensor, nodes: Tensor) -> Tensor:
    """Return the features of some nodes, by number: [k, F], dense or a CSR tensor as `x` is."""
    if x.layout is torch.strided:
        return x.index_select(0, nodes)
    places, entries = places_of(x).rows(nodes)
    return places.with_values(x.values()[entries])


def bytes_of(x: Tensor) -> int:
    """Return the bytes that a tensor takes; torch's `nbytes` takes a CSR tensor for a dense one."""
    if x.layout is torch.strided:
        return x.nbytes
    return sum(part.nbytes for part in (x.crow_indices(), x.col_indices(), x.values()))


def columns_of(x: Tensor, columns: Tensor) -> Tensor:
    """Return some columns of a CSR tensor, by number, as a dense matrix: [N, k].

    It has the same type.
    """
    places = places_of(x)
    new_column = torch.full((x.shape[1],), -1, device=x.device)
    new_column[columns] = torch.arange(len(columns), device=x.device)
    columns_of_entries = new_column[places.col.long()]
    is_chosen = columns_of_entries >= 0
    matrix = x.values().new_zeros(x.shape[0], len(columns))
    rows = places.row[is_chosen].long()
    matrix[rows, columns_of_entries[is_chosen]] = x.values()[is_chosen]
    return matrix


def sample_of(x: Tensor) -> Tensor:
    """Return the features of about 2^16 nodes, in evenly spaced runs of nodes.

    Of a small graph all features are returned.
    """
    one_in = len(x) // _SAMPLE
    if one_in < 2:
        return x
    ranges = [(start, min(start + _RUN, len(x))) for start in range(0, len(x), _RUN * one_in)]
    if x.device.type == "cpu":
        read_ahead(x, ranges)
    return torch.cat([x[start:stop] for start, stop in ranges])


def nonzero_share(x: Tensor) -> float:
    """Return the share of features that are not 0: of a sample of the nodes, where `x` is dense."""
    if x.layout is not torch.strided:
        return x.values().numel() / x.numel()
    sample = sample_of(x)
    return int(torch.count_nonzero(sample)) / sample.numel()
