"""Small copies of a model, with random parameters, on a small graph, to check a layout."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.layout.axes import (
    Build,
    Layout,
    NoLayoutError,
    NotOnMetaError,
    Widths,
    construct,
    named_tensors,
)
from gistgnn.sampling import Batch, forward
from gistgnn.sampling.call import signature
from gistgnn.utils.random_streams import Stream

SMALLEST_AXIS = 5  # So many features are enough for some to survive every ReLU.
DRAWS = 3  # So many instances are tried, as in a single one a dead ReLU could hide an error.
TOLERANCE = 1e-8  # The rounding error of float64 after a few layers is near 1e-13.


@dataclass(frozen=True)
class Instance:
    """A small copy of the model with random parameters, and a small graph."""

    module: nn.Module
    batch: Batch
    features: Widths

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """A copy of every parameter and buffer by name, as they are at first."""
        return {
            name: tensor.detach().clone() for name, tensor in named_tensors(self.module).items()
        }

    @cached_property
    def reference(self) -> Tensor:
        """The output before anything is permuted."""
        return self.output(self.values, self.batch.x)

    def output(self, values: dict[str, Tensor], x: Tensor) -> Tensor:
        """Run the module with these parameters and buffers, and these input features."""
        batch = replace(self.batch, x=x)
        batch.__dict__["adj"] = self.batch.adj
        with torch.no_grad(), Stream(0, "layout check"), eager(self.module):
            for name, tensor in named_tensors(self.module).items():
                tensor.copy_(values[name])
            return forward(self.module, batch, private=True)


def same(out: Tensor, reference: Tensor) -> bool:
    """Tell whether two outputs are equal up to rounding."""
    if out.shape != reference.shape:
        return False
    if torch.equal(out, reference):  # Infinities have no difference.
        return True
    difference = float((out - reference).abs().max())
    scale = float(reference.abs().max())
    return difference <= TOLERANCE * max(1.0, scale)


def construct_on_host(build: Build, layout: Layout, features: Widths) -> nn.Module:
    """Return a model with these numbers of features, in float64 and evaluation mode."""
    module = construct(build, layout.widths(features), shared=layout.shared)
    return module.cpu().double().eval()


def small_instance(build: Build, layout: Layout, draw: int) -> Instance:
    """Build the smallest instance that ``build`` accepts.

    Its axes have different sizes, and its parameters are random.
    """
    # The first failure, as a text: an error would keep the frames of all callers in memory.
    why = ""
    for factor in (1, 2, 4, 8, 16):  # Some models need widths that are divisible by 8, say.
        features = tuple(factor * (SMALLEST_AXIS + a) for a in range(len(layout.units)))
        with Stream(draw, "instance"):
            try:
                module = construct_on_host(build, layout, features)
            except InputError as error:
                why = why or str(error)
                continue
            check_sizes(module, layout, features)
            _randomise(module, layout)
            try:
                return Instance(module, small_batch(module, layout, features), features)
            except InputError as error:
                why = why or str(error)
    raise InputError(f"the model cannot be tried at a small size: {why}")


def check_sizes(module: nn.Module, layout: Layout, features: Widths) -> None:
    """Refuse a model whose sizes follow the widths only near the full widths."""
    tensors = named_tensors(module)
    if differing := sorted(tensors.keys() ^ layout.dims.keys()):
        if layout.builds_on_meta:
            raise NotOnMetaError
        raise NoLayoutError(
            f"parameter '{differing[0]}' exists at some widths only: build the same layers at "
            "every width"
        )
    for name, tensor in tensors.items():
        expected = tuple(layout.shape(name, features))
        if tuple(tensor.shape) != expected:
            raise NoLayoutError(
                f"parameter '{name}' is {tuple(tensor.shape)} at widths {layout.widths(features)}, "
                f"where its growth at the full widths says {expected}: its size does not follow "
                "the widths; if build divides a width by the number of heads, give each head the "
                "width: TransformerConv(features, width, heads=4)"
            )


def _randomise(module: nn.Module, layout: Layout) -> None:
    """Give every parameter, and every buffer along an axis, random values."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in named_tensors(module).items():
            if not tensor.is_floating_point():
                continue
            if name in parameters:
                tensor.normal_(0.0, 0.5)
            elif layout.dims_along(name, range(len(layout.units))):
                tensor.uniform_(0.5, 1.5)  # Running variances have to be positive.


def small_batch(module: nn.Module, layout: Layout, features: Widths) -> Batch:
    """Make a small graph with as many input features as the model takes.

    Their number is one that its parameters show.
    """
    first = next(tensor for tensor in named_tensors(module).values() if tensor.is_floating_point())
    ring = torch.arange(7, device=first.device)
    source = torch.cat([ring, ring.roll(-1), ring[:-3]])
    target = torch.cat([ring.roll(-1), ring, ring[3:]])
    # Some aggregations need sorted edges.
    edge_index = torch.stack([source, target])[:, target.argsort(stable=True)]
    why = ""  # The first failure, as a text; see `small_instance`.
    fixed = [
        s.fixed
        for dims in layout.dims.values()
        for dim in dims
        for s in dim
        if s.axis is None and s.fixed
    ]
    # Numbers of features to try: fixed dimensions, or equal parts of one with several copies.
    sizes = list(
        dict.fromkeys(
            size // parts for parts in (1, 2, 3, 4) for size in fixed if size % parts == 0
        )
    )
    if layout.input_axis is not None:
        sizes = [layout.widths(features)[layout.input_axis]]
    for inputs in sizes:
        x = torch.randn(len(ring), inputs, dtype=first.dtype, device=first.device)
        for edge_data in _edge_data(module, x, edge_index.shape[1], sizes):
            batch = Batch(x, edge_index, ring, ring, edge_data=edge_data)
            try:
                with torch.no_grad(), eager(module):
                    forward(module, batch, private=True)
            except Exception as error:  # A user's model may raise anything.
                why = why or reason(error)
            else:
                return batch
    hint = ""
    if why.startswith("AttributeError: 'Tensor'"):
        hint = ": it gets tensors, not a graph: write forward(self, x, edge_index)"
    elif any(isinstance(layer, nn.Embedding) for layer in module.modules()):
        hint = (
            ": it is called on parts of the graph: look up an nn.Embedding by ids in a column of x"
        )
    raise InputError(
        "the model could not be called as forward(x, edge_index) or forward(x, adj), on a graph "
        f"of {len(ring)} nodes: "
        f"{why or 'no parameter shows how many input features it takes'}{hint}"
    )


def _edge_data(
    module: nn.Module, x: Tensor, edges: int, sizes: Sequence[int]
) -> Iterator[dict[str, Tensor]]:
    """Yield the edge data that a model may take, as its kind and its features are not known."""
    is_needed_by_name = signature(module).edge_data
    names = list(is_needed_by_name)
    kinds = torch.arange(edges, device=x.device) % 2
    like_x: Any = {"dtype": x.dtype, "device": x.device}
    attributes = [torch.empty(0)]  # A model that takes no attributes does not get it.
    types = [kinds, torch.zeros_like(kinds)]
    if "edge_attr" in names:
        shapes = [(edges, size) for size in sizes] + [(edges,)]
        attributes = [torch.rand(shape, **like_x) for shape in shapes] + [kinds, kinds[:, None]]
    for edge_attr, edge_type in itertools.product(
        attributes, types if "edge_type" in names else types[:1]
    ):
        weight = torch.rand(edges, **like_x) + 0.5
        values = {"edge_weight": weight, "edge_attr": edge_attr, "edge_type": edge_type}
        yield {name: values[name] for name in names}
    if names and not any(is_needed_by_name.values()):
        yield {}


def eager(module: nn.Module) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which a compiled module runs as it is written.

    Compiling tiny instances would take minutes.
    """
    compiled = hasattr(module, "_orig_mod")
    return torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext()
