"""Small graphs, valid and invalid."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data

from gistgnn.graphs import Graph

TENSORS = ("x", "edge_index", "y", "train", "val", "test")


def arguments(**changes: Any) -> dict[str, Any]:
    """Arguments of `Graph.build` for a valid graph of six nodes, with changes."""
    valid = {
        "x": torch.arange(12.0).reshape(6, 2),
        "edge_index": torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]),
        "y": torch.tensor([0, 1, 2, 0, 1, -1]),
        "train": [0, 1],
        "val": [2],
        "test": [3, 4],
    }
    return {**valid, **changes}


def arrays_of(graph: Graph) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a graph as a ``.npz`` holds them."""
    return {
        name: value.numpy().copy()
        for name, value in {**graph.tensors, "edge_index": graph.edge_index}.items()
    }


def as_data(graph: Graph, **changes: Any) -> Data:
    """The graph as PyG has it, with changes."""
    masks = {f"{name}_mask": getattr(graph, name) for name in ("train", "val", "test")}
    return Data(**{"x": graph.x, "edge_index": graph.edge_index, "y": graph.y, **masks, **changes})


def tells_classes(graph: Graph) -> bool:
    """Whether the labels alone say how many classes there are."""
    if graph.multi_label:
        return True
    most = int(graph.y.max()) + 1
    return len(graph.y[graph.y >= 0].unique()) > 1 and most == graph.num_classes <= graph.num_nodes


def assert_equal(one: Graph, other: Graph) -> None:
    for name in TENSORS:
        left = getattr(one, name)
        right = getattr(other, name)
        assert left.dtype == right.dtype
        assert torch.equal(left, right), name
    assert (one.num_classes, one.regression, one.num_edges) == (
        other.num_classes,
        other.regression,
        other.num_edges,
    )
    assert one.edge_data.keys() == other.edge_data.keys()
    for name, value in one.edge_data.items():
        assert torch.equal(value, other.edge_data[name]), name
    assert one.digests() == other.digests()


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.integers(3, 12))
    features = draw(st.integers(1, 4))
    classes = draw(st.integers(2, 4))
    node = st.integers(0, nodes - 1)
    several = draw(st.booleans())
    edges = draw(st.lists(st.tuples(node, node), min_size=1, max_size=40))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    x = draw(
        st.lists(
            st.lists(finite, min_size=features, max_size=features), min_size=nodes, max_size=nodes
        )
    )
    order = draw(st.permutations(range(nodes)))
    one, two, three = sorted(draw(st.sets(st.integers(1, nodes), min_size=3, max_size=3)))
    splits = {"train": order[:one], "val": order[one:two], "test": order[two:three]}
    label = (
        st.lists(st.integers(0, 1), min_size=classes, max_size=classes)
        if several
        else st.integers(0, classes - 1)
    )
    y: Any = draw(st.lists(label, min_size=nodes, max_size=nodes))
    for unused in () if several else order[three:]:
        y[unused] = -1
    return Graph.build(
        torch.tensor(x),
        torch.tensor(edges).t(),
        y,
        **splits,
        num_classes=None if several else classes,
    )


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)
