"""Ā x of a graph in a folder: computed once, in blocks of columns, and kept beside the graph."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.graphs.derived import derived
from gistgnn.nn.adjacency import Adjacency, Operator
from gistgnn.utils.checksums import checksum, digest_of
from gistgnn.utils.formats import size
from gistgnn.utils.pieces import column_blocks
from gistgnn.utils.process_memory import available_bytes
from gistgnn.utils.transfer import copied

_LOOKED_AT = 1000  # nodes whose features are part of the product's name

log = logging.getLogger(__name__)


def product_in_folder(folder: Path | None, x: Tensor, adj: Adjacency, operator: Operator) -> Tensor:
    """Return Ā x: [N, F] float32, mapped from the graph's folder. If it is missing, it is computed first.

    All rows of as many columns of x as fit into half of the available memory are in memory at once.

    Args:
        folder: of the graph; None, or a folder that cannot be written: a temporary file.
        x: [N, F] features as the models see them, mapped.
        adj: the edges.
        operator: Ā.

    Raises:
        InputError: the disk is full.
    """
    nodes, features = x.shape

    def fill(out: npt.NDArray[np.float32]) -> None:
        blocks = column_blocks(features, max(available_bytes(torch.device("cpu")) // 2 // (4 * nodes), 1))
        times = "once" if len(blocks) == 1 else f"{len(blocks)} times"
        where = folder or "a temporary file"
        log.info(f"the product of the edges with the features is computed once and kept: {size(out.nbytes)} in {where}")
        log.info(f"for it the features are read {times}")
        for columns in blocks:
            block = copied(x[:, columns], torch.device("cpu"), torch.float32)
            for rows in adj.chunks():
                out[rows, columns] = (adj.rows(operator, rows) @ block).numpy()
            del block  # before the next one is read

    return derived(folder, f"product-{operator}-{_identity(folder, x, adj)}", (nodes, features), fill)


def _identity(folder: Path | None, x: Tensor, adj: Adjacency) -> str:
    """Return a digest of the graph's files, and of features that are scaled or changed otherwise."""
    facts: list[Any] = [list(x.shape), adj.num_edges, checksum(x[:: max(len(x) // _LOOKED_AT, 1)])]
    manifests = sorted(folder.glob("*.json")) if folder else []
    return digest_of(facts + [path.read_text(encoding="utf-8") for path in manifests])[:16]
