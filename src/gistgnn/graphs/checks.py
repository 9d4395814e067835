"""Checks that convert a user's data to the tensors of a `Graph`, or say in one line what is wrong."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.utils.checks import check_count
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes

ArrayLike: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[Any]


_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # few operations take them
_DTYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *_UNSIGNED}
_DTYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def check_room(needed: int, what: str = "") -> None:
    """Refuse ``needed`` bytes if this machine has fewer; the message begins with ``what`` takes them."""
    available = available_bytes(torch.device("cpu"))
    if needed > available:
        text = f"takes {size(needed)} of memory, {size(available)} are available"
        raise InputError(f"{what} {text}" if what else text)


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
    # torch supports few operations on unsigned integers, and no long doubles, foreign byte orders or negative strides.
    plain = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float32 if array.dtype == np.float32 else np.float64}
    if array.dtype.kind not in plain:
        raise InputError(f"{name} has dtype {array.dtype}; expected a dense array of real numbers")
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise InputError(f"{name} holds {array.max()}; expected integers below 2^63")
    return torch.from_numpy(np.require(array, dtype=plain[array.dtype.kind], requirements=["C", "W"]))


def _plain(value: Tensor, name: str) -> Tensor:
    """Return a tensor that all of torch's operations take."""
    if value.is_nested or value.layout != torch.strided:
        kind = "nested" if value.is_nested else "sparse"
        hint = "to_padded_tensor" if value.is_nested else "to_dense"
        raise InputError(f"{name} is a {kind} tensor ({value.layout}); expected a dense one: call .{hint}() on it")
    if value.dtype not in _DTYPES:
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
        row, column = first_of(~torch.isfinite(x))
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
        row, column = first_of((edges < 0) | (edges >= num_nodes))
        raise InputError(
            f"edge_index[{row}, {column}] is {int(edges[row, column])}; "
            f"expected node numbers from 0 to {num_nodes - 1} (x has {num_nodes} rows)"
        )
    return edges


def check_labels(
    value: ArrayLike, num_nodes: int, num_classes: int | None, *, regression: bool = False
) -> tuple[Tensor, int]:
    """Check the labels or targets of `Graph.build`.

    Returns:
        ``y``, [N] int64 or [N, K] float32; and the number of classes, or K.

    Raises:
        InputError: another shape, another number of nodes or classes, or a label out of range.
    """
    y = to_tensor(value, "y")
    if y.ndim not in (1, 2) or y.numel() == 0:
        several = "[nodes, targets]" if regression else "[nodes, labels] for several labels per node"
        raise InputError(f"y has shape {list(y.shape)}; expected [nodes], or {several}")
    if y.shape[0] != num_nodes:
        raise InputError(f"y has {y.shape[0]} rows and x has {num_nodes}; expected one row of each per node")
    if num_classes is not None and not regression:
        check_count("num_classes", num_classes, least=2)
    if not regression and y.numel() == num_nodes:
        return _single_label(y.reshape(-1), num_classes)
    y = y.reshape(num_nodes, -1)
    if num_classes not in (None, y.shape[1]):
        raise InputError(f"y has {y.shape[1]} columns and num_classes is {num_classes}; expected them to be equal")
    if not regression and (at := first_of((y != 0) & (y != 1))):
        raise InputError(f"y{at} is {y[tuple(at)].item()}; expected 0 or 1 in labels of shape [nodes, labels]")
    return y.to(torch.float32).contiguous(), y.shape[1]


def _single_label(y: Tensor, num_classes: int | None) -> tuple[Tensor, int]:
    if y.is_floating_point() and (at := first_of(~torch.isfinite(y) | (y != torch.floor(y)))):
        raise InputError(f"y{at} is {y[at].item()}; expected an integer label, or -1 for an unlabelled node")
    y = y.to(torch.int64).contiguous()
    (lowest, low), (largest, node) = ((int(y[at]), at) for at in (int(y.argmin()), int(y.argmax())))
    if lowest < -1:
        raise InputError(f"y[{low}] is {lowest}; expected labels from 0 up, or -1 for an unlabelled node")
    if num_classes is not None and largest >= num_classes:
        raise InputError(f"y[{node}] is {largest}; expected labels below num_classes, which is {num_classes}")
    if num_classes is not None:
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
        unusable = mask & (y == -1 if y.ndim == 1 else ~torch.isfinite(y).all(dim=1))
        at = first_of(unusable)
        if at and y.ndim == 2:
            raise InputError(f"y[{at[0]}] is not finite, but {name} holds node {at[0]}: take it out of {name}")
        if at:
            raise InputError(
                f"{name} holds {int(unusable.sum())} unlabelled nodes (y = -1), the first is node {at[0]}; "
                f"expected labelled nodes only: take them out of {name}"
            )
    for one, other in combinations(masks, 2):
        both = masks[one] & masks[other]
        if at := first_of(both):
            shared = f"share {int(both.sum())} nodes, the first is node {at[0]}"
            raise InputError(f"{one} and {other} {shared}; expected disjoint splits")
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
    if is_mask:
        return tensor.contiguous()
    if tensor.is_floating_point():
        raise InputError(f"{name} has dtype {tensor.dtype}; expected a bool mask or integer node numbers")
    indices = tensor.to(torch.int64)
    if at := first_of((indices < 0) | (indices >= num_nodes)):
        raise InputError(f"{name}{at} is {int(indices[at])}; expected node numbers from 0 to {num_nodes - 1}")
    times = torch.bincount(indices, minlength=num_nodes)
    if at := first_of(times > 1):
        raise InputError(
            f"{name} holds node {at[0]} more than once; expected distinct node numbers (if it is a mask, make it bool)"
        )
    return times > 0


def first_of(bad: Tensor) -> list[int]:
    """Return the indices of the first True; none if all are False."""
    first: list[int] = bad.nonzero()[0].tolist() if bad.any() else []
    return first
