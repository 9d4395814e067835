"""Checks that convert a user's data to the tensors of a `Graph`, or say in one line what is wrong."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.archive import check_room
from gistgnn.utils.checks import check_count

ArrayLike: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[Any]


_MOST = 2**63 - 1
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # few operations take them

KINDS = "biuf"
"""The kinds of NumPy's dtypes that are accepted: bools, integers, unsigned integers and floats."""

DTYPES = {torch.bool, torch.int8, torch.int16, torch.int32, torch.int64}
DTYPES |= {torch.uint8, torch.uint16, torch.uint32, torch.uint64}
DTYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}
"""The dtypes of tensors that are accepted: no complex, quantised or 8-bit floating numbers."""


def to_tensor(value: ArrayLike, name: str) -> Tensor:
    """Convert a tensor, an array or nested lists to a dense tensor of real numbers or bools; ``name`` is for errors.

    Raises:
        InputError: it is sparse, nested, ragged, complex, quantised or not numeric, has no values (the device meta),
            or does not fit in memory where it has to be copied.
    """
    if isinstance(value, Tensor):
        return _plain(value.detach(), name)
    try:
        array = np.asarray(value)
    except Exception as error:  # rows of different lengths, or an object whose own code fails
        raise InputError(f"{name} cannot be converted to an array; expected rows of equal length") from error
    kind = array.dtype.kind
    if kind not in KINDS:
        raise InputError(f"{name} has dtype {array.dtype}; expected a dense array of real numbers")
    if array.dtype == np.uint64 and array.size and array.max() > _MOST:
        raise InputError(f"{name} holds {array.max()}; expected integers below 2^63")
    # torch supports few operations on unsigned integers, and no long doubles, foreign byte orders or negative strides.
    plain = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float32 if array.dtype == np.float32 else np.float64}
    return torch.from_numpy(np.require(array, dtype=plain[kind], requirements=["C", "W"]))


def _plain(value: Tensor, name: str) -> Tensor:
    """Return a tensor that all of torch's operations take."""
    if value.is_nested or value.layout != torch.strided:
        kind = "nested" if value.is_nested else "sparse"
        hint = "to_padded_tensor" if value.is_nested else "to_dense"
        raise InputError(f"{name} is a {kind} tensor ({value.layout}); expected a dense one: call .{hint}() on it")
    if value.dtype not in DTYPES:
        raise InputError(
            f"{name} has dtype {value.dtype}; expected real numbers: bools, integers, or floats of 16 bits up"
        )
    if value.device.type == "meta":
        raise InputError(f"{name} is on the device meta, where tensors have no values; expected one with values")
    if value.nbytes > value.untyped_storage().nbytes():  # `expand` has made it: operations would copy it
        check_room(value.nbytes, f"{name} of shape {list(value.shape)}")
    if value.dtype == torch.uint64 and bool((value.view(torch.int64) < 0).any()):
        raise InputError(f"{name} holds a number of 2^63 or more; expected integers below that")
    return value.to(torch.int64) if value.dtype in _UNSIGNED else value


def check_features(value: ArrayLike, first: int = 0) -> Tensor:
    """Return ``x`` as [N, F] float32, finite, with N and F at least 1; without a copy if possible.

    ``first`` is the number of the first node, for messages.

    Raises:
        InputError: another shape, NaN or infinity; the message names the first wrong row.
    """
    x = to_tensor(value, "x")
    if x.ndim != 2 or 0 in x.shape:
        expected = "[nodes, features]" if x.ndim != 2 else "at least one node and one feature"
        raise InputError(f"x has shape {list(x.shape)}; expected {expected}")
    x = x.to(torch.float32).contiguous()
    if not torch.isfinite(torch.stack(x.aminmax())).all():  # in one pass; both are NaN if any value is
        row, column = _first(~torch.isfinite(x))
        raise InputError(
            f"x[{first + row}, {column}] is {x[row, column].item()}; expected finite float32 values: "
            f"clean or impute the features of node {first + row} (the first such row)"
        )
    return x


def check_edges(value: ArrayLike, num_nodes: int) -> Tensor:
    """Return ``edge_index`` as [2, E] int64, sorted by (target, source), without duplicates.

    Raises:
        InputError: as `valid_edges`.
    """
    edges = valid_edges(value, num_nodes)
    key = edges[1] * num_nodes
    key += edges[0]
    if bool((key[1:] > key[:-1]).all()):  # as in files of save_file: no sort of large graphs
        return edges.contiguous()
    key = torch.unique(key, sorted=True)
    target = torch.div(key, num_nodes, rounding_mode="floor")
    return torch.stack([key - target * num_nodes, target])


def valid_edges(value: ArrayLike, num_nodes: int) -> Tensor:
    """Return ``edge_index`` as [2, E] int64, in the order in which it is given.

    Raises:
        InputError: another shape or dtype, no edges, or an unknown node.
    """
    edges = to_tensor(value, "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2:
        hint = ": transpose it" if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise InputError(f"edge_index has shape {list(edges.shape)}; expected [2, edges]{hint}")
    if edges.shape[1] == 0:
        raise InputError("edge_index has no edges (shape [2, 0]); expected at least one")
    if edges.is_floating_point() or edges.dtype == torch.bool:
        raise InputError(f"edge_index has dtype {edges.dtype}; expected integers (int64)")
    edges = edges.to(torch.int64)
    lowest, highest = edges.aminmax()  # masks of all edges only for the error message
    if lowest < 0 or highest >= num_nodes:
        row, column = _first((edges < 0) | (edges >= num_nodes))
        raise InputError(
            f"edge_index[{row}, {column}] is {int(edges[row, column])}; "
            f"expected node numbers from 0 to {num_nodes - 1} (x has {num_nodes} rows)"
        )
    return edges


def check_labels(value: ArrayLike, num_nodes: int, num_classes: int | None) -> tuple[Tensor, int]:
    """Check the labels of `Graph.build`; return ``y``, [N] int64 or [N, K] float32, and the number of classes.

    Raises:
        InputError: another shape, another number of nodes, or a label out of range.
    """
    y = to_tensor(value, "y")
    if y.ndim not in (1, 2) or y.numel() == 0:
        expected = "[nodes], or [nodes, labels] for several labels per node"
        raise InputError(f"y has shape {list(y.shape)}; expected {expected}")
    if y.shape[0] != num_nodes:
        raise InputError(f"y has {y.shape[0]} rows and x has {num_nodes}; expected one row of each per node")
    if num_classes is not None:
        check_count("num_classes", num_classes, least=2)
    if y.ndim == 2 and y.shape[1] > 1:
        return _multi_label(y, num_classes), y.shape[1]
    return _single_label(y.reshape(-1), num_classes)


def check_targets(value: ArrayLike, num_nodes: int, num_classes: int | None) -> tuple[Tensor, int]:
    """Check the targets of a regression; return them as [N, K] float32, and K.

    Raises:
        InputError: another shape, another number of nodes, or a number of outputs that is not K.
    """
    y = to_tensor(value, "y")
    if y.ndim not in (1, 2) or y.numel() == 0 or y.shape[0] != num_nodes:
        raise InputError(f"y has shape {list(y.shape)}; expected [{num_nodes} nodes] or [{num_nodes} nodes, targets]")
    y = y.reshape(num_nodes, -1)
    if num_classes not in (None, y.shape[1]):
        raise InputError(f"y has {y.shape[1]} columns and num_classes is {num_classes}; expected them to be equal")
    return y.to(torch.float32).contiguous(), y.shape[1]


def _multi_label(y: Tensor, num_classes: int | None) -> Tensor:
    if num_classes is not None and num_classes != y.shape[1]:
        raise InputError(f"y has {y.shape[1]} columns and num_classes is {num_classes}; expected them to be equal")
    if at := _first((y != 0) & (y != 1)):
        raise InputError(f"y{at} is {y[tuple(at)].item()}; expected 0 or 1 in labels of shape [nodes, labels]")
    return y.to(torch.float32).contiguous()


def _single_label(y: Tensor, num_classes: int | None) -> tuple[Tensor, int]:
    if y.is_floating_point() and (at := _first(~torch.isfinite(y) | (y != torch.floor(y)))):
        raise InputError(f"y{at} is {y[at].item()}; expected an integer label, or -1 for an unlabelled node")
    y = y.to(torch.int64).contiguous()
    node = int(y.argmin())
    if y[node] < -1:
        raise InputError(f"y[{node}] is {int(y[node])}; expected labels from 0 up, or -1 for an unlabelled node")
    node = int(y.argmax())
    largest = int(y[node])
    if num_classes is not None:
        if largest >= num_classes:
            raise InputError(f"y[{node}] is {largest}; expected labels below num_classes, which is {num_classes}")
        return y, num_classes
    if largest >= y.shape[0]:
        raise InputError(
            f"y[{node}] is {largest}, which makes more classes than the {y.shape[0]} nodes; expected labels "
            "0, 1, ..., classes - 1: renumber them, or give num_classes"
        )
    present = torch.unique(y[y >= 0]).tolist()
    if len(present) < 2:
        labels = f"only the label {present[0]}" if present else "no label but -1 (unlabelled)"
        raise InputError(f"y holds {labels}; expected at least 2 classes")
    return y, largest + 1


def check_splits(splits: Mapping[str, ArrayLike], y: Tensor) -> dict[str, Tensor]:
    """Return one bool mask [N] per split. Splits must be disjoint, not empty, and contain labelled nodes only.

    Raises:
        InputError: a split breaks one of these rules; the message names the first wrong node.
    """
    masks = {name: _mask(value, name, y.shape[0]).to(y.device) for name, value in splits.items()}
    for name, mask in masks.items():
        unlabelled = mask & (y == -1) if y.ndim == 1 else torch.zeros_like(mask)
        if y.ndim == 2 and (at := _first(mask & ~torch.isfinite(y).all(dim=1))):
            raise InputError(f"y[{at[0]}] is not finite, but {name} holds node {at[0]}: take it out of {name}")
        if at := _first(unlabelled):
            raise InputError(
                f"{name} holds {int(unlabelled.sum())} unlabelled nodes (y = -1), the first is node {at[0]}; "
                f"expected labelled nodes only: take them out of {name}"
            )
    for one, other in combinations(masks, 2):
        both = masks[one] & masks[other]
        if at := _first(both):
            shared = int(both.sum())
            raise InputError(
                f"{one} and {other} share {shared} nodes, the first is node {at[0]}; expected disjoint splits"
            )
    return masks


def _mask(value: ArrayLike, name: str, num_nodes: int) -> Tensor:
    tensor = to_tensor(value, name)
    if tensor.ndim != 1:
        hint = f": choose one column, such as {name}[:, 0]" if tensor.ndim == 2 else ""
        shape = list(tensor.shape)
        raise InputError(f"{name} has shape {shape}; expected a mask [nodes] or a list of node numbers{hint}")
    is_mask = tensor.dtype == torch.bool
    if is_mask and tensor.shape[0] != num_nodes:
        raise InputError(f"{name} is a mask of length {tensor.shape[0]}; expected {num_nodes}, one entry per node")
    if not (tensor.any() if is_mask else len(tensor)):
        raise InputError(f"{name} is empty; expected at least one node")
    return tensor.contiguous() if is_mask else _mask_of(tensor, name, num_nodes)


def _mask_of(indices: Tensor, name: str, num_nodes: int) -> Tensor:
    if indices.is_floating_point():
        raise InputError(f"{name} has dtype {indices.dtype}; expected a bool mask or integer node numbers")
    indices = indices.to(torch.int64)
    if at := _first((indices < 0) | (indices >= num_nodes)):
        raise InputError(f"{name}{at} is {int(indices[at])}; expected node numbers from 0 to {num_nodes - 1}")
    times = torch.bincount(indices, minlength=num_nodes)
    if at := _first(times > 1):
        raise InputError(
            f"{name} holds node {at[0]} more than once; expected distinct node numbers (if it is a mask, make it bool)"
        )
    return times > 0


def _first(bad: Tensor) -> list[int]:
    """Return the indices of the first True; none if all are False."""
    first: list[int] = bad.nonzero()[0].tolist() if bad.any() else []
    return first
