"""The model whose parameters are Θ: how it is built, its widths, its initial values."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import Build, Layout, Widths, construct, named_tensors
from gistgnn.layout.derived import compute_derived
from gistgnn.layout.joining import count_copies, features_of, side_by_side
from gistgnn.layout.width_scaling import WidthScaling
from gistgnn.nn.scaling import ScaledModel, saved_state, split_scaling
from gistgnn.utils.random_streams import Stream
from gistgnn.utils.tensors import TensorSpec, digest_of, tensor_digest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelSpec:
    """The model whose parameters are Θ. Its methods raise an InputError if `build` fails."""

    build: Build  # returns the model at given widths
    layout: Layout  # of its tensors along the hidden axes
    widths: Widths  # the full widths
    seed: int  # the initial parameters follow from it
    device: torch.device  # where the model trains
    # By what the initial values are multiplied in Θ, by name.
    initial_factors: Mapping[str, float] = field(default_factory=dict)
    # Initial parameters and buffers by name, in place of those of the seed.
    init: Mapping[str, Tensor] | None = None
    # Θ is put together from slices, so a model's derived buffers are computed again.
    merges: bool = False
    # How the initial values are scaled. None leaves them as `build` makes them.
    width_scaling: WidthScaling | None = None

    def construct(self) -> nn.Module:
        """Build the model, on the host, for other values than its own.

        Torch's own random stream does not move.
        """
        with Stream(self.seed, "parameters"):
            return construct(self.build, self.widths, shared=self.layout.shared)

    def from_seed(self) -> nn.Module:
        """Build the model with its initial parameters, on the host."""
        model = self.construct()
        return model if self.width_scaling is None else self.width_scaling.scale(model)

    def initial_tensors(self) -> dict[str, Tensor]:
        """The initial parameters and buffers of Θ, by name, on the host.

        Those of `init` are not copied.
        """
        if self.init is not None:
            return {name: tensor.detach().cpu() for name, tensor in self.init.items()}
        tensors = {
            name: tensor.detach() for name, tensor in named_tensors(self.from_seed()).items()
        }
        for name, factor in self.initial_factors.items():
            tensors[name] *= factor
        return tensors

    def on_meta(self) -> nn.Module:
        """Build the model without values, on the meta device, where its tensors take no memory."""
        if not self.layout.builds_on_meta:
            return construct(self.build, self.widths, shared=self.layout.shared).to("meta")
        with torch.device("meta"):
            return construct(self.build, self.widths, shared=self.layout.shared)

    def with_derived(self, model: nn.Module) -> nn.Module:
        """Return a model with Θ's parameters after its derived buffers are computed.

        These are the buffers that follow from whole parameters.
        """
        if self.merges:
            features = self.layout.features(self.widths)
            compute_derived(model, self.layout, features)
        return model

    def all_names(self) -> set[str]:
        """The names of all parameters and buffers: every name of those that are tied."""
        model = self.on_meta()
        parameters = dict(model.named_parameters(remove_duplicate=False))
        buffers = dict(model.named_buffers(remove_duplicate=False))
        return {*parameters, *buffers}

    def tensor_specs(self) -> dict[str, TensorSpec]:
        """The shape and type of every parameter and buffer."""
        return {
            name: TensorSpec.of(tensor) for name, tensor in named_tensors(self.on_meta()).items()
        }


def values_of(source: nn.Module | Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """Return the tensors of a trained model, or of its `state_dict()`, for the Θ of `spec`.

    They are the parameters and buffers by name, not copied.
    """
    if not isinstance(source, (nn.Module, Mapping)):
        raise InputError(
            f"init is a {type(source).__name__}, expected a trained model, or its state_dict()"
        )
    specs = spec.tensor_specs()
    source = source.model if isinstance(source, ScaledModel) else source
    if isinstance(source, nn.Module):
        tensors = named_tensors(source)
    else:
        state, _ = split_scaling(saved_state(source))
        # A state has every name of a tied parameter, and Θ has the first one alone.
        further_names = spec.all_names() - specs.keys()
        tensors = {
            name: value
            for name, value in state.items()
            if isinstance(value, Tensor) and name not in further_names
        }
    advice = f"give a model of `build` at the widths {spec.widths}, or narrower ones"
    tensors = _widen_tensors(tensors, specs, spec)
    check_shapes(tensors, specs, "init", "the model of the full widths", advice)
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"'{name}' of init is not finite: give a model that has not diverged")
    return {name: tensors[name].detach() for name in specs}


def _widen_tensors(
    tensors: dict[str, Tensor], specs: Mapping[str, TensorSpec], spec: ModelSpec
) -> dict[str, Tensor]:
    """Return the tensors of a narrower model, widened to the spec's widths.

    Copies of the narrower model are joined. Other tensors stay as they are: whether they fit is
    checked later.
    """
    is_narrower = specs.keys() <= tensors.keys() and any(
        tensors[name].dim() == len(full.shape) and tensors[name].numel() < full.shape.numel()
        for name, full in specs.items()
    )
    if not is_narrower or spec.layout.refusal is not None or spec.layout.input_axis is not None:
        return tensors
    widths = spec.layout.widths(features_of(spec.layout, tensors))
    count = count_copies(widths, spec.widths)
    shown = " x ".join(map(str, widths)), " x ".join(map(str, spec.widths))
    log.info("init is made wider, from %s to %s: %d copies side by side", *shown, count)
    return side_by_side(spec.build, spec.layout, [tensors] * count)


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of tensors and their names.

    By it a resumed run knows that it is the same one.
    """
    return digest_of({name: tensor_digest(tensor) for name, tensor in tensors.items()})


def check_shapes(
    actual: Mapping[str, Tensor | TensorSpec],
    expected: Mapping[str, Tensor | TensorSpec],
    where: str,
    model: str,
    advice: str,
) -> None:
    """Raise InputError unless the tensors are those of the model.

    The message names the first tensor that differs, and says `where` the tensors are.
    """
    for name, tensor in expected.items():
        if name not in actual:
            raise InputError(f"{where} has no '{name}', which {model} has: {advice}")
        if (shape := actual[name].shape) != tensor.shape:
            raise InputError(
                f"'{name}' is {list(shape)} in {where}, {list(tensor.shape)} in {model}: {advice}"
            )
    if unexpected := sorted(actual.keys() - expected.keys()):
        raise InputError(f"{where} has '{unexpected[0]}', which {model} lacks: {advice}")
