"""One learning rate for every width: maximal update parametrisation (muP) by a model's layout.

Plain training needs a smaller learning rate the wider a model is: a hidden feature sums over the
features before it, so one step moves it the more, the more these are. muP (Yang et al., "Tensor
Programs V", arXiv 2203.03466, Table 8) divides the rate of every tensor by the number of features
that it sums over, and lets the readout begin smaller. Then features, and what a step changes of
them, have the same size at every width, and so has the best learning rate.

The paper's package asks users to rewrite their model, because it must know which dimension of which
tensor is a width. Here the layout knows that, and `find_readout` finds over which dimensions a
tensor sums.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import Build, Layout, check_widths, construct
from gistgnn.layout.check import infer_layout
from gistgnn.layout.instance import small_instance
from gistgnn.layout.readout import find_readouts
from gistgnn.settings import BASE_WIDTH, Training
from gistgnn.training.names import UpdateRule
from gistgnn.training.optimizer import update_rule
from gistgnn.utils.checks import check_count, check_kind, check_number
from gistgnn.utils.random_streams import Stream

log = logging.getLogger(__name__)

# The readout of a model with norms begins with this share of its usual size.
NORMED_READOUT = 0.1
LARGE_INPUT = 1e6  # A model with norms hardly feels that its inputs are so many times larger.
BASE_MODELS = 3  # So many models are built to measure the size of initial values.
MOST_ENTRIES = 2**18  # of a tensor, from which its standard deviation is estimated
STANDARD_ERRORS = 4.0  # Two standard deviations may differ by so many errors by chance.
NO_DEVIATION = 1e-6  # Entries that differ by less than this share of the largest count as equal.

Role = Literal["input", "hidden", "readout", "vector"]


class WidthScaling:
    """How learning rates and initial values of a model follow from its widths (muP).

    `GIST` uses one by itself. In a training loop in plain PyTorch:

        scaling = WidthScaling(build, widths)
        model = scaling.scale(build(widths))
        optimizer = torch.optim.Adam(scaling.parameter_groups(model, lr=0.01))

    At the base width all rates are plain. A model whose roles cannot be told keeps plain rates and
    initial values; this is logged once, and `refusal` says why.

    Args:
        build: returns the model at given widths, as for `GIST`.
        widths: the widths of the model, one for each hidden layer, or one integer for all of them.
        base_width: the width at which the learning rate was chosen.
        layout: of the model, where it is known. Defaults to the inferred one.
        input_axis: the axis of the input features, if they are one; see `infer_layout`.

    Raises:
        InputError: a value is out of range, or the model cannot be built.
    """

    def __init__(
        self,
        build: Build,
        widths: int | Sequence[int],
        *,
        base_width: int = BASE_WIDTH,
        layout: Layout | None = None,
        input_axis: int | None = None,
    ) -> None:
        self.base_width = check_count("base_width", base_width)
        self._build = build
        self._widths = check_widths(widths, input_axis)
        if layout is None:
            shared = not isinstance(widths, (list, tuple))
            layout = infer_layout(
                build, self._widths, shared=shared, input_axis=input_axis, splits=False
            )
        self._layout = layout
        # The input features are data, and no width: their number has no base but itself.
        self._base_features = [
            (width if axis == layout.input_axis else self.base_width) / unit
            for axis, (width, unit) in enumerate(zip(self._widths, layout.units, strict=True))
        ]

    @cached_property
    def _roles(self) -> tuple[dict[str, tuple[int, ...]], str | None]:
        """The dimensions over which parameters sum, by name, and why they cannot be told."""
        summed_dims: dict[str, tuple[int, ...]] = {}
        refusal = None
        if self._layout.refusal is not None:
            refusal = (
                f"the model's features cannot be told apart by the widths ({self._layout.refusal})"
            )
        else:
            try:
                summed_dims = self._find_summed_dims()
            except InputError:  # Its reason speaks of merging, for which the user has not asked.
                refusal = "over which hidden features the model's parameters sum cannot be told"
        if refusal is not None:
            log.warning("learning rates do not follow the widths: %s", refusal)
        return summed_dims, refusal

    @property
    def refusal(self) -> str | None:
        """Why the roles of the parameters cannot be told, or None where they can."""
        return self._roles[1]

    @property
    def summed_dims(self) -> Mapping[str, tuple[int, ...]]:
        """The dimensions over which a parameter sums hidden features, by name.

        Parameters that sum over none are missing.
        """
        return self._roles[0]

    def _find_summed_dims(self) -> dict[str, tuple[int, ...]]:
        layout = self._layout
        axes = [axis for axis in range(len(layout.units)) if axis != layout.input_axis]
        readouts = find_readouts(
            self._build,
            self._widths,
            layout,
            [{axis} for axis in axes],
            by_entries=True,
        )
        summed_dims: dict[str, set[int]] = {}
        for axis, names in zip(axes, readouts, strict=True):
            for name in names:
                along = layout.dims_along(name, {axis})
                summed_dims.setdefault(name, set()).update(along)
        for axis in axes:
            for name in layout.dims:
                along = layout.dims_along(name, {axis})
                # Both sides of the tensor lie along one axis that layers share. Its fan-in is the
                # same whichever side is summed over, so torch's order of dimensions, [out, in],
                # serves.
                if len(along) > 1 and name not in summed_dims:
                    summed_dims[name] = {along[-1]}
        return {name: tuple(sorted(dims)) for name, dims in summed_dims.items()}

    def role(self, name: str) -> Role:
        """Return the role of a parameter.

        Args:
            name: its name in the model.

        Returns:
            "readout" sums over hidden features into something that is none, such as the output
            layer or the attention vector of a head; "hidden" maps hidden features to hidden
            features; "input" maps something else to hidden features; "vector" has one number for
            each hidden feature, or is no matter of widths at all.
        """
        summed = self.summed_dims.get(name, ())
        is_output_hidden = any(i not in summed for i in self._hidden_dims(name))
        if summed:
            return "hidden" if is_output_hidden else "readout"
        return "input" if is_output_hidden and len(self._layout.dims[name]) > 1 else "vector"

    def _hidden_dims(self, name: str) -> list[int]:
        """Return the dimensions of a tensor that lie along a hidden axis."""
        axes = set(range(len(self._layout.units))) - {self._layout.input_axis}
        return self._layout.dims_along(name, axes)

    def _growth(self, name: str, shape: Sequence[int], dims: Sequence[int]) -> float:
        """Return how many times larger some dimensions of a tensor are than at the base width."""
        growth = 1.0
        for i in dims:
            base_size = sum(
                segment.fixed if segment.axis is None else self._base_features[segment.axis]
                for segment in self._layout.dims[name][i]
            )
            growth *= shape[i] / base_size
        return growth

    def rate_factor(self, name: str, shape: Sequence[int], rule: UpdateRule = "adam") -> float:
        """Return what the learning rate of a parameter is multiplied by.

        Args:
            name: its name in the model.
            shape: its shape in this model, or in a sub-GCN, which has widths of its own.
            rule: "adam" where a step does not depend on the scale of the gradient, "sgd" where it
                is proportional.

        Returns:
            1 / fan-in for Adam and fan-out / fan-in for SGD, both as multiples of those at the base
            width (Table 8).
        """
        if self.refusal is not None:
            return 1.0
        summed = self.summed_dims.get(name, ())
        fan_in = self._growth(name, shape, summed)
        if rule == "adam":
            return 1.0 / fan_in
        not_summed = [i for i in self._hidden_dims(name) if i not in summed]
        return self._growth(name, shape, not_summed) / fan_in

    @torch.no_grad()
    def scale(self, model: nn.Module) -> nn.Module:
        """Multiply the initial values of a new model by their factors, in place.

        Every tensor then has the standard deviation of the model of the base width, divided by
        sqrt(fan-in) where it maps hidden features to hidden features, and by fan-in where it is a
        readout; fan-in is counted in multiples of the base's (Table 8). So it makes no difference
        by which rule the model's initialisers follow the width.

        The readout of a model with norms begins ten times smaller still, at the base width too. Its
        features have the size 1 from the start, so a readout of the usual size gives outputs that
        have to be unlearned.

        Args:
            model: a model of `build` at any widths, with the values that it was built with.

        Returns:
            The same model. Parameters that are frozen keep their values.

        Raises:
            InputError: `model` is not of `build`.
        """
        self._check_model(model)
        if self.refusal is not None:
            return model
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.mul_(self._initial_factor(name, parameter))
        return model

    def _check_model(self, model: nn.Module) -> None:
        check_kind("model", model, nn.Module, "a model of build")
        for name, parameter in model.named_parameters():
            if name not in self._layout.dims or len(self._layout.dims[name]) != parameter.dim():
                raise InputError(
                    f"the model has a parameter '{name}' {list(parameter.shape)}, which build does "
                    "not make"
                )

    def _initial_factor(self, name: str, parameter: Tensor) -> float:
        fan_in = self._growth(name, parameter.shape, self.summed_dims.get(name, ()))
        is_readout = self.role(name) == "readout"
        # Initialisers usually give a tensor the variance 1 / fan-in, which only a readout has to
        # leave.
        usual_factor = self._readout_start * math.sqrt(1.0 / fan_in) if is_readout else 1.0
        base = self._base_deviations.get(name)
        deviation = _deviation([parameter])
        if base is None or base.value == 0.0 or deviation.value == 0.0:
            return usual_factor
        target = (
            self._readout_start * base.value / fan_in
            if is_readout
            else base.value / math.sqrt(fan_in)
        )
        factor = target / deviation.value
        error = usual_factor * (base.relative_error + deviation.relative_error)
        return usual_factor if abs(factor - usual_factor) <= error else factor

    @cached_property
    def _readout_start(self) -> float:
        """What the readout begins with at the base width, as a share of its usual size."""
        instance = small_instance(self._build, self._layout, 0)
        x = instance.batch.x
        # In evaluation mode, batch norm would have the running statistics of the small input.
        instance.module.train()
        try:
            sizes = [
                instance.output(instance.values, x * factor).abs().max()
                for factor in (1e3, 1e3 * LARGE_INPUT)
            ]
        except Exception:  # A user's model may raise anything, as for an unknown id.
            return 1.0
        is_normed = bool(sizes[1] < math.sqrt(LARGE_INPUT) * sizes[0])
        return NORMED_READOUT if is_normed else 1.0

    @cached_property
    def _base_deviations(self) -> "dict[str, _Deviation]":
        """The standard deviations of the initial values at the base width, by name.

        There are none if the model cannot be built at that width.
        """
        widths = self._layout.widths([round(count) for count in self._base_features])
        samples: dict[str, list[Tensor]] = {}
        for draw in range(BASE_MODELS):
            try:
                with Stream(draw, "base model"):
                    model = construct(self._build, widths, shared=self._layout.shared)
            except InputError:  # The number of heads may not divide the base width.
                return {}
            for name, parameter in model.named_parameters():
                # A copy, so that the model itself is not kept in memory.
                samples.setdefault(name, []).append(_sample(parameter).clone())
        return {name: _deviation(tensors) for name, tensors in samples.items()}

    def rate_factors(self, model: nn.Module, rule: UpdateRule) -> list[float]:
        """Return the rate factors of all parameters, in the order of `model.parameters()`.

        See `rate_factor`.
        """
        return [
            self.rate_factor(name, parameter.shape, rule)
            for name, parameter in model.named_parameters()
        ]

    def parameter_groups(
        self, model: nn.Module, lr: float, *, weight_decay: float = 0.0, rule: UpdateRule = "adam"
    ) -> list[dict[str, Any]]:
        """Return the groups of parameters for an optimiser of torch, one for each learning rate.

        Args:
            model: a model of `build` at any widths, or a sub-GCN of a `GIST`.
            lr: the learning rate at the base width.
            weight_decay: the weight decay at the base width. It is divided by the factor of the
                rate, so that a step shrinks a weight by the same share at every width.
            rule: "adam" for optimisers whose step does not depend on the gradient's scale (Adam,
                AdamW, RMSprop), "sgd" for those whose step is proportional to it.

        Raises:
            InputError: a value is out of range, or `model` is not of `build`.
        """
        self._check_model(model)
        check_number("lr", lr, above=True)
        check_number("weight_decay", weight_decay)
        if rule not in ("adam", "sgd"):
            raise InputError(f"rule is {rule!r}, expected 'adam' or 'sgd'")
        parameters_by_factor: dict[float, list[nn.Parameter]] = {}
        factors = self.rate_factors(model, rule)
        for parameter, factor in zip(model.parameters(), factors, strict=True):
            parameters_by_factor.setdefault(factor, []).append(parameter)
        return [
            {"params": parameters, "lr": lr * factor, "weight_decay": weight_decay / factor}
            for factor, parameters in parameters_by_factor.items()
        ]


class _Deviation(NamedTuple):
    """The standard deviation of some random numbers, and how far it may be from the true one."""

    value: float
    relative_error: float


def _deviation(tensors: Sequence[Tensor]) -> _Deviation:
    """Return the standard deviation of the entries of tensors with one distribution around 0."""
    entries = torch.cat([_sample(tensor).double() for tensor in tensors])
    if len(entries) < 2:
        return _Deviation(0.0, 0.0)
    value = float(entries.std())
    # All entries are equal, such as the ones of a norm.
    if value <= NO_DEVIATION * float(entries.abs().max()):
        return _Deviation(0.0, 0.0)
    return _Deviation(value, STANDARD_ERRORS / math.sqrt(2 * len(entries)))


def _sample(tensor: Tensor) -> Tensor:
    """Return the first entries of a tensor, as many as say its standard deviation."""
    return tensor.detach().flatten()[:MOST_ENTRIES]


def rate_factors(
    scaling: WidthScaling | None, model: nn.Module, training: Training
) -> list[float] | None:
    """Return the factor of every parameter's learning rate in a run; None if all have the same."""
    if scaling is None:
        return None
    rule = update_rule(training)
    return None if rule is None else scaling.rate_factors(model, rule)
