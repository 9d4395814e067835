"""Buffers that a model computes from whole parameters, such as the vectors of a spectral norm.

A sub-GCN computes such a buffer from its slices of the parameters. Put together, the sub-GCNs'
values are not those of the merged parameters: a weight that is divided by its spectral norm would
have a norm of .7 or 1.4 instead of 1. So the full model computes these buffers again, as it does in
training: by calling it in training mode.

Which buffers they are is found by trying a small model. Such a buffer does not depend on the input,
as running means do, and its entries for some features depend on parameters of other features, as
those of a moving average of the parameters do not.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gistgnn.errors import users_code
from gistgnn.layout.axes import Layout, Widths
from gistgnn.layout.instance import Instance, eager, same, small_batch
from gistgnn.sampling import forward
from gistgnn.utils.random_streams import Stream

# Power iterations end sooner, unless the largest singular values are nearly equal.
MOST_PASSES = 100
# A buffer is not computed again if a pass changes it by less than this share of its norm.
CHANGE = 1e-4


def find_derived(instances: Sequence[Instance], layout: Layout) -> frozenset[str]:
    """Return the buffers that forward computes from features that a sub-GCN may lack, by name."""
    dependences = [_find_dependences(instance, layout) for instance in instances]
    # In one instance a running mean may seem not to depend on the input, by chance: all features
    # may be zero behind a ReLU. So a buffer that depends on it in any instance is none of these.
    on_input = frozenset.union(*(buffers.on_input for buffers in dependences))
    on_other_features = frozenset.union(*(buffers.on_other_features for buffers in dependences))
    return on_other_features - on_input


class _Dependences(NamedTuple):
    """The buffers of an instance that depend on something, by name."""

    on_input: frozenset[str] = frozenset()
    # Their entries for a block of features depend on parameters outside the block.
    on_other_features: frozenset[str] = frozenset()


def _find_dependences(instance: Instance, layout: Layout) -> _Dependences:
    buffers = {
        name: tensor
        for name, tensor in instance.module.named_buffers()
        if tensor.is_floating_point()
    }
    # The first call has made a buffer, which `check_behaviour` refuses.
    if not buffers or instance.values.keys() - layout.dims.keys():
        return _Dependences()
    x = instance.batch.x
    values = instance.values
    # A mean over nodes changes with the first node's features twice, a maximum with smaller
    # features.
    other_inputs = (x[torch.arange(len(x)).sub(1).clamp(min=0)], x / 2)
    halves = tuple(torch.arange((count + 1) // 2) for count in instance.features)
    block = {name: layout.index(name, halves, instance.features) for name in values}
    changed_outside = {
        name: _changed_outside(tensor, block[name]) for name, tensor in values.items()
    }
    try:
        after = _after_step(instance, values, x)
        if all(torch.equal(after[name], values[name]) for name in buffers):
            return _Dependences()
        after_other_inputs = [_after_step(instance, values, other) for other in other_inputs]
        after_change = _after_step(instance, changed_outside, x)
    except Exception:  # A user's model may raise anything in training mode, as training says later.
        return _Dependences()
    return _Dependences(
        frozenset(
            name
            for name in buffers
            if not all(same(other[name], after[name]) for other in after_other_inputs)
        ),
        frozenset(
            name
            for name in buffers
            if not same(after_change[name][block[name]], after[name][block[name]])
        ),
    )


def _changed_outside(tensor: Tensor, block: tuple[Tensor, ...]) -> Tensor:
    """Return a tensor with other values outside the block.

    Signs stay, as variances are positive.
    """
    if not tensor.is_floating_point():
        return tensor
    changed = tensor * (0.5 + torch.rand_like(tensor))
    changed[block] = tensor[block]
    return changed


def _after_step(instance: Instance, values: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
    """Return a copy of every buffer after a call in training mode that begins with these values."""
    instance.module.train()
    try:
        instance.output(values, x)
        return {name: tensor.detach().clone() for name, tensor in instance.module.named_buffers()}
    finally:
        instance.module.eval()


@torch.no_grad()
def compute_derived(
    module: nn.Module,
    layout: Layout,
    features: Widths,
    *,
    change: float = CHANGE,
    most_passes: int = MOST_PASSES,
) -> None:
    """Compute the buffers of `Layout.derived` from the model's parameters; no other buffer changes.

    The buffers are replaced, not written into: they may be those of Θ itself.

    Args:
        module: a model of the layout with these ``features`` of every axis.
        change: of a buffer in a pass, as a share of its norm, below which it is not computed again.
        most_passes: calls of the model, at most.

    Raises:
        InputError: the model cannot be copied, or called in training mode on a small graph.
    """
    if not layout.derived:
        return
    # A copy with the same parameters is called, as calls in training mode change more than these
    # buffers.
    memo = {id(parameter): parameter for parameter in module.parameters()}
    failure = f"the buffer '{min(layout.derived)}' cannot be computed from the merged parameters"
    with (
        users_code(failure, "train with m = 1, or leave out what computes it"),
        Stream(0, "derived buffers"),
    ):
        model = deepcopy(module, memo)
        batch = small_batch(model.eval(), layout, features)
        model.train()
        for _ in range(most_passes):
            before = {name: model.get_buffer(name).clone() for name in layout.derived}
            with eager(model):
                forward(model, batch, private=True)
            after = {name: model.get_buffer(name) for name in layout.derived}
            if all(
                bool((after[name] - old).norm() <= change * after[name].norm())
                for name, old in before.items()
            ):
                break
    for name, value in after.items():
        owner, _, key = name.rpartition(".")
        setattr(module.get_submodule(owner), key, value.detach())
