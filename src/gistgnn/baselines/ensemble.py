"""An ensemble of narrow models (appendix B)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor, nn

from gistgnn.baselines.parts import Parts
from gistgnn.distributed import Ranks
from gistgnn.errors import InputError
from gistgnn.layout.axes import construct, named_tensors
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.round import Make
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.slices import fill


class Ensemble(Parts):
    """Trains m narrow models by themselves, as `Parts` does, and averages their logits.

    Each enters the ensemble as it was at its best validation score. The result's model is an
    `EnsembleModel` (with ranks, on rank 0 only).

    Args:
        build, widths: see `GIST`.
        sub_gcns: m.
        options: see `Parts`; Θ is in memory.
    """

    method = "ensemble"
    _stores = ("memory",)

    @property
    def trained_spec(self) -> ModelSpec:
        return replace(self.full_spec, build=self._build_members, merges=False, width_scaling=None)

    def _build_members(self, _: object) -> EnsembleModel:
        widths = [self.layout.widths(map(len, blocks)) for blocks in self.blocks(0)]
        return EnsembleModel(
            [construct(self.build, member_widths, shared=self.shared) for member_widths in widths]
        )

    def _combine(self, values: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Make Θ the ensemble on rank 0, of the trained values of all ranks' members."""
        model = self._build_members(None)
        for i, member in enumerate(model.members):
            tensors = self._send_to_leader(i, member, values.get(i, {}))
            if self.ranks.leads:
                fill(member, tensors)
        spec = replace(self.trained_spec, init=named_tensors(model))
        self._theta = self._make_theta(spec, anew=self._theta is not None)

    def _begin_round(self, make: Make, *, keeps_moments: bool = False) -> NoReturn:
        raise InputError(
            "an ensemble has no rounds, as its members are never merged: train it by fit"
        )

    def _send_to_leader(
        self, i: int, member: nn.Module, values: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Return the values of member i on rank 0; the rank that has trained it sends them."""
        ranks = self.ranks
        sender = i % ranks.count
        if not isinstance(ranks, Ranks) or sender == 0:
            return values
        expected = named_tensors(member)
        if ranks.rank == sender:
            for name in expected:
                ranks.send(values[name].cpu().contiguous())
        if not ranks.leads:
            return values
        received = {
            name: torch.empty_like(tensor, device="cpu") for name, tensor in expected.items()
        }
        for tensor in received.values():
            ranks.receive(tensor, sender)
        return received
