"""Ā x of a graph folder, which is computed once, in blocks, and stored beside x."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

import torch
from torch import Tensor

from gistgnn.graphs.on_disk import products
from gistgnn.graphs.on_disk.clustered import Files
from gistgnn.graphs.on_disk.features import StoredFeatures
from gistgnn.io.column_blocks import InFile, column_blocks
from gistgnn.io.tensors import row_pieces
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.sparse import SparseMatrix
from gistgnn.nn.stored_adjacency import StoredAdjacency
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes

_PIECE = 2**24  # bytes of rows that are written at once

log = logging.getLogger(__name__)


def product_in_folder(files: Files, x: StoredFeatures, adj: StoredAdjacency, operator: Operator) -> StoredFeatures:
    """Return Ā x: [N, F], from the file that is beside x, which is made if it is missing.

    It takes about half of the available memory: all rows of as many columns of x as fit. Where the folder cannot be
    written, the file is a temporary one.

    Args:
        files: of the folder.
        x: its features, as the model sees them.
        adj: its edges.
        operator: Ā.

    Raises:
        InputError: the disk is full, or a file cannot be read.
    """
    place = products.place_of(files, x.reader, operator)
    with products.making(place) as target:
        if isinstance(target, StoredFeatures):
            return target.on(x.device)
        nodes, features = x.shape
        most = max(available_bytes(torch.device("cpu")) // 2 // (nodes * x.element_size()), 1)
        blocks = column_blocks(features, most)
        times = "once" if len(blocks) == 1 else f"{len(blocks)} times"
        log.info(
            f"the product of the edges with the features is computed once and kept: {size(x.nbytes)} in "
            f"{target.parent}; the features are read {times}"
        )
        return products.write(target, place, features, lambda append: _compute(x, adj, operator, blocks, append)).on(
            x.device
        )


def _compute(
    x: StoredFeatures, adj: StoredAdjacency, operator: Operator, blocks: list[slice], append: Callable[[Tensor], None]
) -> None:
    """Compute the product block of columns by block of columns, and append its rows in order."""
    matrix: SparseMatrix = getattr(adj, operator)
    every = slice(0, len(x))
    like = torch.empty(0, dtype=x.dtype)
    if len(blocks) == 1:
        block = x.on("cpu").load()
        for nodes in adj.pattern.chunks():
            append(matrix.rows(nodes) @ block)
        return
    with closing(InFile(len(x), blocks, like)) as stored:
        for index, columns in enumerate(blocks):
            block = x.on("cpu").cut(every, columns).load()
            for nodes in adj.pattern.chunks():
                stored.write(index, nodes, matrix.rows(nodes) @ block)
            del block  # before the next one is read
        for nodes in row_pieces(len(x), x.shape[1] * x.element_size(), _PIECE):
            append(stored.rows(nodes))
