"""Infer a model's layout and check it numerically: permuting an axis must not change the model's output.

A sub-GCN keeps a random block of a hidden layer's features. This makes sense only if the features have no order: the
output must stay the same if they are permuted in every parameter and buffer along the axis. The check runs small random
instances of the model. A wrong layout, or a model that treats features by position, changes their output.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.layout.axes import Build, Dim, Layout, Widths, candidate_layouts, construct, named_tensors
from gistgnn.sampling import Batch, forward
from gistgnn.utils.random_streams import torch_stream

SMALLEST_AXIS = 5  # enough that some features survive every ReLU
DRAWS = 3  # instances: in a single one, a dead ReLU could hide an error
TOLERANCE = 1e-8  # the rounding error of float64 after a few layers is near 1e-13


@dataclass(frozen=True)
class _Instance:
    """A small copy of the model with random parameters, and a small graph."""

    module: nn.Module
    batch: Batch
    features: Widths
    input_axis: int | None

    def output(self, values: dict[str, Tensor], x: Tensor) -> Tensor:
        """Run the module with other parameters and buffers, and other input features."""
        batch = Batch(x, self.batch.edge_index, self.batch.y, self.batch.loss_nodes)
        batch.__dict__["adj"] = self.batch.adj
        tensors = named_tensors(self.module)
        before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        with torch.no_grad(), torch_stream(0, "layout check"):
            try:
                for name, tensor in tensors.items():
                    tensor.copy_(values[name])
                return forward(self.module, batch)
            finally:
                for name, tensor in tensors.items():
                    tensor.copy_(before[name])


def infer_layout(build: Build, widths: Widths, *, shared: bool, input_axis: int | None = None) -> Layout:
    """Infer how a model's parameters lie along its hidden axes, and check it by permutation.

    Args:
        build: takes the widths (with ``shared``, one width) and returns the model.
        widths: the full widths.
        shared: all layers share one axis, and ``build`` takes a single width.
        input_axis: the index of the width that is the number of input features (Table 1 partitions d_0), if any.

    Raises:
        InputError: no layout passes the check; the message names the parameter or the axis.
    """
    failure = ""
    instances: list[_Instance] = []
    with torch_stream(0, "layout"):  # the user's random stream does not move
        for layout in candidate_layouts(build, widths, shared=shared):
            instances = instances or [_instance(build, layout, shared, input_axis, draw) for draw in range(DRAWS)]
            problem = next((text for instance in instances if (text := _find_error(instance, layout))), None)
            if problem is None:
                _check_effect(instances, layout)
                return layout
            failure = failure or problem
    raise InputError(failure)


def _instance(build: Build, layout: Layout, shared: bool, input_axis: int | None, draw: int) -> _Instance:
    """Build the smallest instance that ``build`` accepts, with axes of different sizes and random parameters."""
    error: InputError | None = None
    for factor in (1, 2, 4, 8, 16):  # some models need widths that are divisible by 8, for example
        features = tuple(factor * (SMALLEST_AXIS + a) for a in range(len(layout.units)))
        with torch_stream(draw, "instance"):
            try:
                module = construct(build, layout.widths(features), shared=shared).cpu().double().eval()
            except InputError as e:
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
    """Refuse a model whose sizes follow the widths only near the full widths."""
    everything = [torch.arange(d) for d in features]
    for name, tensor in named_tensors(module).items():
        expected = tuple(len(layout.positions(dim, everything, features)) for dim in layout.dims[name])
        if tuple(tensor.shape) != expected:
            raise InputError(
                f"parameter '{name}' is {tuple(tensor.shape)} at widths {layout.widths(features)}, where its growth at "
                f"the full widths says {expected}: its size does not follow the widths"
            )


def _randomise(module: nn.Module, layout: Layout) -> None:
    """Give every parameter, and every buffer along an axis, random values, so that no two entries are equal."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in named_tensors(module).items():
            if not tensor.is_floating_point():
                continue
            if name in parameters:
                tensor.normal_(0.0, 0.5)
            elif any(s.axis is not None for dim in layout.dims[name] for s in dim):
                tensor.uniform_(0.5, 1.5)  # running means and variances: positive


def _batch(module: nn.Module, layout: Layout, features: Widths, input_axis: int | None) -> Batch:
    """Make a small graph with as many input features as the model takes, which its parameters show."""
    ring = torch.arange(7)
    source = torch.cat([ring, ring.roll(-1), ring[:-3]])
    target = torch.cat([ring.roll(-1), ring, ring[3:]])
    edge_index = torch.stack([source, target])
    error: Exception | None = None
    for inputs in _input_sizes(layout, features, input_axis):
        batch = Batch(torch.randn(len(ring), inputs, dtype=torch.float64), edge_index, ring, ring)
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
    """List the numbers of input features to try: fixed dimensions, or equal parts of one with several copies."""
    if input_axis is not None:
        return [features[input_axis] * layout.units[input_axis]]
    fixed = [s.fixed for dims in layout.dims.values() for dim in dims for s in dim if s.axis is None and s.fixed]
    return list(dict.fromkeys(size // parts for parts in (1, 2, 3, 4) for size in fixed if size % parts == 0))


def _permuted(tensor: Tensor, dims: Sequence[Dim], blocks: Sequence[Tensor], layout: Layout, sizes: Widths) -> Tensor:
    for i, dim in enumerate(dims):
        tensor = tensor.index_select(i, layout.positions(dim, blocks, sizes))
    return tensor


def _changes(instance: _Instance, layout: Layout, axis: int, names: Sequence[str], with_input: bool) -> bool:
    """Tell whether permuting the axis in the named tensors (and the input) changes the output."""
    values = {name: tensor.detach().clone() for name, tensor in named_tensors(instance.module).items()}
    x = instance.batch.x
    reference = instance.output(values, x)
    scale = max(1.0, float(reference.abs().max()))
    swap = torch.arange(instance.features[axis])
    cycle = swap.roll(1)
    swap[:2] = torch.tensor([1, 0])
    for order in (cycle, swap):  # together they generate all permutations
        blocks = [order if a == axis else torch.arange(n) for a, n in enumerate(instance.features)]
        changed = {n: _permuted(values[n], layout.dims[n], blocks, layout, instance.features) for n in names}
        out = instance.output(values | changed, x.index_select(1, order) if with_input else x)
        if not torch.allclose(out, reference, rtol=0.0, atol=TOLERANCE * scale):
            return True
    return False


def _find_error(instance: _Instance, layout: Layout) -> str | None:
    """Return an error message if the layout is wrong for this instance, otherwise None."""
    for axis in range(len(instance.features)):
        names, with_input = layout.carriers(axis), instance.input_axis == axis
        if not _changes(instance, layout, axis, names, with_input):
            continue
        others = {name: [other for other in names if other != name] for name in names}
        culprits = [name for name in names if not _changes(instance, layout, axis, others[name], with_input)]
        listed = ", ".join(f"'{name}'" for name in (culprits or names)[:4])
        return (
            f"the layout of parameter {listed} cannot be confirmed: permuting the features of width {axis} changes the "
            "model's output, so they cannot be split into blocks; leave that width out of the widths"
        )
    return None


def _check_effect(instances: Sequence[_Instance], layout: Layout) -> None:
    """Refuse an axis that does not affect the output: the check would say nothing about it."""
    for axis in range(len(layout.units)):
        names = layout.carriers(axis)
        if not any(_changes(i, layout, axis, [name], with_input=False) for i in instances for name in names):
            raise InputError(
                f"the layout of parameter '{names[0]}' cannot be confirmed: the model's output does not depend on the "
                f"order of the features of width {axis} in any one parameter"
            )
