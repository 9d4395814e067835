"""Infer a model's layout and check it numerically: permuting an axis must not change the model's output.

A sub-GCN keeps a random block of a hidden layer's features. This makes sense only if the features have no order: the
output must stay the same if they are permuted in every parameter and buffer along the axis. The check runs small random
instances of the model. A wrong layout, or a model that treats features by position, changes their output.
"""

from collections.abc import Sequence

import torch
from torch import nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import Build, Layout, Widths, candidate_layouts
from gistgnn.layout.instance import DRAWS, Instance, same, small_instance
from gistgnn.utils.random_streams import torch_stream


def infer_layout(build: Build, widths: Widths, *, shared: bool, input_axis: int | None = None) -> Layout:
    """Infer how a model's parameters lie along its hidden axes, and check it by permutation.

    Args:
        build: takes the widths (with ``shared``, one width) and returns the model.
        widths: the full widths.
        shared: all layers share one axis, and ``build`` takes a single width.
        input_axis: the index of the width that is the number of input features (Table 1 partitions d_0), if any.

    Raises:
        InputError: the model cannot be built or called, or no layout passes the check.
    """
    if isinstance(build, nn.Module) or not callable(build):
        kind = f"{type(build).__name__}{', a model' if isinstance(build, nn.Module) else ''}"
        expected = "expected a function that returns the model at given widths"
        raise InputError(f"build is a {kind}; {expected}, such as lambda widths: GCN(features, widths, classes)")
    failure = ""
    instances: list[Instance] = []
    with torch_stream(0, "layout"):  # the user's random stream does not move
        for layout in candidate_layouts(build, widths, shared=shared):
            instances = instances or [small_instance(build, layout, shared, input_axis, draw) for draw in range(DRAWS)]
            problem = next((text for instance in instances if (text := _find_error(instance, layout))), None)
            if problem is None:
                _check_effect(instances, layout)
                return layout
            failure = failure or problem
    raise InputError(failure)


def _changes(instance: Instance, layout: Layout, axis: int, names: Sequence[str], with_input: bool) -> bool:
    """Tell whether permuting the axis in the named tensors (and the input) changes the output."""
    values = instance.values()
    x = instance.batch.x
    reference = instance.output(values, x)
    swap = torch.arange(instance.features[axis])
    cycle = swap.roll(1)
    swap[:2] = torch.tensor([1, 0])
    for order in (cycle, swap):  # together they generate all permutations
        blocks = [order if a == axis else torch.arange(n) for a, n in enumerate(instance.features)]
        changed = dict(values)
        for name in names:
            for i, dim in enumerate(layout.dims[name]):
                changed[name] = changed[name].index_select(i, layout.positions(dim, blocks, instance.features))
        out = instance.output(changed, x.index_select(1, order) if with_input else x)
        if not same(out, reference):
            return True
    return False


def _find_error(instance: Instance, layout: Layout) -> str | None:
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
            f"{_hint(layout, axis)}"
        )
    return None


def _hint(layout: Layout, axis: int) -> str:
    """Say that a tensor's copies of the axis may be mixed, if there is such a tensor."""
    for name, dims in layout.dims.items():
        if (copies := max(sum(s.axis == axis for s in dim) for dim in dims or ((),))) > 1:
            return (
                f" ('{name}' holds {copies} entries for each feature: they can be split if they are {copies} copies of "
                "all features, one after the other, and not a matrix, as NNConv's edge network makes, or heads)"
            )
    return ""


def _check_effect(instances: Sequence[Instance], layout: Layout) -> None:
    """Refuse an axis that does not affect the output: the check would say nothing about it."""
    for axis in range(len(layout.units)):
        names = layout.carriers(axis)
        if not any(_changes(i, layout, axis, [name], with_input=False) for i in instances for name in names):
            raise InputError(
                f"the layout of parameter '{names[0]}' cannot be confirmed: the model's output does not depend on the "
                f"order of the features of width {axis} in any one parameter"
            )
