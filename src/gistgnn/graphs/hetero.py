"""A PyG `HeteroData` as one graph: the nodes of all types, with the types of its edges."""

import copy
import warnings
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from gistgnn.errors import InputError
from gistgnn.graphs.checks import (
    check_features,
    check_mask,
    check_room,
    dense,
    edges_of_adj_t,
    naming,
    to_tensor,
)
from gistgnn.graphs.standardise import Standardisation
from gistgnn.utils.checks import as_integer

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


def from_hetero(
    data: "HeteroData", target: str | None = None, *, standardise: bool | None = None
) -> "Data":
    """Join the types of a `HeteroData` to one `Data` for `GIST.fit`.

    PyG's `to_homogeneous` does so, too. Nodes of the target type come first, in their own order.
    The other types follow, in the order of ``data.node_types``. Each type has its own columns of
    ``x``: its features, if it has some, and a one. Nodes of other types are zero there. So a
    model's first linear layer is one linear layer, with a bias, for every node type.

    Args:
        data: the target type has ``y``, ``train_mask``, ``val_mask`` and perhaps ``test_mask``; all
            edge types have ``edge_index``, and either all or none ``edge_weight`` and
            ``edge_attr``.
        target: the node type to learn. Defaults to the only one with ``y``, or, of several, with
            ``train_mask``.
        standardise: scale the features of each type to mean 0 and deviation 1 over its nodes. By
            default they are scaled unless they are words (see `GIST.fit`).

    Returns:
        The fields that `GIST.fit` needs, on the CPU; ``edge_type``, an edge's place in
        ``data.edge_types``; and ``target_nodes``, the numbers of the target's nodes, from 0.
    """
    from torch_geometric.data import Data, HeteroData

    if not isinstance(data, HeteroData):
        raise InputError(f"the data is a {type(data).__name__}; expected a HeteroData")
    data = copy.copy(data).cpu()  # PyG moves a HeteroData in place, so this is done to a copy
    labelled = [kind for kind in data.node_types if "y" in data[kind]]
    candidates = [target] if target is not None else labelled
    if len(candidates) > 1:
        candidates = [kind for kind in labelled if "train_mask" in data[kind]]
    if len(candidates) != 1 or candidates[0] not in labelled:
        expected = (
            "expected it on the one to learn, or a choice: "
            "gistgnn.graphs.from_hetero(data, target=...)"
        )
        raise InputError(
            f"target is {target!r}, and the HeteroData has y on the node types {labelled}; "
            f"{expected}"
        )
    (target,) = candidates
    kinds = [target, *(kind for kind in data.node_types if kind != target)]
    blocks = {kind: _features(data, kind, standardise) for kind in kinds}
    counts = {kind: len(block) for kind, block in blocks.items()}
    nodes = sum(counts.values())
    columns = sum(block.shape[1] for block in blocks.values())
    hint = (
        "(the sum over all node types: reduce wide features first, such as by scikit-learn's "
        "TruncatedSVD)"
    )
    check_room(4 * nodes * columns, f"x of {nodes} nodes x {columns} columns {hint}")
    facts = {"x": torch.block_diag(*blocks.values()), "target_nodes": torch.arange(counts[target])}
    return Data(**facts, **_labels(data, target, counts), **_edges(data, counts))


def _features(data: "HeteroData", kind: str, standardise: bool | None) -> Tensor:
    """Return the features of a type's nodes, if it has some, and a column of 1."""
    with naming(f"the HeteroData's {kind!r}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns where it cannot tell the number
        x = data[kind].get("x")
        count = as_integer(data[kind].num_nodes)
        if count is None or count < 1:
            raise InputError(f"num_nodes is {count}; expected x, or num_nodes, an integer above 0")
        ones = torch.ones(count, 1)
        if x is None:
            return ones
        x = dense(check_features(x, name=f"x of the HeteroData's {kind!r}"))
        if len(x) != count:
            raise InputError(
                f"x has {len(x)} rows, and num_nodes is {count}; expected them to be equal"
            )
        is_scaled = Standardisation.suits(x) if standardise is None else standardise
        if is_scaled:
            x = Standardisation.over(x, torch.arange(count)).features(x)
        return torch.cat([x, ones], dim=1)


def _labels(data: "HeteroData", target: str, counts: dict[str, int]) -> dict[str, Tensor]:
    """Return labels and masks: other types are in no split, and have no label."""
    store = data[target]
    count = counts[target]
    other_nodes = sum(counts.values()) - count
    with naming(f"the HeteroData's {target!r}"):
        y = to_tensor(store["y"], "y")
        if y.shape[:1] != (count,):
            raise InputError(
                f"y has shape {list(y.shape)}; expected a row for each of {count} nodes"
            )
        y = y if y.is_floating_point() else y.long()
        no_label = -1 if y.numel() == count else 0  # 0 where nodes have several labels
        labels = {"y": torch.cat([y, y.new_full((other_nodes, *y.shape[1:]), no_label)])}
        for name in ("train", "val", "test"):
            if (key := f"{name}_mask") in store:
                labels[key] = pad(check_mask(store[key], name, count, empty=True), (0, other_nodes))
    return labels


def _edges(data: "HeteroData", counts: dict[str, int]) -> dict[str, Tensor]:
    """Return the edges of all types in one numbering of nodes, with their types and data."""
    # Not strict: behind the last type's start comes the number of all nodes.
    starts = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
    pieces = []
    stores: dict[tuple[str, str, str], dict[str, Any]] = {}
    # The values of every adj_t. All are 1 where edges have no weights.
    from_adj_t: dict[tuple[str, str, str], Tensor] = {}
    for kind, store in zip(data.edge_types, data.edge_stores, strict=True):
        with naming(f"the HeteroData's {kind!r}"):
            stored = dict(store.items())
            if "edge_index" not in stored and "adj_t" in stored:
                stored["edge_index"], from_adj_t[kind] = edges_of_adj_t(stored["adj_t"])
            if "edge_index" not in stored:
                raise InputError(
                    "it has no edge_index; expected one, or the adj_t of ToSparseTensor"
                )
            stores[kind] = stored
            edges = to_tensor(stored["edge_index"], "edge_index")
            if edges.ndim != 2 or len(edges) != 2 or edges.is_floating_point():
                raise InputError(
                    f"edge_index is {edges.dtype} {list(edges.shape)}; expected integers [2, edges]"
                )
            below = torch.tensor([[counts.get(end, 0)] for end in (kind[0], kind[-1])])
            if bool(((edges < 0) | (edges >= below)).any()):
                raise InputError(
                    "edge_index holds other nodes than its types; expected some below "
                    f"{below.tolist()}"
                )
            pieces.append(edges + torch.tensor([[starts[kind[0]]], [starts[kind[-1]]]]))
    sizes = torch.tensor([piece.shape[1] for piece in pieces], dtype=torch.long)
    joined = torch.cat([torch.empty(2, 0, dtype=torch.long), *pieces], dim=1)
    fields = {"edge_index": joined, "edge_type": torch.arange(len(sizes)).repeat_interleave(sizes)}
    if any(bool((values != 1).any()) for values in from_adj_t.values()):
        for kind, values in from_adj_t.items():
            stores[kind].setdefault("edge_weight", values)
    for name in ("edge_weight", "edge_attr"):
        values_by_type = {
            kind: to_tensor(stored[name], name) for kind, stored in stores.items() if name in stored
        }
        if not values_by_type:
            continue
        _check_same_data(name, values_by_type, dict(zip(stores, sizes.tolist(), strict=True)))
        fields[name] = torch.cat(list(values_by_type.values()))
    return fields


def _check_same_data(name: str, values_by_type: dict[Any, Tensor], sizes: dict[Any, int]) -> None:
    """Refuse edge data that some edge types lack.

    Other rows than edges, or other columns than other types have, are refused as well.
    """
    first, *_ = values_by_type
    for kind, size in sizes.items():
        where = f"the HeteroData's {kind!r}"
        if kind not in values_by_type:
            advice = (
                "give it to all edge types, or remove it from those that have it: del "
                f"data[{first!r}].{name}"
            )
            raise InputError(f"{where} has no {name}, and {first!r} has one; {advice}")
        shape = list(values_by_type[kind].shape)
        expected = [size, *values_by_type[first].shape[1:]]
        if shape != expected:
            columns = f", a row per edge and as many columns as {first!r}"
            raise InputError(f"{where}: {name} has shape {shape}; expected {expected}{columns}")
