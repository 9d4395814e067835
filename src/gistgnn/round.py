"""One round of GIST: take m sub-GCNs out of Θ (subGCNs), and write them back (subAgg)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.errors import DivergedError, GistError, InputError
from gistgnn.layout.axes import named_tensors
from gistgnn.layout.width_scaling import WidthScaling, rate_factors
from gistgnn.partition import Blocks
from gistgnn.settings import Training
from gistgnn.theta.slices import (
    MOMENTS,
    THETA,
    Trained,
    fill,
    give_moments,
    name_of,
    trained_tensors,
)
from gistgnn.theta.theta import Theta
from gistgnn.utils.prefetch import prefetch

Make = Callable[[int, Blocks], nn.Module]


class Round:
    """The m sub-GCNs of one round.

    Iterating yields them in order; each is a plain module in training mode. If Θ streams, they are
    made one at a time: a thread takes the next slice while a sub-GCN trains, and the trained
    sub-GCN is kept beside Θ when the loop goes on.

    Args:
        theta: Θ.
        number: t, the round's number in the run.
        blocks: the features of every axis, for each sub-GCN.
        make: returns a module of the blocks' widths. Those of different i share no parameters.
        input_axis: the axis of the input features, if they are partitioned.
        keeps_moments: whether moments stay with Θ for the next round. They do if m = 1.
        scales: the factors by which a sub-GCN's tensors differ from those of Θ, by name.
        width_scaling: of the learning rates. Defaults to the same rate for all tensors.

    Attributes:
        members: the sub-GCNs that this process trains, in order.
        streams: whether the sub-GCNs are made one at a time.
        keeps_moments: whether moments stay with Θ after the round.
    """

    def __init__(
        self,
        theta: Theta,
        number: int,
        blocks: list[Blocks],
        make: Make,
        input_axis: int | None = None,
        *,
        keeps_moments: bool = False,
        scales: Mapping[str, float] | None = None,
        width_scaling: WidthScaling | None = None,
    ) -> None:
        self.number = number
        self.blocks = blocks
        self._width_scaling = width_scaling
        self._theta = theta
        self._make = make
        self._input_axis = input_axis
        self._scales = scales or {}
        self.streams = theta.place.streams
        self.keeps_moments = keeps_moments or len(blocks) == 1
        self.members = theta.begin(number, blocks)
        self._opening = theta.openings
        self._means: dict[str, float] = {}  # The means of the numbers over all sub-GCNs.
        self._loaded: dict[int, nn.Module] = {}
        self._kept: set[int] = set()  # The sub-GCNs that have trained, and are no longer loaded.
        self._optimizers: dict[int, Optimizer] = {}
        self._carried: set[int] = set()
        # The sums of the tensors of each trained sub-GCN that is still loaded.
        self._sums: dict[int, Tensor] = {}
        if not self.streams:
            for i in self.members:
                self._load(i, i)

    @property
    def subs(self) -> list[nn.Module]:
        """All sub-GCNs of this process at once.

        Raises:
            InputError: one has been trained, and is no longer in memory.
        """
        if self._kept:
            raise InputError(
                f"round {self.number + 1}: sub-GCN {min(self._kept)} is no longer in memory: with "
                "this store, loop over a round once, and train each sub-GCN inside the loop"
            )
        for i in self.members:
            self._load(i, i)
        return [self._loaded[i] for i in self.members]

    def __iter__(self) -> Iterator[nn.Module]:
        """Yield the sub-GCNs of this process in order."""
        was_written = self.is_written  # Then the caller only looks at them.
        if self._kept or len(self._loaded) == len(self.members):
            for i, sub in zip(self.members, self.subs, strict=True):
                self._check_not_written(i, was_written)
                yield sub
            return
        with closing(prefetch(map(self._theta.slice_of, self.members))) as slices:
            for i, values in zip(self.members, slices, strict=True):
                self._check_not_written(i, was_written)
                self._load(i, 0, values)
                values.clear()  # This frees the slice while the sub-GCN trains.
                yield self._loaded[i]
                if i not in self._kept:  # Else `aggregate` has kept it, inside the caller's loop.
                    self._keep(i)

    @property
    def device(self) -> torch.device:
        """Where Θ is. The sub-GCNs train there, unless they are made one at a time."""
        return self._theta.place.device

    @property
    def is_open(self) -> bool:
        """Whether this is the last round that has begun."""
        return self._theta.openings == self._opening

    @property
    def is_written(self) -> bool:
        """Whether this is the last round that has begun, and it is in Θ."""
        return self.is_open and self._theta.place.written

    def _check_not_written(self, i: int, was_written: bool) -> None:
        """Refuse to go on with sub-GCN i if the caller has aggregated inside the loop."""
        if self.is_written and not was_written:
            raise InputError(
                f"round {self.number + 1} has been written back, and sub-GCN {i} has not trained: "
                "call aggregate after the loop over the sub-GCNs, or not at all"
            )

    def __len__(self) -> int:
        """Return m, the number of sub-GCNs on all ranks."""
        return len(self.blocks)

    def input_columns(self, i: int) -> Tensor | None:
        """Return the input features that sub-GCN i sees.

        Returns None for all of them, where d_0 is not partitioned.
        """
        return None if self._input_axis is None else self.blocks[i][self._input_axis]

    def rate_factors(self, sub: nn.Module, training: Training) -> list[float] | None:
        """Return the factors of a sub-GCN's learning rates by its widths; see `WidthScaling`."""
        return rate_factors(self._width_scaling, sub, training)

    def make_optimizer(self, training: Training, subs: Sequence[nn.Module]) -> Optimizer:
        """Return a new optimiser of some sub-GCNs, with the learning rates of their widths."""
        parameters = [parameter for sub in subs for parameter in sub.parameters()]
        factors: list[float] = []
        for sub in subs:
            factors += self.rate_factors(sub, training) or [1.0] * len(list(sub.parameters()))
        return training.make_optimizer(parameters, factors)

    def carry(self, i: int, optimizer: Optimizer) -> None:
        """Give the optimiser of sub-GCN i its earlier moments; the round keeps its new ones."""
        give_moments(self._loaded[i], optimizer, self._theta.moments_of(i))
        self._optimizers[i] = optimizer
        self._carried.add(i)

    def aggregate(
        self, numbers: Mapping[int, Mapping[str, float]] | None = None
    ) -> dict[str, float]:
        """Write the sub-GCNs and the carried moments back into Θ (subAgg).

        A second call changes nothing.

        Args:
            numbers: the numbers of each sub-GCN of this process by name, such as its mean "loss".

        Returns:
            The mean of each number over the sub-GCNs of all ranks that measured it.

        Raises:
            DivergedError: a loss or a parameter is not finite; Θ is left as it was.
            InputError: another round or run has begun since, or sub-GCNs have trained since they
                were written back.
        """
        theta = self._theta
        if not self.is_open:
            since = "a run of fit" if theta.number < 0 else f"round {theta.number + 1}"
            raise InputError(f"round {self.number + 1} is over: {since} has begun since")
        if self.is_written:
            self._check_unchanged()
            return self._means
        measured = {i: dict(values) for i, values in sorted((numbers or {}).items())}
        failure: GistError | None = None
        try:
            for i, values in measured.items():
                for name, value in values.items():
                    if not math.isfinite(value):
                        raise DivergedError(
                            self.number, f"the {name} of sub-GCN {i} became {value}"
                        )
            if self._carried and (missing := set(self.members) - self._carried):
                raise InputError(
                    f"round {self.number + 1}: sub-GCN {min(missing)} has no carried optimiser: "
                    "call carry for all or none"
                )
            for i in self.members:
                if i not in self._kept:
                    self._load(i, 0)  # The caller may have left the loop before this sub-GCN.
                    self._keep(i)
            theta.wait_for_reader()
        except GistError as error:
            failure = error
        self._means = _means_of(theta.agree(measured, failure))
        theta.commit(self._means.get("loss", 0.0))
        self._optimizers.clear()  # This frees their moments.
        return self._means

    def _check_unchanged(self) -> None:
        """Refuse a second `aggregate` if a sub-GCN has changed since the first one."""
        for i, sums in self._sums.items():
            if not torch.equal(_sums_of(_floating(trained_tensors(self._loaded[i]))), sums):
                raise InputError(
                    f"round {self.number + 1} has been written back, and sub-GCN {i} has changed "
                    "since: call aggregate once, when all sub-GCNs have trained"
                )

    def _load(self, i: int, module_number: int, values: Mapping[str, Tensor] | None = None) -> None:
        """Make sub-GCN i, unless it is loaded.

        Args:
            i: its number.
            module_number: of the module that becomes this sub-GCN: i, or 0 if the sub-GCNs are made
                one at a time and use the same module.
            values: its parameters and buffers. Defaults to its slice of Θ.
        """
        if i in self._loaded:
            return
        sub = self._make(module_number, self.blocks[i])
        fill(sub, self._theta.slice_of(i) if values is None else values)
        if self._scales:
            tensors = named_tensors(sub)
            with torch.no_grad():
                for name, scale in self._scales.items():
                    tensors[name].mul_(scale)
        sub.train()
        sub.zero_grad(set_to_none=True)
        self._loaded[i] = sub

    def _keep(self, i: int) -> None:
        """Check trained sub-GCN i, and keep it beside Θ until the end of the round."""
        trained = trained_tensors(self._loaded[i], self._optimizers.get(i))
        for key, value in trained.items():
            name = name_of(key)
            shape = trained[f"{THETA}{name}"].shape
            if key.startswith(MOMENTS) and value.dim() and value.shape != shape:
                raise InputError(
                    f"the optimiser's '{key.rpartition('/')[2]}' of '{name}' is "
                    f"{tuple(value.shape)}, not the parameter's {tuple(shape)}, and cannot be "
                    "carried: use Adam or SGD"
                )
        tensors = _floating(trained)
        sums = _sums_of(tensors)
        finite = torch.isfinite(sums).tolist()  # This waits for a GPU once for all tensors.
        if False in finite:
            name = list(tensors)[finite.index(False)]
            raise DivergedError(self.number, f"'{name}' of sub-GCN {i} became NaN or infinite")
        for name, scale in self._scales.items():
            trained[f"{THETA}{name}"] = trained[f"{THETA}{name}"] / scale
        self._theta.keep(i, trained)
        if not self.streams:
            self._sums[i] = sums
        else:
            self._kept.add(i)
            del self._loaded[i]
            self._optimizers.pop(i, None)


def _means_of(numbers: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number over the sub-GCNs that measured it, in their order."""
    names = dict.fromkeys(name for i in sorted(numbers) for name in numbers[i])
    means = {}
    for name in names:
        values = [numbers[i][name] for i in sorted(numbers) if name in numbers[i]]
        means[name] = sum(values) / len(values)
    return means


def _floating(trained: Trained) -> dict[str, Tensor]:
    """Return the floating-point parameters and buffers of a sub-GCN, by name."""
    tensors = {name_of(key): tensor for key, tensor in trained.items() if key.startswith(THETA)}
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _sums_of(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of each tensor: one that is finite has finite entries alone."""
    if not tensors:
        return torch.zeros(0)
    if all(tensor.device.type == "cuda" for tensor in tensors.values()):
        # Sums of absolute values, which one kernel computes for many tensors.
        return torch.stack(torch._foreach_norm(list(tensors.values()), 1))
    return torch.stack([tensor.sum(dtype=torch.float64) for tensor in tensors.values()])
