"""The proof of a layout: permuting the features of an axis everywhere it lies must not change the model's output.

A hidden layer's features have no order of their own, so a model in which a random block of them can be cut out (a
sub-GCN) is one whose output is unchanged when they are renumbered in every parameter and buffer that carries them. A
wrong layout, or a model that treats its features by position, changes the output of a small random instance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.layout.axes import Build, Dim, Layout, Widths, candidate_layouts, construct, named_tensors
from gistgnn.sampling import Batch, forward
from gistgnn.utils.random_streams import torch_stream

SMALLEST_AXIS = 5  # enough that some features survive every ReLU
DRAWS = 3  # instances: in one alone, what is wrong could hide behind a dead ReLU
TOLERANCE = 1e-8  # float64 rounding after a few layers is near 1e-13


@dataclass(frozen=True)
class _Instance:
    """A small copy of the model with random parameters, and a small graph to run it on."""

    module: nn.Module
    batch: Batch
    features: Widths
    input_axis: int | None

    def output(self, values: dict[str, Tensor], x: Tensor) -> Tensor:
        """Run the module with other values of its parameters and buffers, and other input features."""
        batch = Batch(x, self.batch.edge_index, self.batch.y, self.batch.loss_nodes)
        batch.__dict__["adj"] = self.batch.adj
        own = named_tensors(self.module)
        kept = {name: tensor.detach().clone() for name, tensor in own.items()}
        with torch.no_grad(), torch_stream(0, "proof"):
            try:
                for name, tensor in own.items():
                    tensor.copy_(values[name])
                return forward(self.module, batch)
            finally:
                for name, tensor in own.items():
                    tensor.copy_(kept[name])


def prove_layout(build: Build, widths: Widths, *, shared: bool, input_axis: int | None = None) -> Layout:
    """Find how a model's parameters lie along its hidden axes, and prove it by permutation.

    Args:
        build: takes the widths (or, with `shared`, one width) and returns the model.
        widths: the full widths.
        shared: one axis runs through all layers, and `build` takes a single width.
        input_axis: which of the widths is the number of input features (Table 1 partitions d_0), if any.

    Raises:
        InputError: no layout passes the proof; the parameter, or the axis, is named.
    """
    failure = ""
    instances: list[_Instance] = []
    with torch_stream(0, "layout"):  # a user's own random stream does not move
        for layout in candidate_layouts(build, widths, shared=shared):
            instances = instances or [_instance(build, layout, shared, input_axis, draw) for draw in range(DRAWS)]
            problem = next((found for instance in instances if (found := _refute(instance, layout))), None)
            if problem is None:
                _require_effect(instances, layout)
                return layout
            failure = failure or problem
    raise InputError(failure)


def _instance(build: Build, layout: Layout, shared: bool, input_axis: int | None, draw: int) -> _Instance:
    """Build the smallest instance that `build` accepts, with axes of different sizes and random parameters."""
    error: InputError | None = None
    for factor in (1, 2, 4, 8, 16):
        features = tuple(factor * (SMALLEST_AXIS + a) for a in range(len(layout.units)))
        with torch_stream(draw, "instance"):
            try:
                module = construct(build, layout.widths(features), shared=shared).cpu().double().eval()
            except InputError as e:  # some models want widths that divide by 8, or the like
                error = error or e
                continue
            _check_sizes(module, layout, features)
            _randomise(module, layout)
            try:
                return _Instance(module, _batch(module, layout, features, input_axis), features, input_axis)
            except InputError as e:
                error = error or e
    raise InputError(f"the model cannot be tried at a small size: {error}")


def _check_sizes(module: nn.Module, layout: Layout, features: Widths) -> None:
    """Refuse a model whose sizes follow the widths near the full ones only."""
    everything = [torch.arange(d) for d in features]
    for name, tensor in named_tensors(module).items():
        expected = tuple(len(layout.positions(dim, everything, features)) for dim in layout.dims[name])
        if tuple(tensor.shape) != expected:
            raise InputError(
                f"parameter '{name}' is {tuple(tensor.shape)} at widths {layout.widths(features)}, where its growth at "
                f"the full widths says {expected}: its size does not follow the widths"
            )


def _randomise(module: nn.Module, layout: Layout) -> None:
    """Give every parameter, and every buffer along an axis, values that tell its entries apart."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in named_tensors(module).items():
            carries = any(s.axis is not None for dim in layout.dims[name] for s in dim)
            if not tensor.is_floating_point():
                continue
            if name in parameters:
                tensor.normal_(0.0, 0.5)
            elif carries:  # running means and variances: positive
                tensor.uniform_(0.5, 1.5)


def _batch(module: nn.Module, layout: Layout, features: Widths, input_axis: int | None) -> Batch:
    """Make a small graph with as many input features as the model takes; their number is read off its parameters."""
    n = 7
    ring = torch.arange(n)
    source = torch.cat([ring, (ring + 1) % n, ring[:-3]])
    target = torch.cat([(ring + 1) % n, ring, ring[3:]])
    edge_index = torch.stack([source, target])
    error: Exception | None = None
    for inputs in _input_sizes(layout, features, input_axis):
        batch = Batch(torch.randn(n, inputs, dtype=torch.float64), edge_index, ring, ring)
        try:
            with torch.no_grad():
                forward(module, batch)
        except Exception as e:  # a user's model may raise anything
            error = error or e
        else:
            return batch
    why = reason(error) if error else "no parameter shows how many input features it takes"
    raise InputError(f"the model could not be called as forward(x, edge_index) or forward(x, adj): {why}")


def _input_sizes(layout: Layout, features: Widths, input_axis: int | None) -> list[int]:
    """List the numbers of input features to try: fixed dimensions, or equal parts of one that holds several copies."""
    if input_axis is not None:
        return [features[input_axis] * layout.units[input_axis]]
    fixed = [s.fixed for dims in layout.dims.values() for dim in dims for s in dim if s.axis is None and s.fixed]
    return list(dict.fromkeys(size // parts for parts in (1, 2, 3, 4) for size in fixed if size % parts == 0))


def _renumberings(count: int) -> Iterator[Tensor]:
    """Yield a cycle and a swap: together they generate all permutations."""
    yield torch.arange(count).roll(1)
    swap = torch.arange(count)
    swap[:2] = torch.tensor([1, 0])
    yield swap


def _renumbered(tensor: Tensor, dims: Sequence[Dim], blocks: Sequence[Tensor], layout: Layout, sizes: Widths) -> Tensor:
    for i, dim in enumerate(dims):
        tensor = tensor.index_select(i, layout.positions(dim, blocks, sizes))
    return tensor


def _changes(instance: _Instance, layout: Layout, axis: int, names: Sequence[str], with_input: bool) -> bool:
    """Say whether renumbering the axis in the named tensors (and the input) changes the output."""
    values = {name: tensor.detach().clone() for name, tensor in named_tensors(instance.module).items()}
    x = instance.batch.x
    reference = instance.output(values, x)
    scale = max(1.0, float(reference.abs().max()))
    for order in _renumberings(instance.features[axis]):
        blocks = [order if a == axis else torch.arange(n) for a, n in enumerate(instance.features)]
        changed = {n: _renumbered(values[n], layout.dims[n], blocks, layout, instance.features) for n in names}
        out = instance.output(values | changed, x.index_select(1, order) if with_input else x)
        if not torch.allclose(out, reference, rtol=0.0, atol=TOLERANCE * scale):
            return True
    return False


def _refute(instance: _Instance, layout: Layout) -> str | None:
    """Return why the layout is wrong, or None if it is proved."""
    for axis in range(len(instance.features)):
        names = layout.carriers(axis)
        with_input = instance.input_axis == axis
        if not _changes(instance, layout, axis, names, with_input):
            continue
        culprits = [
            name for name in names if not _changes(instance, layout, axis, [n for n in names if n != name], with_input)
        ]
        named = ", ".join(f"'{name}'" for name in (culprits or names)[:4])
        return (
            f"the layout of parameter {named} cannot be proved: renumbering the features of width {axis} changes the "
            "model's output, so its features cannot be split into blocks; leave that width out of the widths"
        )
    return None


def _require_effect(instances: Sequence[_Instance], layout: Layout) -> None:
    """Refuse an axis that the output does not depend on: a proof of it would be empty."""
    for axis in range(len(layout.units)):
        names = layout.carriers(axis)
        if not any(_changes(i, layout, axis, [name], with_input=False) for i in instances for name in names):
            raise InputError(
                f"the layout of parameter '{names[0]}' cannot be proved: the model's output does not depend on the "
                f"order of the features of width {axis} in any one parameter"
            )
