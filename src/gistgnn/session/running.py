"""The full model on its device, kept from one evaluation to the next."""

from __future__ import annotations

from torch import nn

from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.theta import Theta


class Running:
    """The full model with the parameters that Θ has at the time.

    `module` and `refresh` are for rank 0, within `Theta.read_on_rank_0`.

    Args:
        theta: the parameters.
        spec: the model.
    """

    def __init__(self, theta: Theta, spec: ModelSpec) -> None:
        self._theta, self._spec = theta, spec
        self._module: nn.Module | None = None

    @property
    def module(self) -> nn.Module:
        """The model as it was when it was last refreshed."""
        return self._module or self.refresh()

    def refresh(self) -> nn.Module:
        """The model with the parameters that Θ has now."""
        self._module = self._theta.running_model(self._spec, self._module)
        return self._module

    def best(self) -> nn.Module:
        """The model with the parameters of the best Θ; all ranks call this."""
        return self._theta.full_model(self._spec, best=True, module=self._module)
