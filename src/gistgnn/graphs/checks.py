"""Checks that convert a user's data to the tensors of a `Graph`.

Otherwise they say in one line what is wrong.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gistgnn.errors import InputError, printable
from gistgnn.graphs.columns import Rounding, counting_columns, note_columns, suspects
from gistgnn.graphs.features import (
    SPARSE_BELOW,
    columns_of,
    csr_of,
    entries_of_coo,
    is_sparse_matrix,
    nonzero_share,
    places_of,
)
from gistgnn.graphs.tables import SUFFIXES
from gistgnn.utils.checks import check_count, check_name
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes, of_the_limit

log = logging.getLogger(__name__)

ArrayLike: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[Any]

EDGE_DATA = ("edge_weight", "edge_attr", "edge_type")
"""The names of edge data, in `Graph`, in PyG's `Data` and among the arguments of a model's
forward.
"""

# A graph of any size may have so many classes. One with more has at least as many nodes.
_CLASSES = 10_000
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # few operations take them
_DTYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *_UNSIGNED}
_DTYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}


@contextlib.contextmanager
def naming(place: str) -> Iterator[None]:
    """Let messages of the block begin with the place of what is wrong, unless it is empty."""
    try:
        yield
    except InputError as error:
        if not place or str(error).startswith(place):
            raise
        raise InputError(f"{place}: {error}") from error


def check_room(needed: int, subject: str = "") -> None:
    """Refuse ``needed`` bytes if this machine has fewer.

    The message begins with ``subject``, which takes them.
    """
    available = available_bytes(torch.device("cpu"))
    if needed > available:
        free = f"{size(available)} are available{of_the_limit()}"
        raise InputError(f"{subject} takes {size(needed)} of memory, {free}".strip())


def check_table(path: Path) -> None:
    """Refuse a table, or a folder of tables, and say how to make a graph of it."""
    suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    if suffix is not None:
        fault = "is a table"
        edges = path
    else:
        suffix = next((suffix for suffix in SUFFIXES if any(path.glob(f"*{suffix}"))), None)
        if suffix is None:
            return
        fault = "holds tables"
        edges = path / f"edges{suffix}"
    command = f"gistgnn convert {edges} FOLDER --nodes {edges.with_name(f'nodes{suffix}')}"
    raise InputError(f"{path} {fault}: make a graph by `{command}`, and give that FOLDER")


def to_tensor(value: ArrayLike, name: str) -> Tensor:
    """Convert a tensor, an array or nested lists to a dense tensor of real numbers or bools.

    ``name`` is for errors.
    """
    if isinstance(value, Tensor):
        return _plain(value.detach(), name)
    if hasattr(value, "toarray"):  # of SciPy
        advice = (
            "give the numbers of its rows and columns [2, edges]"
            if name == "edge_index"
            else "call .toarray() on it"
        )
        raise InputError(
            f"{name} is a {type(value).__name__}, which is sparse; expected a dense array: {advice}"
        )
    try:
        array = np.asarray(value)
    except Exception as error:  # rows of different lengths, or an object whose own code fails
        raise InputError(
            f"{name} cannot be converted to an array; expected rows of equal length"
        ) from error
    # torch supports few operations on unsigned integers, and no long doubles, foreign byte orders
    # or negative strides.
    plain = {
        "b": np.bool_,
        "i": np.int64,
        "u": np.uint64,
        "f": np.float32 if array.dtype == np.float32 else np.float64,
    }
    if array.dtype.kind not in plain:
        raise InputError(f"{name} has dtype {array.dtype}; expected a dense array of real numbers")
    return _plain(
        torch.from_numpy(np.require(array, dtype=plain[array.dtype.kind], requirements=["C", "W"])),
        name,
    )


def _plain(value: Tensor, name: str) -> Tensor:
    """Return a tensor that all of torch's operations take."""
    if value.layout != torch.strided:
        raise InputError(
            f"{name} is a sparse tensor ({value.layout}); expected a dense one: call .to_dense() "
            "on it"
        )
    if value.dtype not in _DTYPES:
        expected = "real numbers: bools, integers, or floats of 16 bits up"
        raise InputError(f"{name} has dtype {value.dtype}; expected {expected}")
    return value.to(torch.int64) if value.dtype in _UNSIGNED else value


def check_features(value: ArrayLike, first: int | None = None, name: str = "x") -> Tensor:
    """Return ``x`` as [N, F] float32, finite.

    Columns that float32 rounds, or that number the rows, are noted. A sparse matrix stays one, as a
    CSR tensor, if few of its entries are not 0; others become dense.

    Args:
        value: [N, F], dense or sparse.
        first: the number of the first node, if these are a block of a graph's rows. Messages count
            from it, and the caller notes what is odd in the columns.
        name: stands for ``x`` in notes.

    Raises:
        InputError: it is no such matrix.
    """
    if is_sparse_matrix(value):
        sparse = csr_of(value)
        if 0 not in sparse.shape and nonzero_share(sparse) < SPARSE_BELOW:
            return _check_sparse_features(sparse, name)
        value = dense(sparse)
    x = to_tensor(value, "x")
    if x.ndim != 2 or 0 in x.shape:
        expected = "[nodes, features]" if x.ndim != 2 else "at least one node and one feature"
        raise InputError(f"x has shape {list(x.shape)}; expected {expected}")
    if first is None:
        rounding = Rounding()
        rounding.add(x)
        note_columns(rounding.losses(), counting_columns(x), name=name)
    x = x.to(torch.float32).contiguous()
    # One pass finds the least and the largest value; both are NaN if any value is.
    if not torch.isfinite(torch.stack(x.aminmax())).all():
        row, column = _first_of(~torch.isfinite(x))
        node = (first or 0) + row
        hint = f"clean or impute the features of node {node} (the first such row)"
        raise InputError(
            f"x[{node}, {column}] is {x[row, column].item()}; expected finite float32 values: "
            f"{hint}"
        )
    return x


def _check_sparse_features(x: Tensor, name: str) -> Tensor:
    """Return a CSR tensor as float32, finite; notes are as for `check_features`."""
    places = places_of(x)
    odd = suspects(x)
    if odd.numel():
        columns = columns_of(x, odd)
        rounding = Rounding()
        rounding.add(columns)
        losses = {int(odd[place]): loss for place, loss in rounding.losses().items()}
        counting = [int(odd[place]) for place in counting_columns(columns)]
        note_columns(losses, counting, name=name)
    values = x.values().to(torch.float32)
    wrong = (~torch.isfinite(values)).nonzero()
    if len(wrong):
        entry = int(wrong[0])
        node = int(places.row[entry])
        column = int(places.col[entry])
        hint = f"clean or impute the features of node {node} (the first such row)"
        raise InputError(
            f"x[{node}, {column}] is {values[entry].item()}; expected finite float32 values: {hint}"
        )
    return places.with_values(values)


def dense(x: Tensor) -> Tensor:
    """Return features as a dense tensor: [N, F].

    An InputError says that there is no memory for it.
    """
    if x.layout is torch.strided:
        return x
    check_room(x.numel() * x.element_size(), f"x as a dense matrix {list(x.shape)}")
    return x.to_dense()


def edges_of_adj_t(adj_t: Any) -> tuple[Tensor, Tensor]:
    """Return the edges and the values of the ``adj_t`` of PyG's ToSparseTensor.

    They are [2, E], sources above targets, and [E]. A row of ``adj_t`` has the edges into one node.
    It may be a sparse tensor, or a SparseTensor of torch_sparse.
    """
    if callable(getattr(adj_t, "coo", None)):
        target, source, values = adj_t.coo()
        return torch.stack([source, target]), torch.ones(len(source)) if values is None else values
    if not isinstance(adj_t, Tensor) or adj_t.layout == torch.strided or adj_t.ndim != 2:
        raise InputError(
            f"adj_t is a {type(adj_t).__name__}; expected a sparse matrix [nodes, nodes], or "
            "edge_index"
        )
    # Edge data are in the order of the rows.
    rows = (
        adj_t.detach()
        if adj_t.layout == torch.sparse_coo
        else adj_t.detach().to_sparse_csr().to_sparse_coo()
    )
    indices, values = entries_of_coo(rows)
    return indices.flip(0), values


def check_edges(
    value: ArrayLike, num_nodes: int, data: Mapping[str, ArrayLike | None] | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return ``edge_index``, int64, sorted by (target, source), and the edge data.

    Without data, each edge is there once.
    """
    edges = valid_edges(value, num_nodes)
    checked = {
        name: check_edge_data(name, values, edges.shape[1])
        for name, values in (data or {}).items()
        if values is not None
    }
    key = edges[1] * num_nodes
    key += edges[0]
    # Edges from files are sorted already, which saves the sort of large graphs.
    if bool((key[1:] >= key[:-1] if checked else key[1:] > key[:-1]).all()):
        return edges.contiguous(), checked
    if checked:
        order = torch.argsort(key, stable=True)
        return edges[:, order].contiguous(), {
            name: values[order.to(values.device)] for name, values in checked.items()
        }
    key = torch.unique(key, sorted=True)
    target = torch.div(key, num_nodes, rounding_mode="floor")
    return torch.stack([key - target * num_nodes, target]), {}


def valid_edges(value: ArrayLike, num_nodes: int, *, may_be_empty: bool = False) -> Tensor:
    """Return ``edge_index`` as it is, int64, of at least one edge, unless it ``may_be_empty``."""
    edges = to_tensor(value, "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2:
        hint = ": transpose it" if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise InputError(f"edge_index has shape {list(edges.shape)}; expected [2, edges]{hint}")
    if edges.shape[1] == 0:
        if may_be_empty:
            return edges.to(torch.int64)
        hint = "without a graph, give every node an edge to itself"
        raise InputError(f"edge_index has no edges (shape [2, 0]); expected at least one: {hint}")
    if edges.is_floating_point() or edges.dtype == torch.bool:
        raise InputError(f"edge_index has dtype {edges.dtype}; expected integers (int64)")
    edges = edges.to(torch.int64)
    lowest, highest = edges.aminmax()  # only an error message needs a mask of all edges
    if lowest < 0 or highest >= num_nodes:
        expected = f"node numbers from 0 to {num_nodes - 1} (x has {num_nodes} rows)"
        _refuse((edges < 0) | (edges >= num_nodes), edges, "edge_index", expected)
    return edges


def check_edge_data(name: str, value: ArrayLike, edges: int) -> Tensor:
    """Return edge data of one name: [E] or, for edge_attr, also [E, D].

    They are float32, or int64 for integers.
    """
    tensor = to_tensor(value, name)
    is_attr = name == "edge_attr"
    is_type = name == "edge_type"
    if not is_attr and tensor.ndim == 2 and tensor.shape[1] == 1:
        tensor = tensor[:, 0]
    fits = tensor.ndim == 1 or (is_attr and tensor.ndim == 2 and tensor.shape[1] > 0)
    if not fits or tensor.shape[0] != edges:
        expected = f"[{edges}, features], one row" if is_attr else f"[{edges}], one number"
        raise InputError(f"{name} has shape {list(tensor.shape)}; expected {expected} per edge")
    if is_type and (tensor.is_floating_point() or tensor.dtype == torch.bool):
        raise InputError(f"edge_type has dtype {tensor.dtype}; expected integers from 0 up")
    is_integer = is_type or (is_attr and not tensor.is_floating_point())
    tensor = tensor.to(torch.int64 if is_integer else torch.float32).contiguous()
    bad, expected = (
        (tensor < 0, "integers from 0 up")
        if is_type
        else (~tensor.isfinite(), "finite float32 values")
    )
    _refuse(bad, tensor, name, expected)
    return tensor


# The words of pandas, NumPy and R for a missing value. "Na" is a class, such as of elements.
MISSING = frozenset({"", "-1"}).union(
    *(
        {word, word.lower(), word.upper(), word.capitalize()}
        for word in ("none", "null", "nan", "-nan", "<na>")
    ),
    {"NaN", "-NaN", "NaT", "NA", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "-1.0"},
)
"""The labels in texts of a node without a label."""


def is_missing(label: Any) -> bool:
    """Whether a label of an array of texts or objects stands for none.

    Such labels are "", "-1", "nan", None, NaN and pandas' NA.
    """
    if isinstance(label, str):
        return label.strip() in MISSING
    return (
        label is None
        or type(label).__name__ in ("NAType", "NaTType")
        or (isinstance(label, float) and label != label)
    )


def note_missing_labels(counts: Mapping[str, int]) -> None:
    """Log a note on words that count as no label; ``counts`` says how many nodes have each."""
    words = {word: count for word, count in counts.items() if word not in ("", "-1", "-1.0")}
    if words:
        shown = ", ".join(f"{word!r} ({count} nodes)" for word, count in sorted(words.items()))
        log.warning(
            "y holds %s, which counts as no label: if it is a class, give it another name", shown
        )


def class_numbers(texts: Iterable[str]) -> dict[str, int]:
    """Return the number of every class that labels name, in sorted order.

    The labels of `MISSING` are those of unlabelled nodes.
    """
    names = sorted({text for text in texts if not is_missing(text)})
    for name in names:
        check_name("the name of a class in y", name)
        if printable(name) != name:
            raise InputError(f"y holds the class {name!r}; expected characters that can be printed")
    if len(names) == 1:
        raise InputError(f"y holds only the class {names[0]!r}; expected at least 2 classes")
    return {name: number for number, name in enumerate(names)}


def number_labels(value: ArrayLike) -> tuple[ArrayLike, tuple[str, ...]]:
    """Return texts [N] as numbers of classes, and the classes' names.

    Other labels are returned as they are, without names.
    """
    labels: Any = value
    if getattr(getattr(value, "dtype", None), "kind", None) in ("O", "T", "U"):
        labels = labels.tolist()
    if not isinstance(labels, (list, tuple)) or not any(isinstance(label, str) for label in labels):
        return value, ()
    if not all(isinstance(label, str) or is_missing(label) for label in labels):
        return value, ()
    texts = ["" if not isinstance(label, str) else label for label in labels]
    note_missing_labels(Counter(text.strip() for text in texts if is_missing(text)))
    numbers = class_numbers(texts)
    return [-1 if is_missing(text) else numbers[text] for text in texts], tuple(numbers)


def check_labels(
    value: ArrayLike, num_nodes: int, num_classes: int | None, *, regression: bool = False
) -> tuple[Tensor, int]:
    """Return labels or targets, [N] int64 or [N, K] float32, and the number of classes, or K."""
    y = to_tensor(value, "y")
    if y.ndim not in (1, 2) or y.numel() == 0:
        several = (
            "[nodes, targets]" if regression else "[nodes, labels] for several labels per node"
        )
        raise InputError(f"y has shape {list(y.shape)}; expected [nodes], or {several}")
    if y.shape[0] != num_nodes:
        raise InputError(
            f"y has {y.shape[0]} rows and x has {num_nodes}; expected one row of each per node"
        )
    if num_classes is not None and not regression:
        num_classes = check_classes(num_classes, num_nodes)
    if not regression and y.numel() == num_nodes:
        return single_label(y.reshape(-1), num_classes)
    y = y.reshape(num_nodes, -1)
    if num_classes not in (None, y.shape[1]):
        raise InputError(
            f"y has {y.shape[1]} columns and num_classes is {num_classes}; expected them to be "
            "equal"
        )
    if not regression:
        _refuse(
            (y != 0) & (y != 1) & (y == y),
            y,
            "y",
            "0 or 1, or NaN in no split, in labels of shape [nodes, labels]",
        )
    return y.to(torch.float32).contiguous(), y.shape[1]


def check_classes(num_classes: Any, num_nodes: int) -> int:
    """Return a number of classes, or refuse one that the graph cannot teach.

    It would make a large output layer for nothing.
    """
    return check_count("num_classes", num_classes, least=2, most=max(num_nodes, _CLASSES))


def single_label(y: Tensor, num_classes: int | None) -> tuple[Tensor, int]:
    """Return labels, one for each node, [N] int64, and the number of classes.

    It is ``num_classes`` if that is given, otherwise the largest label plus one.
    """
    if y.is_floating_point():
        bad = ~torch.isfinite(y) | (y != torch.floor(y))
        numbers = 'to predict numbers, give GIST.fit a PyG Data and loss="mse"'
        _refuse(bad, y, "y", f"an integer label, or -1 for an unlabelled node; {numbers}")
    y = y.to(torch.int64).contiguous()
    _refuse(y < -1, y, "y", "labels from 0 up, or -1 for an unlabelled node")
    if num_classes is not None:
        _refuse(y >= num_classes, y, "y", f"labels below num_classes, which is {num_classes}")
        return y, num_classes
    expected = f"labels 0, 1, ..., classes - 1, with fewer classes than the {len(y)} nodes"
    _refuse(y >= len(y), y, "y", f"{expected}: renumber them, or give num_classes")
    present = torch.unique(y[y >= 0]).tolist()
    if len(present) < 2:
        labels = f"only the label {present[0]}" if present else "no label but -1 (unlabelled)"
        raise InputError(f"y holds {labels}; expected at least 2 classes")
    return y, present[-1] + 1


def check_splits(
    splits: Mapping[str, ArrayLike], y: Tensor, *, partial: bool = False
) -> dict[str, Tensor]:
    """Return one bool mask [N] per split. Splits must be disjoint, and contain labelled nodes only.

    Only test may be empty; if they are ``partial``, one has to have nodes.
    """
    nodes = y.shape[0]
    may_be_empty = splits if partial else ("test",)
    masks = {
        name: check_mask(value, name, nodes, empty=name in may_be_empty)
        for name, value in splits.items()
    }
    masks = {name: mask.to(y.device) for name, mask in masks.items()}
    if partial and not any(bool(mask.any()) for mask in masks.values()):
        raise InputError(f"there are no nodes in {', '.join(masks)}; expected some in one of them")
    for name, mask in masks.items():
        unusable = mask & (y == -1 if y.ndim == 1 else ~torch.isfinite(y).all(dim=1))
        at = _first_of(unusable)
        if at and y.ndim == 2:
            raise InputError(
                f"y[{at[0]}] is not finite, but {name} holds node {at[0]}: take it out of {name}"
            )
        if at:
            unlabelled = (
                f"{int(unusable.sum())} unlabelled nodes (y = -1), the first is node {at[0]}"
            )
            raise InputError(
                f"{name} holds {unlabelled}; expected labelled nodes only: take them out of {name}"
            )
    for one, other in combinations(masks, 2):
        in_both = masks[one] & masks[other]
        if at := _first_of(in_both):
            shared = f"share {int(in_both.sum())} nodes, the first is node {at[0]}"
            raise InputError(f"{one} and {other} {shared}; expected disjoint splits")
    return masks


def check_mask(value: ArrayLike, name: str, num_nodes: int, *, empty: bool) -> Tensor:
    """Return a split as a bool mask [N]; it may be ``empty``."""
    tensor = to_tensor(value, name)
    if tensor.ndim != 1:
        hint = f": choose one column, such as {name}[:, 0]" if tensor.ndim == 2 else ""
        expected = f"a mask [nodes] or a list of node numbers{hint}"
        raise InputError(f"{name} has shape {list(tensor.shape)}; expected {expected}")
    is_mask = tensor.dtype == torch.bool
    if is_mask and tensor.shape[0] != num_nodes:
        raise InputError(
            f"{name} is a mask of length {tensor.shape[0]}; expected {num_nodes}, one entry per "
            "node"
        )
    if empty and not len(tensor):
        return torch.zeros(num_nodes, dtype=torch.bool)
    if not empty and not (tensor.any() if is_mask else len(tensor)):
        hint = (
            ": the best model is chosen on them, so move some of train to val"
            if name == "val"
            else ""
        )
        raise InputError(f"{name} is empty; expected at least one node{hint}")
    if is_mask:
        return tensor.contiguous()
    if tensor.is_floating_point():
        raise InputError(
            f"{name} has dtype {tensor.dtype}; expected a bool mask or integer node numbers"
        )
    indices = tensor.to(torch.int64)
    _refuse(
        (indices < 0) | (indices >= num_nodes),
        indices,
        name,
        f"node numbers from 0 to {num_nodes - 1}",
    )
    times = torch.bincount(indices, minlength=num_nodes)
    if at := _first_of(times > 1):
        hint = "expected distinct node numbers (if it is a mask, make it bool)"
        raise InputError(f"{name} holds node {at[0]} more than once; {hint}")
    return times > 0


def _first_of(bad: Tensor) -> list[int]:
    """Return the indices of the first True; none if all are False."""
    return bad.nonzero()[0].tolist() if bad.any() else []


def _refuse(bad: Tensor, values: Tensor, name: str, expected: str) -> None:
    """Raise an error that names the first value that is ``bad``, if there is one."""
    if at := _first_of(bad):
        raise InputError(f"{name}{at} is {values[tuple(at)].item()}; expected {expected}")
