"""`Graph`: the graph of a node classification task."""

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.checks import ArrayLike, check_edges, check_features, check_labels, check_splits, check_targets


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """One graph with features, labels and a split of its nodes.

    The constructor checks nothing. Use `Graph.build` or `Graph.from_pyg` for unchecked data.

    Attributes:
        x: [N, F] float32, the features.
        edge_index: [2, E] int64, row 0 the sources and row 1 the targets; sorted by (target, source), no duplicates.
            Self-loops are kept. An undirected edge is stored in both directions.
        y: [N] int64, −1 for an unlabelled node; or [N, K] float32 in {0, 1} if nodes have several labels; or [N, K]
            float32 of any values, the targets of a regression.
        train: [N] bool.
        val: [N] bool.
        test: [N] bool. The three masks are disjoint, not empty, and contain labelled nodes only.
        num_classes: the number of classes; K if nodes have several labels or targets.
        name: the graph's name in messages and results.
        regression: `y` holds numbers to be predicted, not classes or labels.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int
    name: str = "graph"
    regression: bool = False

    @classmethod
    def build(
        cls,
        x: ArrayLike,
        edge_index: ArrayLike,
        y: ArrayLike,
        *,
        train: ArrayLike,
        val: ArrayLike,
        test: ArrayLike,
        num_classes: int | None = None,
        name: str = "graph",
        regression: bool = False,
    ) -> "Graph":
        """Check tensors, arrays or lists and build a graph on the device of ``x``.

        Args:
            x: [N, F] finite numbers. A contiguous float32 tensor or array is not copied.
            edge_index: [2, E] integers, sources and targets, in any order. Duplicates are dropped.
            y: [N] or [N, 1] integers (also as floats), −1 for unlabelled; or [N, K] of 0 and 1.
            train: bool mask [N], or distinct node numbers.
            val: as ``train``.
            test: as ``train``.
            num_classes: number of classes; None: the largest label plus one, or K.
            name: the graph's name.
            regression: ``y`` is [N] or [N, K] numbers to be predicted, finite for the nodes of the splits.

        Raises:
            InputError: the data is wrong; the message names the first wrong value.
        """
        features = check_features(x)
        check = check_targets if regression else check_labels
        labels, classes = check(y, features.shape[0], num_classes)
        edges = check_edges(edge_index, features.shape[0])
        masks = check_splits({"train": train, "val": val, "test": test}, labels)
        graph = cls(features, edges, labels, **masks, num_classes=classes, name=name, regression=regression)
        return graph.to(features.device)

    @classmethod
    def from_pyg(cls, data: Any, name: str = "graph", *, regression: bool = False) -> "Graph":
        """Check and convert a `torch_geometric.data.Data`.

        It has ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``; all are as for `build`.

        Raises:
            InputError: it is not a `Data`, an attribute is missing, or a value is wrong.
        """
        from torch_geometric.data import Data, HeteroData

        if isinstance(data, HeteroData):
            hint = "expected one type of node and edge: call .to_homogeneous() on it"
            raise InputError(f"the data is a HeteroData; {hint}")
        if not isinstance(data, Data):
            raise InputError(f"the data is a {type(data).__name__}; expected a torch_geometric.data.Data")
        keys = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
        values: dict[str, Any] = {key: getattr(data, key, None) for key in keys}
        if missing := [key for key, value in values.items() if value is None]:
            raise InputError(f"the Data has no {', '.join(missing)}; expected all of {', '.join(keys)}: set them on it")
        train, val, test = (values.pop(f"{split}_mask") for split in ("train", "val", "test"))
        return cls.build(**values, train=train, val=val, test=test, name=name, regression=regression)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """E, the number of directed edges."""
        return self.edge_index.shape[1]

    @property
    def num_features(self) -> int:
        """F."""
        return self.x.shape[1]

    @property
    def multi_label(self) -> bool:
        """Whether nodes have several labels: ``y`` is [N, K] of 0 and 1."""
        return self.y.ndim == 2 and not self.regression

    def checksum(self) -> int:
        """Return a CRC-32 of edges, labels and splits: different graphs almost surely have different checksums."""
        checksum = 0
        for tensor in (self.edge_index, self.y, self.train, self.val, self.test):
            checksum = zlib.crc32(tensor.cpu().contiguous().numpy().view(np.uint8).data, checksum)
        return checksum

    def to(self, device: torch.device | str) -> "Graph":
        """Return the graph with every tensor on ``device``. Tensors that are already there are not copied."""
        names = ("x", "edge_index", "y", "train", "val", "test")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def __repr__(self) -> str:
        sizes = f"nodes={self.num_nodes}, edges={self.num_edges}, features={self.num_features}"
        return f"Graph({self.name!r}, {sizes}, classes={self.num_classes})"
