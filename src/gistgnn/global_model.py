"""`GlobalModel`: a model whose parameters are Θ, and the rounds in which its sub-GCNs train."""

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gistgnn.accounting.costs import require_theta_fits
from gistgnn.defaults import chosen_sub_gcns
from gistgnn.distributed import Alone, Costs, Ranks, World
from gistgnn.errors import InputError
from gistgnn.graphs import Standardisation
from gistgnn.layout.axes import Build, Widths, check_widths
from gistgnn.layout.check import infer_layout
from gistgnn.layout.joining import as_part, readout_of
from gistgnn.layout.width_scaling import WidthScaling
from gistgnn.nn.scaling import scaled_model
from gistgnn.partition import Blocks, Partition
from gistgnn.round import Make, Round
from gistgnn.sampling.call import Recent, multiply_when_called
from gistgnn.settings import BASE_WIDTH, WIDTH_SCALINGS
from gistgnn.theta.mean import Mean
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Store, StoreName
from gistgnn.theta.slices import fill
from gistgnn.theta.theta import Theta
from gistgnn.training.names import UpdateRule
from gistgnn.utils.checks import check_choice, check_count, check_flag, check_kind
from gistgnn.utils.machine import require_usual_torch, usable_device
from gistgnn.utils.random_streams import check_seed


class GlobalModel:
    """A model whose parameters are Θ, and from which rounds of sub-GCNs are taken.

    For the arguments see `gistgnn.GIST`.
    """

    # Other methods are subclasses, which have other values.
    method = "gist"
    # Whether sub-GCNs are merged in every round, so that Θ may begin with a trained model.
    merges_sub_gcns = True
    # Whether every worker has batches of its own. A run without a sampler is then refused.
    has_independent_batches = False
    # The stores that the method works with; None stands for all.
    _stores: tuple[str, ...] | None = None

    def __init__(
        self,
        build: Build,
        widths: int | Sequence[int] = (),
        sub_gcns: int | None = None,
        *,
        input_axis: int | None = None,
        whole: int | Collection[int] = (),
        partition: Literal["balanced", "categorical"] = "balanced",
        seed: int = 0,
        device: str | torch.device = "cpu",
        store: StoreName | Store = "memory",
        ranks: World | None = None,
        axis_names: Sequence[str] | None = None,
        regression: bool = False,
        width_scaling: Literal["mup", "none"] = "mup",
        base_width: int = BASE_WIDTH,
    ) -> None:
        require_usual_torch()
        self.build = build
        self.seed = check_seed(seed)
        self.shared = not isinstance(widths, (list, tuple))
        check_kind(
            "ranks", ranks, (Alone, Ranks), "the ranks of a run, of gistgnn.distributed", none=True
        )
        self.widths = check_widths(widths, input_axis)
        self.device = usable_device(device)
        given_axes: Any = whole
        if not isinstance(whole, (list, tuple, set, frozenset, range)):
            given_axes = [whole]
        whole_axes = [check_count("whole", axis, least=0) for axis in given_axes]
        self.input_axis = None if input_axis is None else operator.index(input_axis)
        splits = sub_gcns != 1 and not set(whole_axes).issuperset(range(len(self.widths)))
        self.layout = infer_layout(
            build, self.widths, shared=self.shared, input_axis=self.input_axis, splits=splits
        )
        self.ranks: World = ranks or Alone()
        self.partition = Partition(
            self.layout.features(self.widths),
            1 if sub_gcns is None else sub_gcns,
            whole=whole_axes,
            kind=partition,
            seed=self.seed,
            names=axis_names,
            refusal=self.layout.refusal,
        )
        if sub_gcns is None and self.split_widths:
            m = max(chosen_sub_gcns(max(self.split_widths)), self.ranks.count)
            self.partition = self.partition.split_into(m)
        check_choice("width_scaling", width_scaling, WIDTH_SCALINGS)
        check_count("base_width", base_width)
        self.width_scaling: WidthScaling | None = None
        if width_scaling == "mup":
            self.width_scaling = WidthScaling(
                build, widths, base_width=base_width, layout=self.layout, input_axis=self.input_axis
            )
        self.full_spec = ModelSpec(
            build,
            self.layout,
            self.widths,
            self.seed,
            self.device,
            merges=self.sub_gcns > 1,
            width_scaling=self.width_scaling,
        )
        self.store = store if isinstance(store, Store) else Store(store)
        if self._stores is not None and self.store.kind not in self._stores:
            raise InputError(
                f"the store is {self.store.kind}, but {self.method} holds all of Θ in memory: use "
                "memory"
            )
        self.store.check_ranks(
            self.ranks, self.workers, "sub_gcns" if self.workers == self.sub_gcns else "workers"
        )
        self.next_round = 0
        self._modules: dict[int, tuple[Widths, nn.Module]] = {}
        self._theta: Theta | None = None
        # Whether Θ may have other values than those of the seed.
        self._differs_from_seed = False
        self._was_resumed = False  # Whether an earlier process has left Θ.
        self._recent = Recent()
        # How the last run of `fit` has scaled the features.
        self.scaling: Standardisation | None = None
        check_flag("regression", regression)
        self.regression = regression
        self._mean: Mean | None = None  # There is one if Θ is the mean of its sub-GCNs.
        if regression and self.sub_gcns > 1 and self.partition.split:
            self._mean = Mean.of(self.full_spec, self.partition.split)
        # The attributes from before a run, until its first round begins.
        self._before: dict[str, Any] | None = None

    def __repr__(self) -> str:
        partition = self.partition
        axes = []
        for axis, (name, count) in enumerate(zip(partition.names, partition.features, strict=True)):
            split = "whole" if axis in partition.whole else f"in {self.sub_gcns} blocks"
            axes.append(f"{name}: {count} {split}")
        return (
            f"{type(self).__name__}(widths={self.widths}, m={self.sub_gcns}, {', '.join(axes)}; "
            f"store={self.store.kind!r}, seed={self.seed})"
        )

    @property
    def sub_gcns(self) -> int:
        """m, the number of sub-GCNs."""
        return self.partition.sub_gcns

    @property
    def split_widths(self) -> list[int]:
        """The widths of the hidden layers that are split into blocks if m > 1."""
        return [self.widths[axis] for axis in self.partition.split if axis != self.input_axis]

    @property
    def workers(self) -> int:
        """How many workers train at the same time: m.

        `training="split"` splits the epochs over them.
        """
        return self.sub_gcns

    def bytes_sent(self, costs: Costs) -> dict[str, float]:
        """Return what a worker sends, as result.json holds it."""
        return {"bytes_per_round": costs.gist}

    @property
    def theta(self) -> Theta:
        """Θ. It is made with the initial values of the seed when it is first used."""
        if self._theta is None:
            self._theta = self._make_theta(self._initial_spec(None))
        return self._theta

    @property
    def trained_spec(self) -> ModelSpec:
        """The model that is trained and returned: the full model."""
        return self.full_spec

    @property
    def averages(self) -> bool:
        """Whether the full model is the mean of its sub-GCNs, as in a regression, not their sum."""
        return self._mean is not None

    def _initial_spec(self, init: Mapping[str, Tensor] | None) -> ModelSpec:
        """Return the model with which Θ begins: with the values `init`, or those of the seed."""
        if init is not None or self._mean is None:
            return replace(self.trained_spec, init=init)
        return replace(self.trained_spec, initial_factors=self._mean.initial_factors(self.sub_gcns))

    def resume(self) -> None:
        """Resume from the Θ that an earlier process has left in the store's folder."""
        if not self._reopen():
            folder = self.store.folder or self.store.kind
            raise InputError(
                f"there is no Θ to resume in {folder}: resume from a checkpoint, or give its folder"
            )

    def _reopen(self) -> bool:
        """Open the Θ that an earlier process has left; return False if there is none."""
        theta = Theta.reopen(self.store, self.trained_spec, self.ranks)
        if theta is None:
            return False
        self._theta = theta
        self.next_round = theta.place.round
        self._differs_from_seed = True
        self._was_resumed = True
        return True

    def blocks(self, draw: int) -> list[Blocks]:
        """The blocks of every sub-GCN in a draw; round t has draw t."""
        return self.partition.blocks(draw)

    def begin_round(self) -> Round:
        """Return the sub-GCNs of the next round (subGCNs), for a user's own training loop."""
        return self._begin_round(self._make_sub_gcn_for_user)

    def take_round(self, *, keeps_moments: bool) -> Round:
        """Return the sub-GCNs of the next round (subGCNs), for `fit`.

        Args:
            keeps_moments: whether moments stay with Θ after the round.
        """
        return self._begin_round(self._make_sub_gcn, keeps_moments=keeps_moments)

    def _begin_round(self, make: Make, *, keeps_moments: bool = False) -> Round:
        """Return the sub-GCNs of the next round, as modules that `make` returns."""
        self._leave_earlier_theta()
        blocks = self.blocks(self.next_round)
        round_ = Round(
            self.theta,
            self.next_round,
            blocks,
            make,
            self.input_axis,
            keeps_moments=keeps_moments,
            scales=self._mean.scales(len(blocks)) if self._mean else {},
            width_scaling=self.width_scaling,
        )
        self.next_round += 1
        return round_

    @contextmanager
    def _unchanged_if_refused(self) -> Iterator[None]:
        """If the block fails before its first round begins, leave the model as it was."""
        names = (
            "_theta",
            "full_spec",
            "next_round",
            "scaling",
            "_mean",
            "_differs_from_seed",
            "_was_resumed",
        )
        self._before = {name: getattr(self, name) for name in names}
        try:
            yield
        except BaseException:
            if self._before is not None:
                if self._theta is not None and self._theta is not self._before["_theta"]:
                    self._theta.discard()
                vars(self).update(self._before)
            raise
        else:
            self._leave_earlier_theta()
        finally:
            self._before = None

    @contextmanager
    def beginning_loop(self, *, resumes: bool) -> Iterator[Theta]:
        """Give the Θ of a `Loop`. If the block fails, the model is as it was.

        Args:
            resumes: a checkpoint fills Θ, if it does not lie in files.
        """
        with self._unchanged_if_refused():
            if resumes and not self._reopen():
                self._theta = self._make_theta(self.trained_spec, anew=True)
            yield self.theta

    def _leave_earlier_theta(self) -> None:
        """Give up the Θ from before the run, as the run is no longer refused.

        The files of the new one move to their place, and rounds may change its values.
        """
        if self._before is not None:
            earlier = self._before["_theta"]
            self._before = None
            if earlier is not None and earlier is not self._theta:
                earlier.give_up()
        self.theta.replace_older()
        self._differs_from_seed = True

    @contextmanager
    def _run(self) -> Iterator[None]:
        """A run of `fit`, which leaves neither sub-GCNs nor gradients in memory."""
        # The user may still have those of a loop, or may have frozen their parameters.
        self._modules.clear()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            with self._unchanged_if_refused():
                yield
        finally:
            self._modules.clear()

    def rounds(self, count: int) -> Iterator[Round]:
        """Yield `count` rounds for a training loop of your own.

        Each is aggregated when the loop goes on to the next.

            for round in gist.rounds(20):
                for sub in round:            # a plain nn.Module at the blocks' widths
                    ...                      # any optimiser, any number of steps

        A round that is left by `break` or by an error is not aggregated: Θ stays as it was before
        it. A sub-GCN with values that are not finite at the end of its round is a `DivergedError`.
        """
        for _ in range(check_count("count", count, least=0)):
            round_ = self.begin_round()
            yield round_
            round_.aggregate()

    def parameter_groups(
        self, model: nn.Module, lr: float, *, weight_decay: float = 0.0, rule: UpdateRule = "adam"
    ) -> list[dict[str, Any]]:
        """Return the groups of parameters for an optimiser of a training loop of your own.

            for sub in round:
                optimizer = torch.optim.Adam(gist.parameter_groups(sub, lr=0.01))

        Args:
            model: a sub-GCN, or the full model.
            lr, weight_decay, rule: see `WidthScaling.parameter_groups`.

        Returns:
            One group for each learning rate; a single one with `width_scaling="none"`.
        """
        if self.width_scaling is None:
            return [{"params": list(model.parameters()), "lr": lr, "weight_decay": weight_decay}]
        return self.width_scaling.parameter_groups(model, lr, weight_decay=weight_decay, rule=rule)

    def model(self) -> nn.Module:
        """Return the full model in evaluation mode, with a copy of Θ's parameters.

        Large parameters on disk are mapped.
        """
        return self.with_scaling(self.theta.full_model(self.trained_spec))

    def with_scaling(self, model: nn.Module) -> nn.Module:
        """Put the scaling of the features before the full model, if they were scaled."""
        return scaled_model(model, self.scaling)

    def begin_run(
        self, *, averages: bool, resumed: bool = False, init: Mapping[str, Tensor] | None = None
    ) -> None:
        """Make Θ anew for a run, or open the Θ on disk of a resumed one.

        Args:
            averages: the full model is the mean of its sub-GCNs, as for numbers; else their sum.
            resumed: the run goes on from the files of an earlier process, if there are some.
            init: the values with which Θ begins. Defaults to those of the seed.
        """
        was_mean = self._mean is not None
        self._mean = None
        if averages:
            self._mean = Mean.of(self.full_spec, self.partition.split)
        if resumed and self._reopen():
            return
        if self._was_resumed and self.theta.place.is_durable:
            raise InputError(
                f"{self.store.folder} holds a Θ after {self.theta.place.round} rounds, which was "
                "resumed, and fit "
                "trains from scratch: go on by gist.rounds or Loop, choose another folder, or "
                "remove this one"
            )
        has_other_values = self._differs_from_seed or averages or was_mean or init is not None
        if resumed or has_other_values:
            self._theta = self._make_theta(
                self._initial_spec(init), anew=resumed or self._theta is not None
            )
            self._differs_from_seed = averages or init is not None
            self._was_resumed = False
        self.next_round = 0

    def join_parts(self, parts: Callable[[int], Mapping[str, Tensor]], sub_gcns: int) -> None:
        """Make Θ the wide model in which narrow models stand side by side (see `gistgnn.join`).

        It is one round from a Θ of zeros, so no rank holds more of it than in a round.

        Args:
            parts: returns the parameters and buffers of narrow model i, which this rank is dealt.
            sub_gcns: the number of narrow models; their widths are those of the blocks.
        """
        partition = self.partition.split_into(sub_gcns)
        self.full_spec = replace(self.full_spec, merges=sub_gcns > 1)
        self._mean = None
        specs = self.full_spec.tensor_specs()
        zeros = {
            name: torch.zeros((), dtype=spec.dtype).expand(spec.shape)
            for name, spec in specs.items()
        }
        self._theta = self._make_theta(
            replace(self.trained_spec, init=zeros), anew=self._theta is not None
        )
        self._was_resumed = False
        self._leave_earlier_theta()
        readout: Collection[str] = ()
        if sub_gcns > 1:
            readout = readout_of(self.build, self.layout, self.widths)
        round_ = Round(self.theta, 0, partition.blocks(0), self._make_sub_gcn, self.input_axis)
        for i, sub in zip(round_.members, round_, strict=True):
            fill(sub, as_part(self.layout, parts(i), readout, sub_gcns))
        round_.aggregate()
        self.theta.place.keep_best()
        self.next_round = self.theta.place.round

    def _make_theta(self, spec: ModelSpec, *, anew: bool = False) -> Theta:
        """Return a Θ with the values of a model; `anew`: it takes the place of an earlier one."""
        try:
            require_theta_fits(spec, self.store, self.ranks.count)
        except InputError:
            if self._theta is None or self.store.place.holds == "disk":
                raise
            # Both Θ do not fit together. If the new one fits by itself, the earlier one goes now,
            # though the run may still be refused.
            earlier = sum(tensor.nbytes for tensor in self._theta.place.tensors.values())
            require_theta_fits(spec, self.store, self.ranks.count, earlier)
            self._theta = None
            if self._before is not None:
                self._before |= {
                    "_theta": None,
                    "next_round": 0,
                    "_differs_from_seed": False,
                    "_was_resumed": False,
                }
        with torch.inference_mode(False):  # Rounds write into it, in whatever mode it was made.
            return Theta.make(self.store, spec, self.ranks, replace=anew)

    def _make_sub_gcn(self, i: int, blocks: Blocks) -> nn.Module:
        """Return a module of the blocks' widths, which is that of the last round if they fit."""
        widths = self.layout.widths(map(len, blocks))
        if i not in self._modules or self._modules[i][0] != widths:
            self._modules[i] = (
                widths,
                replace(self.full_spec, widths=widths).construct().to(self.device),
            )
        return self._modules[i][1]

    def _make_sub_gcn_for_user(self, i: int, blocks: Blocks) -> nn.Module:
        """Return the same module, which multiplies by our matrices when a user's loop calls it."""
        sub = self._make_sub_gcn(i, blocks)
        multiply_when_called(sub, self._recent)
        return sub
