"""Edge data: the weight, the features and the type of every edge."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.checks import ArrayLike, check_edges, first_of, to_tensor, valid_edges

EDGE_DATA = ("edge_weight", "edge_attr", "edge_type")
"""The names of edge data, in `Graph`, in PyG's `Data` and among the arguments of a model's forward."""


def check_edge_data(
    edge_index: ArrayLike, data: Mapping[str, ArrayLike | None], num_nodes: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return ``edge_index`` as `check_edges` does, and the edge data in the order of its edges.

    Where there is edge data, repeated edges are kept, because they may differ in their data.

    Args:
        edge_index: [2, E] integers.
        data: by a name of `EDGE_DATA` its values, with one row per edge; None: there is none.
        num_nodes: N.

    Raises:
        InputError: edges as for `check_edges`; or another shape or dtype, a value that is not finite, or a negative
            type.
    """
    given = {name: value for name, value in data.items() if value is not None}
    if not given:
        return check_edges(edge_index, num_nodes), {}
    edges = valid_edges(edge_index, num_nodes)
    checked = {name: _check(name, value, edges.shape[1]) for name, value in given.items()}
    key = edges[1] * num_nodes + edges[0]
    if bool((key[1:] >= key[:-1]).all()):
        return edges.contiguous(), checked
    order = torch.argsort(key, stable=True)
    return edges[:, order].contiguous(), {name: value[order.to(value.device)] for name, value in checked.items()}


def edge_data_of(source: Any) -> dict[str, Any]:
    """Return the attributes of an object, such as a `Data` or a `Graph`, that are edge data, by name."""
    values = {name: getattr(source, name, None) for name in EDGE_DATA}
    return {name: value for name, value in values.items() if value is not None}


def _check(name: str, value: ArrayLike, edges: int) -> Tensor:
    """Return the values of one name: [E] or, for edge_attr, also [E, D]; float32, or int64 for integers."""
    tensor = to_tensor(value, name)
    if name != "edge_attr" and tensor.ndim == 2 and tensor.shape[1] == 1:
        tensor = tensor[:, 0]
    fits = tensor.ndim == 1 or (name == "edge_attr" and tensor.ndim == 2 and tensor.shape[1] > 0)
    if not fits or tensor.shape[0] != edges:
        expected = f"[{edges}, features], one row" if name == "edge_attr" else f"[{edges}], one number"
        raise InputError(f"{name} has shape {list(tensor.shape)}; expected {expected} per edge")
    if name == "edge_type" and (tensor.is_floating_point() or tensor.dtype == torch.bool):
        raise InputError(f"edge_type has dtype {tensor.dtype}; expected integers from 0 up")
    is_integer = name == "edge_type" or (name == "edge_attr" and not tensor.is_floating_point())
    tensor = tensor.to(torch.int64 if is_integer else torch.float32).contiguous()
    if at := first_of(tensor < 0 if name == "edge_type" else ~torch.isfinite(tensor)):
        expected = "integers from 0 up" if name == "edge_type" else "finite float32 values"
        raise InputError(f"{name}{at} is {tensor[tuple(at)].item()}; expected {expected}")
    return tensor
