"""Θ as the mean of its sub-GCNs, as a regression needs it.

It says how Θ's tensors are scaled, and how they begin.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gistgnn.layout.readout import cross_tensors, find_readout
from gistgnn.theta.model_spec import ModelSpec


@dataclass(frozen=True)
class Mean:
    """How the full model is made the mean of its m sub-GCNs; in the paper's method it is their sum.

    A merged layer sums over m times as many features as a sub-GCN's. The largest class stays the
    largest; a number becomes m times as large. So Θ holds 1/m of what the sub-GCNs have, in every
    tensor that sums over split features, and the full model's output has a sub-GCN's scale.
    """

    names: Collection[str]  # the tensors that sum over split features

    @classmethod
    def of(cls, spec: ModelSpec, split: Collection[int]) -> "Mean":
        """Return how a model is scaled whose axes `split` are split into blocks."""
        readout = find_readout(spec.build, spec.widths, spec.layout, split)
        specs = spec.tensor_specs()  # a mask, a count or an index has no scale
        cross = {
            name
            for name in cross_tensors(spec.layout, split)
            if specs[name].dtype.is_floating_point
        }
        return cls({*readout, *cross})

    def scales(self, sub_gcns: int) -> dict[str, float]:
        """What the m sub-GCNs multiply their slices of Θ by, by name."""
        return dict.fromkeys(sorted(self.names), float(sub_gcns)) if sub_gcns > 1 else {}

    def initial_factors(self, sub_gcns: int) -> Mapping[str, float]:
        """What initial values are multiplied by, by name.

        With them the m sub-GCNs begin with the scale of narrow models.
        """
        return dict.fromkeys(self.scales(sub_gcns), sub_gcns**-0.5)
