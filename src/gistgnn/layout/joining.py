"""Join narrow models to a wide one, in which they stand side by side, or widen one model."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import Build, Layout, Widths, check_widths, construct, named_tensors
from gistgnn.layout.check import infer_layout
from gistgnn.layout.derived import compute_derived
from gistgnn.layout.readout import find_readout
from gistgnn.nn.scaling import ScaledModel, plain_model
from gistgnn.utils.checks import check_kind
from gistgnn.utils.random_streams import Stream

MOST_AXES = 64  # Where no widths are given, models of up to so many hidden layers are tried.


def join(
    build: Build, models: Sequence[nn.Module], widths: int | Sequence[int] | None = None
) -> nn.Module:
    """Return the wide model in which narrow models stand side by side.

    The weights between the models are zero, and what sums over all hidden features, such as the
    output layer, is divided by their number. So the wide model's output is the mean of the models'
    outputs. This holds exactly for copies of one model, and for different models wherever no layer
    mixes their features nonlinearly: layer norm and attention do.

    Example:
        >>> wide = join(build, [first.model, second.model])  # of two runs of width 256: width 512
        >>> GIST(build, 512, 2).fit(graph, init=wide)  # trains the weights between them as well

    Args:
        build: returns the model at given widths, as for `GIST`.
        models: models of ``build``, each at widths of its own. If all scale their features, they do
            so equally.
        widths: those of the wide model: the sums of the models' widths. Defaults to these sums.

    Returns:
        A new model on the device and with the mode (training or evaluation) of the first.

    Raises:
        InputError: the models are not of ``build``, cannot be joined, or have other widths.
    """
    members = list(models)
    if not members:
        raise InputError("models is empty: give the narrow models to join")
    for member in members:
        check_kind("a model", member, nn.Module, "a trained model of build")
    plain = [plain_model(member) for member in members]
    tensors = [named_tensors(member) for member in plain]
    layout = _layout_of(build, tensors[0], widths)
    features = [features_of(layout, tensors_of_model) for tensors_of_model in tensors]
    joined = tuple(map(sum, zip(*features, strict=True)))
    if widths is not None and check_widths(widths, None) != layout.widths(joined):
        shown = layout.widths(joined)[0] if layout.shared else layout.widths(joined)
        raise InputError(
            f"widths is {widths}, but the models have {shown} together: leave widths out, or give "
            "these"
        )
    values = side_by_side(build, layout, tensors)
    with Stream(0, "joined"):  # The user's random stream does not move.
        wide = construct(build, layout.widths(joined), shared=layout.shared)
    like = next(tensor for tensor in tensors[0].values() if tensor.is_floating_point())
    wide = wide.to(like.device, like.dtype)
    with torch.no_grad():
        for name, target in named_tensors(wide).items():
            target.copy_(values[name])
    compute_derived(wide, layout, joined)
    return _scaled_like(members, wide.train(members[0].training))


def widen(build: Build, model: nn.Module, widths: int | Sequence[int]) -> nn.Module:
    """Return a wider model with the same output: copies of the model, joined (see `join`).

    Args:
        build: returns the model at given widths, as for `GIST`.
        model: a model of ``build``.
        widths: of the wide model; each is the same multiple of the model's own.

    Raises:
        InputError: the model is not of ``build``, cannot be joined, or the widths are no multiple
            of its own.
    """
    check_kind("model", model, nn.Module, "a trained model of build")
    tensors = named_tensors(plain_model(model))
    layout = _layout_of(build, tensors, widths)
    narrow_widths = layout.widths(features_of(layout, tensors))
    return join(build, [model] * count_copies(narrow_widths, check_widths(widths, None)), widths)


def count_copies(narrow: Widths, wide: Widths) -> int:
    """Return how many copies of a narrow model have the widths of a wide one together.

    Raises:
        InputError: no number of copies has these widths.
    """
    count = wide[0] // narrow[0]
    if count < 1 or tuple(count * width for width in narrow) != tuple(wide):
        raise InputError(
            f"widths is {', '.join(map(str, wide))}, and the model has "
            f"{', '.join(map(str, narrow))}: give the same multiple of each"
        )
    return count


def features_of(layout: Layout, tensors: Mapping[str, Tensor]) -> Widths:
    """Return the number of features of every axis, read off the shapes of a model's tensors."""
    by_axis: dict[int, int] = {}
    for name, dims in layout.dims.items():
        if name not in tensors:
            raise InputError(f"the model has no '{name}', which build makes: give a model of build")
        if tensors[name].dim() != len(dims):
            raise InputError(
                f"'{name}' is {list(tensors[name].shape)}, and build makes another: give a model "
                "of build"
            )
        for size, dim in zip(tensors[name].shape, dims, strict=True):
            axes = {segment.axis for segment in dim if segment.axis is not None}
            if len(axes) == 1:
                (axis,) = axes
                fixed = sum(segment.fixed for segment in dim)
                by_axis.setdefault(
                    axis, (size - fixed) // sum(segment.axis == axis for segment in dim)
                )
    if unknown := sorted(tensors.keys() - layout.dims.keys()):
        raise InputError(f"the model has '{unknown[0]}', which build lacks: give a model of build")
    missing = set(range(len(layout.units))) - by_axis.keys()
    if missing:
        raise InputError(
            f"the width of layer {min(missing)} cannot be read off the model's parameters"
        )
    features = tuple(by_axis[axis] for axis in range(len(layout.units)))
    for name in layout.dims:
        expected = layout.shape(name, features)
        if expected != list(tensors[name].shape):
            raise InputError(
                f"'{name}' is {list(tensors[name].shape)}, expected {expected}: give a model of "
                "build"
            )
    return features


def side_by_side(
    build: Build, layout: Layout, models: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Return the tensors by name of the wide model in which models stand side by side.

    See `join`.
    """
    features = [features_of(layout, tensors) for tensors in models]
    joined = tuple(map(sum, zip(*features, strict=True)))
    readout: Collection[str] = ()
    if len(models) > 1:
        readout = readout_of(build, layout, layout.widths(joined))
    wide = {}
    for name in layout.dims:
        first = models[0][name].detach()
        target = first.new_zeros(layout.shape(name, joined), device="cpu")
        start = tuple(0 for _ in joined)
        for counts, tensors in zip(features, models, strict=True):
            blocks = [torch.arange(n) + begin for n, begin in zip(counts, start, strict=True)]
            index = layout.index(name, blocks, joined)
            value = tensors[name].detach().cpu()
            if target.is_floating_point():
                along = layout.mask_along(name, range(len(layout.units)), counts)
                # Entries along no axis, such as the output's bias, are the means of all models.
                factors = torch.full(along.shape, 1 / len(models), dtype=_precise(value))
                if name not in readout:
                    factors[along] = 1.0
                target[index] += (value * factors).to(target.dtype)
            else:
                target[index] = value
            start = tuple(begin + n for begin, n in zip(start, counts, strict=True))
        wide[name] = target
    return wide


def readout_of(build: Build, layout: Layout, widths: Widths) -> Collection[str]:
    """Return the parameters that are divided by m where m models stand side by side."""
    if layout.refusal is not None:
        raise InputError(
            f"the model's features cannot be told apart by its widths ({layout.refusal})"
        )
    all_axes = range(len(layout.units))
    return find_readout(build, widths, layout, all_axes, by_entries=True)


def as_part(
    layout: Layout, tensors: Mapping[str, Tensor], readout: Collection[str], count: int
) -> dict[str, Tensor]:
    """Return the tensors of one of `count` models as they stand in the wide one.

    Its readout is divided by their number.
    """
    features = features_of(layout, tensors)
    part = dict(tensors)
    for name in readout:
        along = layout.mask_along(name, range(len(layout.units)), features)
        factors = torch.ones(along.shape, dtype=_precise(tensors[name]))
        factors[along] = 1 / count
        part[name] = tensors[name] * factors.to(tensors[name].device)
    return part


def _precise(tensor: Tensor) -> torch.dtype:
    """Return the type of what a tensor is multiplied by: its own, float32 at least."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _layout_of(
    build: Build, tensors: Mapping[str, Tensor], widths: int | Sequence[int] | None
) -> Layout:
    """Return the layout of a model of ``build``."""
    if widths is not None:
        shared = not isinstance(widths, (list, tuple))
        return infer_layout(build, check_widths(widths, None), shared=shared)
    for shared, count in [(True, 1), *((False, count) for count in range(1, MOST_AXES + 1))]:
        try:
            with Stream(0, "joined"):
                model = construct(build, (8,) * count, shared=shared)
        except InputError:
            continue
        if named_tensors(model).keys() == tensors.keys():
            return infer_layout(build, (8,) * count, shared=shared)
    raise InputError(
        "no widths are found at which build makes the models: give the widths of the wide model"
    )


def _scaled_like(members: Sequence[nn.Module], wide: nn.Module) -> nn.Module:
    """Return the wide model behind the scaling of features that all members have."""
    scalings = [member.scaling if isinstance(member, ScaledModel) else None for member in members]
    first = scalings[0]
    for scaling in scalings:
        equal = (scaling is None) == (first is None)
        if equal and scaling is not None and first is not None:
            equal = torch.equal(scaling.mean, first.mean) and torch.equal(scaling.std, first.std)
        if not equal:
            raise InputError(
                "the models scale their features differently: train them with the same standardise"
            )
    return wide if first is None else ScaledModel(first, wide)
