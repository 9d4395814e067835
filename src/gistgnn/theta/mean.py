"""Θ as the mean of its sub-GCNs: how its tensors are scaled, and how it begins as narrow models side by side."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gistgnn.layout.readout import cross_tensors, find_readout
from gistgnn.theta.model_spec import ModelSpec


@dataclass(frozen=True)
class Mean:
    """How the full model is made the mean of its sub-GCNs, whatever their number m is at the time.

    A merged layer sums over m times as many features as a sub-GCN's. Here Θ holds 1/m of what the sub-GCNs have, in
    every tensor that does. So the full model's output has a sub-GCN's scale, and a change of m does not change it. With
    weights of zero between the blocks it is the mean of the sub-GCNs' outputs, exactly unless a layer mixes them
    nonlinearly (layer norm, attention) or the readout is followed by something nonlinear (GIN); for copies it is exact
    with these too.
    """

    readout: Collection[str]  # the tensors that sum over split features into something not split (see `find_readout`)
    cross: Collection[str]  # the tensors of floating-point numbers along two split axes or more (see `cross_tensors`)
    zero: bool  # weights between blocks begin as zero: a hidden layer sums over a block's features after merging, too

    @classmethod
    def of(cls, spec: ModelSpec, split: Collection[int], input_axis: int | None, *, zero: bool) -> "Mean":
        """Return how a model is scaled whose axes `split` are split into blocks; for `zero` see `Mean`."""
        model = spec.build, spec.widths, spec.layout
        readout = find_readout(*model, shared=spec.shared, split=split, input_axis=input_axis)
        specs = spec.tensor_specs()  # a mask, a count or an index has no scale
        cross = {name for name in cross_tensors(spec.layout, split) if specs[name].dtype.is_floating_point}
        return cls(readout, cross, zero)

    def scales(self, sub_gcns: int) -> dict[str, float]:
        """What the m sub-GCNs multiply their slices of Θ by, by name."""
        names = self.readout if self.zero else {*self.readout, *self.cross}
        return dict.fromkeys(sorted(names), float(sub_gcns)) if sub_gcns > 1 else {}

    def gains(self, sub_gcns: int) -> Mapping[str, float]:
        """What initial values are multiplied by, so that the m sub-GCNs begin with the scale of narrow models."""
        if self.zero:
            return dict.fromkeys(sorted(self.cross), 0.0)
        return dict.fromkeys(self.scales(sub_gcns), sub_gcns**-0.5)
