"""One round of GIST: m sub-GCNs with their blocks, from subGCNs to subAgg."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.errors import DivergedError, InputError
from gistgnn.layout.axes import named_tensors
from gistgnn.partition import Blocks
from gistgnn.theta import Said, Theta, Trained, fill
from gistgnn.utils.prefetch import prefetch

Make = Callable[[int, Blocks], nn.Module]


class Round:
    """The m sub-GCNs of one round; iterating gives them in order, each a plain module in training mode.

    They are all made when the round is, unless Θ streams: then they are made one at a time, the next one's slice is
    taken while this one trains, and what this one has become is set aside when the loop goes on.

    Args:
        theta: the global parameters; the sub-GCNs take their slices of it (subGCNs).
        number: t, the round's place in the run.
        blocks: for each sub-GCN its features of every axis.
        make: returns a module of some blocks' widths; one of another place i has parameters of its own.
        input_axis: which axis is the input features, or None.
    """

    def __init__(
        self, theta: Theta, number: int, blocks: list[Blocks], make: Make, input_axis: int | None = None
    ) -> None:
        self.number = number
        self.blocks = blocks
        self._theta, self._make, self._input_axis = theta, make, input_axis
        self._pending = theta.begin(number, blocks)
        self._held: dict[int, nn.Module] = {}  # taken, and not set aside yet
        self._set_aside: set[int] = set()
        self._optimizers: dict[int, Optimizer] = {}
        self._carried: set[int] = set()
        if not theta.streams:
            self._take_all()

    @property
    def subs(self) -> list[nn.Module]:
        """All of this process's sub-GCNs at once.

        Raises:
            InputError: some have been set aside already.
        """
        self._check_whole()
        if len(self._held) < len(self.members):
            self._take_all()
        return [self._held[i] for i in self.members]

    def __iter__(self) -> Iterator[nn.Module]:
        """Yield this process's sub-GCNs in order."""
        self._check_whole()
        if len(self._held) == len(self.members):
            yield from self.subs
            return
        with closing(prefetch(map(self._pending.slices, self.members))) as slices:
            for i, values in zip(self.members, slices, strict=True):
                sub = self._make(0, self.blocks[i])
                fill(sub, values)
                values.clear()  # not to be held while the sub-GCN trains
                yield self._hold(i, sub)
                self._put_aside(i)

    @property
    def members(self) -> list[int]:
        """The sub-GCNs that this process trains, in order: all of them, unless there are other ranks."""
        return self._pending.members

    def __len__(self) -> int:
        """Return m, those of other ranks included."""
        return len(self.blocks)

    def input_columns(self, i: int) -> Tensor | None:
        """Return the input features that sub-GCN i sees, or None where it sees all of them (d_0 not partitioned)."""
        return None if self._input_axis is None else self.blocks[i][self._input_axis]

    def carry(self, i: int, optimizer: Optimizer) -> None:
        """Let an optimiser of sub-GCN i go on from the moments of earlier rounds, and keep them after this one."""
        self._pending.take_moments(i, self._held[i], optimizer)
        self._optimizers[i] = optimizer
        self._carried.add(i)

    def aggregate(self, losses: Mapping[int, float] | None = None) -> float:
        """Write the sub-GCNs back into Θ (subAgg), and the moments that are carried.

        Args:
            losses: the mean loss of each of this process's sub-GCNs that took a step.

        Returns:
            Their mean over all sub-GCNs, those of other ranks included; 0 where there is none.

        Raises:
            DivergedError: a loss is not finite, or a sub-GCN holds such a value; Θ is left as it was.
            InputError: `carry` was called for some of the sub-GCNs only, or for an optimiser that cannot be carried;
                or Θ, or the checkpoint that was being written of it, cannot be written.
        """
        said = Said(dict(losses or {}))
        try:
            self._check_losses(said.losses)
            self._put_all_aside()
            self._theta.settle()
        except InputError as error:
            said.error = error
        said = self._pending.agree(said)
        means = [said.losses[i] for i in sorted(said.losses)]
        loss = sum(means) / len(means) if means else 0.0
        self._pending.commit(loss)
        return loss

    def _put_all_aside(self) -> None:
        if self._carried and len(self._carried) < len(self.members):
            missing = min(set(self.members) - self._carried)
            raise InputError(
                f"round {self.number + 1}: sub-GCN {missing} has no carried optimiser: call carry for all or none"
            )
        for i in self.members:
            if i not in self._set_aside:
                if i not in self._held:  # the loop was left before it
                    self._take(i, 0)
                self._put_aside(i)

    def _take_all(self) -> None:
        for i in self.members:
            if i not in self._held:
                self._take(i, i)

    def _take(self, i: int, place: int) -> None:
        sub = self._make(place, self.blocks[i])
        self._pending.take(i, sub)
        self._hold(i, sub)

    def _hold(self, i: int, sub: nn.Module) -> nn.Module:
        sub.train()
        sub.zero_grad(set_to_none=True)
        self._held[i] = sub
        return sub

    def _check_whole(self) -> None:
        if self._set_aside:
            raise InputError(
                f"round {self.number + 1}: sub-GCN {min(self._set_aside)} has been put aside already: where Θ streams, "
                "go through a round once, and train each sub-GCN within the loop"
            )

    def _put_aside(self, i: int) -> None:
        sub, optimizer = self._held[i], self._optimizers.get(i)
        if optimizer is not None:
            self._check_states(sub, optimizer)
        self._check_finite(i, sub)
        self._pending.set_aside(i, Trained.of(sub, optimizer))
        if self._theta.streams:
            self._set_aside.add(i)
            del self._held[i]
            self._optimizers.pop(i, None)

    def _check_states(self, sub: nn.Module, optimizer: Optimizer) -> None:
        for name, parameter in sub.named_parameters():
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                    raise InputError(
                        f"the optimiser's '{key}' of '{name}' is {tuple(value.shape)}, not the parameter's "
                        f"{tuple(parameter.shape)}, and cannot be carried: use Adam or SGD"
                    )

    def _check_losses(self, losses: Mapping[int, float]) -> None:
        for i, loss in sorted(losses.items()):
            if not math.isfinite(loss):
                raise DivergedError(self.number, f"the loss of sub-GCN {i} became {loss}")

    def _check_finite(self, i: int, sub: nn.Module) -> None:
        for name, tensor in named_tensors(sub).items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise DivergedError(self.number, f"'{name}' of sub-GCN {i} became NaN or infinite")
