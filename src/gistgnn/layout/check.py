"""Infer a model's layout, and check it: permuting an axis must not change the model's output.

A sub-GCN keeps a random block of a hidden layer's features. This makes sense only if the features
have no order: the output must stay the same if they are permuted in every parameter and buffer
along the axis. The check runs small random instances of the model. A wrong layout, or a model that
treats features by position, changes their output.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import (
    Build,
    Layout,
    NoLayoutError,
    NotOnMetaError,
    Widths,
    candidate_layouts,
    unsplit_layout,
)
from gistgnn.layout.behaviour import check_behaviour
from gistgnn.layout.derived import find_derived
from gistgnn.layout.instance import DRAWS, Instance, same, small_instance
from gistgnn.utils.random_streams import Stream


def infer_layout(
    build: Build,
    widths: Widths,
    *,
    shared: bool,
    input_axis: int | None = None,
    splits: bool = True,
) -> Layout:
    """Infer how a model's parameters lie along its hidden axes, and check it by permutation.

    Args:
        build: returns the model at given widths.
        widths: the full widths.
        shared: whether `build` takes one width for all layers.
        input_axis: the index of the width that is the number of input features, if there is one
            (Table 1 partitions d_0).
        splits: whether sub-GCNs are to have blocks. If not, a model whose axes cannot be split has
            a layout without axes.

    Raises:
        InputError: the model cannot be built, or its features cannot be split into blocks.
    """
    if isinstance(build, nn.Module) or not callable(build):
        kind = f"{type(build).__name__}{', a model' if isinstance(build, nn.Module) else ''}"
        expected = "expected a function that returns the model at given widths"
        raise InputError(
            f"build is a {kind}; {expected}, such as lambda widths: GCN(features, widths, classes)"
        )
    with Stream(0, "layout"):  # The user's random stream does not move.
        try:
            try:
                return _infer(build, widths, shared, input_axis, on_meta=True)
            except NotOnMetaError:
                return _infer(build, widths, shared, input_axis, on_meta=False)
        except NoLayoutError as error:
            if splits:
                raise
            layout = unsplit_layout(build, widths, shared=shared, refusal=str(error))
            return replace(layout, shared=shared, input_axis=input_axis)


def _infer(
    build: Build, widths: Widths, shared: bool, input_axis: int | None, *, on_meta: bool
) -> Layout:
    failure = ""
    instances: list[Instance] = []
    for candidate in candidate_layouts(build, widths, shared=shared, on_meta=on_meta):
        layout = replace(candidate, shared=shared, input_axis=input_axis)
        # Candidates differ in the order of their segments, so the same models serve all of them.
        instances = instances or [small_instance(build, layout, draw) for draw in range(DRAWS)]
        problem = next(
            (text for instance in instances if (text := _find_error(instance, layout))), None
        )
        if problem is None:
            _check_effect(instances, layout)
            layout = replace(layout, derived=find_derived(instances, layout))
            return replace(layout, unused=check_behaviour(build, layout, instances))
        failure = failure or problem
    raise NoLayoutError(failure)


def _changes(
    instance: Instance, layout: Layout, axis: int, names: Sequence[str], with_input: bool
) -> bool:
    """Tell whether permuting the axis in the named tensors (and the input) changes the output."""
    swap = torch.arange(instance.features[axis])
    cycle = swap.roll(1)
    swap[:2] = torch.tensor([1, 0])
    orders = (cycle, swap)  # Together they generate all permutations.
    outputs = (_permuted(instance, layout, axis, names, with_input, order) for order in orders)
    return not all(same(out, instance.reference) for out in outputs)


def _permuted(
    instance: Instance,
    layout: Layout,
    axis: int,
    names: Sequence[str],
    with_input: bool,
    order: Tensor,
) -> Tensor:
    """Return the output with the features of an axis in another order."""
    x = instance.batch.x
    changed = dict(instance.values)
    blocks = [order if a == axis else torch.arange(n) for a, n in enumerate(instance.features)]
    for name in names:
        for i, dim in enumerate(layout.dims[name]):
            changed[name] = changed[name].index_select(
                i, layout.positions(dim, blocks, instance.features)
            )
    return instance.output(changed, x.index_select(1, order) if with_input else x)


def _find_error(instance: Instance, layout: Layout) -> str | None:
    """Return an error message if the layout is wrong for this instance, otherwise None."""
    for axis in range(len(instance.features)):
        names = layout.names_along(axis)
        with_input = layout.input_axis == axis
        if not _changes(instance, layout, axis, names, with_input):
            continue
        order = torch.arange(instance.features[axis]).roll(1)
        if instance.reference.shape[1] == len(order) and same(
            _permuted(instance, layout, axis, names, with_input, order),
            instance.reference[:, order],
        ):
            return (
                f"the model returns one output for each feature of width {axis}: build it with the "
                "number of classes as its outputs, such as GraphSAGE(features, width, 2, classes)"
            )
        culprits = []
        for name in names:
            names_but_one = [other for other in names if other != name]
            if not _changes(instance, layout, axis, names_but_one, with_input):
                culprits.append(name)
        listed = ", ".join(f"'{name}'" for name in (culprits or names)[:4])
        return (
            f"the layout of parameter {listed} cannot be confirmed: permuting the features of "
            f"width {axis} changes the model's output, so they cannot be split into blocks; leave "
            f"that width out of the widths{_hint(layout, axis)}"
        )
    return None


def _hint(layout: Layout, axis: int) -> str:
    """Say that a tensor's copies of the axis may be mixed, if there is such a tensor."""
    for name, dims in layout.dims.items():
        counts = [sum(segment.axis == axis for segment in dim) for dim in dims]
        copies = max(counts, default=0)
        if copies > 1:
            return (
                f" ('{name}' holds {copies} entries for each feature: they can be split if they "
                f"are {copies} copies of all features, one after the other, and not a matrix, as "
                "NNConv's edge network makes, or heads)"
            )
    return ""


def _check_effect(instances: Sequence[Instance], layout: Layout) -> None:
    """Refuse an axis that does not affect the output: the check would say nothing about it."""
    for axis in range(len(layout.units)):
        names = layout.names_along(axis)
        if not any(
            _changes(i, layout, axis, [name], with_input=False) for i in instances for name in names
        ):
            raise InputError(
                f"the layout of parameter '{names[0]}' cannot be confirmed: the model's output "
                f"does not depend on the order of the features of width {axis} in any one parameter"
            )
