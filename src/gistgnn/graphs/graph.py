"""`Graph`: the graph of a node classification task."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs import checks
from gistgnn.graphs.checks import EDGE_DATA, ArrayLike
from gistgnn.graphs.csr import CSR
from gistgnn.graphs.features import bytes_of
from gistgnn.utils.checks import check_flag, check_name
from gistgnn.utils.tensors import Array, tensor_digest

DATA_KEYS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
"""The attributes of a `torch_geometric.data.Data` that make a graph; it may lack the last."""


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """One graph with features, labels and a split of its nodes.

    The constructor checks nothing. Use `Graph.build` or `Graph.from_pyg` for unchecked data.

    Attributes:
        x: [N, F] float32, the features; a CSR tensor where they were given as a sparse matrix of
            few entries.
        edges: the sources of the edges into each node, ascending, without duplicates. Self-loops
            are kept. An undirected edge is stored in both directions. With edge data there may be
            duplicates.
        y: [N] int64, −1 for an unlabelled node; or [N, K] float32 in {0, 1} if nodes have several
            labels; or [N, K] float32 of any values, the targets of a regression.
        train, val, test: [N] bool. The masks are disjoint, and contain labelled nodes only. Without
            a test set the mask ``test`` is False everywhere, and there are no test scores.
        num_classes: the number of classes; K if nodes have several labels or targets.
        name: the graph's name in messages and results.
        regression: `y` holds numbers to be predicted, not classes or labels.
        edge_weight: [E] float32, or None. Edge data reaches a model whose forward has an argument
            of its name.
        edge_attr: [E] or [E, D] features of the edges, float32, or int64 for integers; or None.
        edge_type: [E] int64, the number of each edge's type, from 0; or None.
        folder: the graph folder from which x, edges and edge data are mapped. Nothing may be
            written into a mapped tensor. Without a folder they are in memory.
        cluster_ptr: [c + 1] int64, if the nodes are in the order of clusters: cluster k is the
            nodes ``cluster_ptr[k] : cluster_ptr[k + 1]``.
        class_names: the name of each class, if labels were texts.
    """

    x: Tensor
    edges: CSR
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int
    name: str = "graph"
    regression: bool = False
    edge_weight: Tensor | None = None
    edge_attr: Tensor | None = None
    edge_type: Tensor | None = None
    folder: Path | None = None
    cluster_ptr: Tensor | None = None
    class_names: tuple[str, ...] = ()

    @classmethod
    def build(
        cls,
        x: ArrayLike,
        edge_index: ArrayLike,
        y: ArrayLike,
        *,
        train: ArrayLike,
        val: ArrayLike,
        test: ArrayLike = (),
        num_classes: int | None = None,
        name: str = "graph",
        regression: bool = False,
        edge_weight: ArrayLike | None = None,
        edge_attr: ArrayLike | None = None,
        edge_type: ArrayLike | None = None,
        partial: bool = False,
    ) -> "Graph":
        """Check tensors, arrays or lists and build a graph on the device of ``x``.

        Args:
            x: [N, F] finite numbers, or a sparse matrix of torch, SciPy or torch_sparse, which is
                kept sparse if less than a tenth of its entries are not 0. A contiguous float32
                tensor or array is not copied.
            edge_index: [2, E] integers, sources and targets, in any order. Duplicates are dropped,
                unless there is edge data.
            y: [N] or [N, 1] integers (also as floats), −1 for unlabelled; or [N] texts, which are
                numbered in sorted order, "" for unlabelled; or [N, K] of 0 and 1.
            train, val, test: each a bool mask [N], or distinct node numbers; ``test`` may be empty.
            num_classes: number of classes. Defaults to the largest label plus one, or K.
            name: the graph's name.
            regression: ``y`` is [N] or [N, K] numbers to be predicted, finite for the nodes of the
                splits.
            edge_weight: [E] finite numbers, in the order of ``edge_index``.
            edge_attr: [E] or [E, D] finite numbers, likewise.
            edge_type: [E] integers from 0, likewise.
            partial: any two of the splits may be empty: such a graph is scored, not trained on.
        """
        check_name("name", name)
        check_flag("regression", regression)
        check_flag("partial", partial)
        features = checks.check_features(x)
        y, names = (y, ()) if regression else checks.number_labels(y)
        labels, classes = checks.check_labels(
            y, features.shape[0], num_classes, regression=regression
        )
        if names and classes != len(names):
            raise InputError(
                f"num_classes is {classes}, y names {len(names)} classes: leave num_classes out"
            )
        edge_data = {"edge_weight": edge_weight, "edge_attr": edge_attr, "edge_type": edge_type}
        sorted_edges, data = checks.check_edges(edge_index, features.shape[0], edge_data)
        edges = CSR.of(sorted_edges, features.shape[0])
        if len(features) < 2**31:
            edges = CSR(
                edges.rowptr, edges.col.to(torch.int32, memory_format=torch.contiguous_format)
            )
        masks = checks.check_splits(
            {"train": train, "val": val, "test": test}, labels, partial=partial
        )
        device = features.device
        by_name: dict[str, Any] = {key: tensor.to(device) for key, tensor in (masks | data).items()}
        return cls(
            features,
            edges.to(device),
            labels.to(device),
            num_classes=classes,
            name=name,
            regression=regression,
            class_names=names,
            **by_name,
        )

    @classmethod
    def from_pyg(
        cls, data: Any, name: str = "graph", *, regression: bool = False, partial: bool = False
    ) -> "Graph":
        """Check and convert a `torch_geometric.data.Data`.

        It has ``x``, ``edge_index``, ``y``, ``train_mask`` and ``val_mask``, as for `build`. It may
        have ``test_mask``, ``edge_weight``, ``edge_attr`` and ``edge_type``; and the ``adj_t`` of
        ToSparseTensor instead of ``edge_index``.
        """
        require_data(data)
        values: dict[str, Any] = {key: getattr(data, key, None) for key in (*DATA_KEYS, *EDGE_DATA)}
        if values["edge_index"] is None and (adj_t := getattr(data, "adj_t", None)) is not None:
            values["edge_index"], weights = checks.edges_of_adj_t(adj_t)
            if values["edge_weight"] is None and bool((weights != 1).any()):
                values["edge_weight"] = weights
        needed = DATA_KEYS[:3] if partial else DATA_KEYS[:5]
        if missing := [key for key in needed if values[key] is None]:
            advice = "set them on it"
            if "edge_label" in data:
                advice = "for links see examples/link_prediction.py"
            if "val_mask" in missing:
                advice += ", as torch_geometric.transforms.RandomNodeSplit() does"
            raise InputError(
                f"the Data has no {', '.join(missing)}; expected all of {', '.join(needed)}: "
                f"{advice}"
            )
        masks = {split: values.pop(f"{split}_mask") for split in SPLITS}
        values |= {split: () if mask is None else mask for split, mask in masks.items()}
        return cls.build(**values, name=name, regression=regression, partial=partial)

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_edges(self) -> int:
        """E, the number of directed edges."""
        return self.edges.num_edges

    @cached_property
    def edge_index(self) -> Tensor:
        """[2, E] int64, the sources above the targets, sorted by (target, source).

        It is built at the first use.
        """
        return self.edges.edge_index()

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def edge_data(self) -> dict[str, Tensor]:
        """``edge_weight``, ``edge_attr`` and ``edge_type``, those that the graph has, by name."""
        return {name: value for name in EDGE_DATA if (value := getattr(self, name)) is not None}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the graph but its edges, by name."""
        return {
            "x": self.x,
            "y": self.y,
            "train": self.train,
            "val": self.val,
            "test": self.test,
            **self.edge_data,
        }

    @property
    def held_bytes(self) -> int:
        """Bytes of the tensors in memory.

        Tensors that are mapped from a folder do not count.
        """
        small = (self.y, self.train, self.val, self.test)
        if self.folder:
            return sum(tensor.nbytes for tensor in small)
        return self.edges.nbytes + sum(bytes_of(tensor) for tensor in self.tensors.values())

    @property
    def multi_label(self) -> bool:
        """Whether nodes have several labels: ``y`` is [N, K] of 0 and 1."""
        return self.y.ndim == 2 and not self.regression

    def digests(self) -> dict[str, str]:
        """Return a digest of each part of the graph that decides what is learned from it.

        They are by the part's name. Of a mapped tensor that is an unchanged file of the graph's
        folder, the digest in the manifest is taken.
        """
        tensors = {
            "labels": self.y,
            "training nodes": self.train,
            "validation nodes": self.val,
            "test nodes": self.test,
            "edge weights": self.edge_weight,
            "edge features": self.edge_attr,
            "edge types": self.edge_type,
            "clusters": self.cluster_ptr,
            "features": self.x,  # at the end: scaled features follow from the training nodes
        }
        digests = {
            name: tensor_digest(tensor) for name, tensor in tensors.items() if tensor is not None
        }
        return {"edges": self.edges.digest(), **digests}

    def to(self, device: torch.device | str) -> "Graph":
        """Return the graph with every tensor on `device`, but mapped ones.

        Batches of mapped tensors move when they are used.
        """
        if torch.device(device) == self.y.device:
            return self
        names = ("y", "train", "val", "test") if self.folder else (*self.tensors, "edges")
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in names}
        return replace(self, **moved)

    def __repr__(self) -> str:
        sizes = f"nodes={self.num_nodes}, edges={self.num_edges}, features={self.num_features}"
        data = "".join(f", {name}" for name in self.edge_data)
        return f"Graph({self.name!r}, {sizes}, classes={self.num_classes}{data})"


SPLITS = {"train": 1, "val": 2, "test": 3}
"""The numbers of the splits in files. A node with 0 is in no split."""

# The seed belongs to the split, not to a run: results of different seeds are on the same nodes.
SPLIT_SEED = 2020


def masks_of(split: Any) -> dict[str, Any]:
    """Return the mask of every split, [N], by name.

    ``split`` has the numbers of `SPLITS`: [N], a tensor or an array.
    """
    return {name: split == number for name, number in SPLITS.items()}


def require_data(data: Any) -> None:
    """Refuse what is no `torch_geometric.data.Data`, and say what to do."""
    from torch_geometric.data import Data, Dataset, HeteroData

    if isinstance(data, HeteroData):
        hint = "call gistgnn.graphs.from_hetero on it, or give it to GIST.fit"
        raise InputError(f"the data is a HeteroData; expected a Data: {hint}")
    if not isinstance(data, Data):
        several = isinstance(data, (list, tuple, Dataset))
        hint = ": for a label of each graph see examples/graph_classification.py" if several else ""
        raise InputError(
            f"the data is a {type(data).__name__}; expected a torch_geometric.data.Data{hint}"
        )


def draw_split(num_nodes: int, train: int, val: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ``train`` and ``val`` of ``num_nodes`` nodes uniformly at random.

    Returns the masks train, val, test: [N].
    """
    # NumPy has frozen the stream of RandomState: the same nodes in every version.
    order = torch.from_numpy(np.random.RandomState(SPLIT_SEED).permutation(num_nodes))
    masks = torch.zeros(3, num_nodes, dtype=torch.bool)
    for mask, nodes in zip(masks, order.tensor_split([train, train + val]), strict=True):
        mask[nodes] = True
    return masks[0], masks[1], masks[2]


def both_ways(one: Array, other: Array) -> Array:
    """Return ``edge_index``: [2, E] of edges that are given once, by their ends: [E / 2]."""
    return np.stack([np.concatenate([one, other]), np.concatenate([other, one])])


def undirected_graph(
    x: Array, one: Array, other: Array, y: Array, split: Array, **facts: Any
) -> Graph:
    """Build a graph of edges that are given once, by their ends ``one`` and ``other``: [E / 2].

    For the other arguments see `Graph.build`.
    """
    return Graph.build(x, both_ways(one, other), y, **masks_of(split), **facts)
