"""One round of GIST: m sub-GCNs with their blocks, from subGCNs to subAgg."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.axes import named_tensors
from gistgnn.errors import InputError
from gistgnn.partition import Blocks
from gistgnn.theta import Theta


class DivergedError(InputError):
    """A sub-GCN's loss or parameters became NaN or infinite; Θ is as it was before that round.

    Args:
        round_number: t of the round in which it happened, from 0; the message counts from 1, as result.json does.
        what: the value that is not finite.
    """

    def __init__(self, round_number: int, what: str) -> None:
        super().__init__(
            f"training diverged in round {round_number + 1}: {what}; the parameters from before that round are kept; "
            "try a smaller learning rate or clip the gradient"
        )
        self.round_number, self.what = round_number, what
        self.result: Any = None  # of `GIST.fit`: what the run had reached

    def __reduce__(self) -> tuple[type["DivergedError"], tuple[int, str]]:
        """Let the error cross processes; the result stays behind."""
        return type(self), (self.round_number, self.what)


class Round:
    """The m sub-GCNs of one round; iterating gives them in order, each a plain module in training mode.

    Args:
        theta: the global parameters; the sub-GCNs take their slices when the round is made (subGCNs).
        number: t, the round's place in the run.
        blocks: for each sub-GCN its features of every axis.
        subs: modules of the blocks' widths.
        input_axis: which axis is the input features, or None.
    """

    def __init__(
        self, theta: Theta, number: int, blocks: list[Blocks], subs: list[nn.Module], input_axis: int | None = None
    ) -> None:
        self.number = number
        self.blocks = blocks
        self.subs = subs
        self._theta = theta
        self._input_axis = input_axis
        self._optimizers: dict[int, Optimizer] = {}
        for own, sub in zip(blocks, subs, strict=True):
            theta.take(own, sub)
            sub.train()
            sub.zero_grad(set_to_none=True)

    def __iter__(self) -> Iterator[nn.Module]:
        """Yield the sub-GCNs in order."""
        return iter(self.subs)

    def __len__(self) -> int:
        """Return m."""
        return len(self.subs)

    def input_columns(self, i: int) -> Tensor | None:
        """Return the input features that sub-GCN i sees, or None where it sees all of them (d_0 not partitioned)."""
        return None if self._input_axis is None else self.blocks[i][self._input_axis]

    def carry(self, i: int, optimizer: Optimizer) -> None:
        """Let an optimiser of sub-GCN i go on from the moments of earlier rounds, and keep them after this one."""
        self._theta.take_moments(self.blocks[i], self.subs[i], optimizer)
        self._optimizers[i] = optimizer

    def aggregate(self) -> None:
        """Write the sub-GCNs back into Θ (subAgg), and the moments that are carried.

        Raises:
            DivergedError: a sub-GCN holds a value that is not finite; Θ is left as it was.
            InputError: `carry` was called for some of the sub-GCNs only, or for an optimiser that cannot be carried.
        """
        if self._optimizers and len(self._optimizers) < len(self):
            missing = min(set(range(len(self))) - set(self._optimizers))
            raise InputError(
                f"round {self.number + 1}: sub-GCN {missing} has no carried optimiser: call carry for all or none"
            )
        self._check_states()
        self._check_finite()
        self._theta.put(self.blocks, self.subs)
        if self._optimizers:
            self._theta.put_moments(self.blocks, self.subs, [self._optimizers[i] for i in range(len(self))])

    def _check_states(self) -> None:
        for i, optimizer in self._optimizers.items():
            for name, parameter in self.subs[i].named_parameters():
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                        raise InputError(
                            f"the optimiser's '{key}' of '{name}' is {tuple(value.shape)}, not the parameter's "
                            f"{tuple(parameter.shape)}, and cannot be carried: use Adam or SGD"
                        )

    def _check_finite(self) -> None:
        for i, sub in enumerate(self.subs):
            for name, tensor in named_tensors(sub).items():
                if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                    raise DivergedError(self.number, f"'{name}' of sub-GCN {i} became NaN or infinite")
