"""The numbers that the nodes of a folder of clusters had before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.on_disk.manifest import ADVICE, Manifest
from gistgnn.graphs.on_disk.reading import ArrayFile
from gistgnn.graphs.on_disk.values import cluster_problem


def numbers_before(folder: Path) -> Tensor:
    """Return the numbers that the nodes had in the graph that was cut, mapped: [N].

    Raises:
        InputError: they are damaged: some node's number is another one's, or none.
    """
    node = ArrayFile.of(folder, Manifest.read(folder), "node")
    if problem := cluster_problem(np.load(folder / "cluster_ptr.npy"), node.array):
        raise InputError(f"{folder / problem[0]}.npy is damaged: it {problem[1]}; {ADVICE}")
    return node.mapped()
