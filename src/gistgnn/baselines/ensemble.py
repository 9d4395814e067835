"""An ensemble of sub-GCNs that are never merged (appendix B)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from gistgnn.distributed import Alone, Ranks
from gistgnn.errors import InputError
from gistgnn.evaluation.scores import Predictions, evaluation_mode
from gistgnn.fit.prepare import Variant
from gistgnn.fit.scorer import Running, Scored, Scorer
from gistgnn.gist import GIST
from gistgnn.global_model import TrainerOptions
from gistgnn.layout.axes import Build, Layout
from gistgnn.nn.gnn import EnsembleModel, members_of
from gistgnn.theta.exchange import Exchange
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import ModelSpec, TensorSpec
from gistgnn.theta.slices import MOMENTS, THETA, Slices, Trained, name_of, value_of
from gistgnn.theta.theta import Theta


# `layout` and `widths` are the full model's. Sub-GCN i trains on rank i mod W; rank 0 has all, to score and save.
class Members(InMemory):
    """The tensors of m sub-GCNs, their moments and bests, named members.I.NAME as in an `EnsembleModel`."""

    def __init__(self, layout: Layout, widths: Sequence[int], members: Sequence[Mapping[str, Tensor]]) -> None:
        tensors = {_named(i, name): tensor for i, own in enumerate(members) for name, tensor in own.items()}
        specs = {name: TensorSpec(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        super().__init__(Slices(layout, widths, specs), tensors)
        self.names = list(members[0])

    def slice_of(self, i: int) -> dict[str, Tensor]:
        return {name: self.tensors[_named(i, name)] for name in self.names}

    def moments_of(self, i: int) -> dict[str, Tensor]:
        own = f"{MOMENTS}{_named(i, '')}"
        return {
            f"{MOMENTS}{key.removeprefix(own)}": value.clone()
            for key, value in self.moments.items()
            if key.startswith(own)
        }

    def keep_best(self) -> None:
        """Do nothing: every member has its own best round; see `keep_best_of`."""

    def keep_best_of(self, i: int) -> None:
        self.best |= {_named(i, name): tensor.clone() for name, tensor in self.slice_of(i).items()}

    def _writer(self, trained: Mapping[int, Trained]) -> Callable[[], None]:
        moments, values = dict(self.moments), dict[str, Tensor]()
        for i, sub in trained.items():
            for key, value in sub.items():
                if key.startswith(THETA):
                    values[_named(i, name_of(key))] = value
                else:
                    moments[f"{MOMENTS}{_named(i, key.removeprefix(MOMENTS))}"] = value.clone()

        def write() -> None:
            for name, value in values.items():
                self.tensors[name].copy_(value)
            self.moments = moments

        return write


class SendToLeader(Exchange):
    """Sends every trained member to rank 0."""

    ranks: Ranks

    def give(self, place: InMemory, trained: dict[int, Trained]) -> dict[int, Trained]:
        """Return this rank's members; rank 0 returns all."""
        found, zero = dict(trained), torch.tensor(0.0)
        for i in range(len(place.slices.blocks)):
            member = place.slice_of(i)
            keys, sender = [*(f"{THETA}{name}" for name in member), *self.keys, *self.counters], i % self.ranks.count
            if sender and self.ranks.rank == sender:
                for key in keys:
                    value = trained[i].get(key, zero) if key in self.counters else value_of(trained[i], key)
                    self.ranks.send(value.cpu().contiguous())
            elif sender and self.ranks.leads:
                forms = {key: zero if key in self.counters else member[name_of(key)] for key in keys}
                found[i] = {key: torch.empty_like(form, device="cpu") for key, form in forms.items()}
                for tensor in found[i].values():
                    self.ranks.receive(tensor, sender)
        return found


def _named(i: int, name: str) -> str:
    return f"members.{i}.{name}"


class EnsembleScorer(Scorer):
    """Scores every member and keeps each at its best; then scores the mean of the best members' logits."""

    latest_counts = True

    def __init__(self, running: Running, *given: Any) -> None:
        super().__init__(running, *given)
        assert isinstance(running.theta.place, Members)
        self._members = running.theta.place
        self._best: dict[
            int, tuple[float | None, Tensor]
        ] = {}  # validation score and logits of each member at its best

    def _score(self, stand_in: nn.Module | None) -> Scored:
        if self._members.best and not self._best:  # a resumed run
            for i, member in enumerate(members_of(self._running.best())):
                logits = self._logits(member)
                self._best[i] = self._validation(logits), logits
        seconds = 0.0
        for i, member in enumerate(members_of(self._running.module)):
            begun = time.perf_counter()
            logits = self._logits(member)
            seconds += time.perf_counter() - begun
            score = self._validation(logits)
            best = self._best[i][0] if i in self._best else None
            if best is None or self.metric.better(score, best):  # without a score the latest counts
                self._best[i] = score, logits
                self._members.keep_best_of(i)
        self.passes.append(seconds)
        first, *others = (logits for _, logits in self._best.values())
        return self._table(self._predictions(sum(others, start=first) / len(self._best), self._fitting))

    def _logits(self, model: nn.Module) -> Tensor:
        """The model's output for every node, [N, C]; waits for the GPU."""
        with evaluation_mode(model):
            logits = self._inference.logits(model)
        if logits.is_cuda:
            torch.cuda.synchronize(logits.device)
        return logits

    def _validation(self, logits: Tensor) -> float | None:
        return self._table(self._predictions(logits))[0]["validation"][self.metric.name]

    def _predictions(self, logits: Tensor, fitting: Tensor | None = None) -> Predictions:
        return Predictions.of([(slice(0, len(logits)), logits)], self._graph, self.metric, fitting)


class Ensemble(GIST):
    """Trains the m sub-GCNs of the first round's blocks to the end, each by itself, and averages their logits.

    It is GIST with ζ → ∞: the sub-GCNs begin as slices of one Θ, and are never merged. Each keeps its moments, and
    enters the ensemble as it was at its best validation score. `local_steps` only sets how often they are scored. The
    result's model is an `EnsembleModel` (with ranks, on rank 0 only); its scores are the ensemble's at the end.

    Args:
        build, widths: see `GIST`.
        sub_gcns: m.
        options: the other arguments of `GIST`, but for `input_axis`; Θ is in memory.
    """

    method = "ensemble"
    _stores = ("memory",)
    _variant = Variant(
        phased=False,
        merges=False,
        settings={"optimizer_state": "carry", "redraw_every": 0},  # every member keeps its block and its moments
        scorer=EnsembleScorer,
        traffic=lambda _: {},  # the members send nothing
    )

    def __init__(
        self, build: Build, widths: int | Sequence[int], sub_gcns: int, **options: Unpack[TrainerOptions]
    ) -> None:
        if options.get("input_axis") is not None:
            raise InputError("the input features are partitioned: an ensemble's members see all of them")
        super().__init__(build, widths, sub_gcns, **options)

    @property
    def _spec(self) -> ModelSpec:
        return replace(self._full_spec, build=self._build_members, merges=False, width_scaling=None)

    def _build_members(self, _: Any) -> nn.Module:
        widths = [self.layout.widths(map(len, own)) for own in self.blocks(0)]
        return EnsembleModel([self.build(each[0] if self.shared else each) for each in widths])

    def _make_theta(self, spec: ModelSpec, *, anew: bool = False) -> Theta:
        full = Theta.make(self.store, self._full_spec, Alone())
        members = [{name: t.clone() for name, t in full.slice_of(i).items()} for i in full.begin(0, self.blocks(0))]
        kind = SendToLeader if isinstance(self.ranks, Ranks) else Exchange
        return Theta(Members(self.layout, self.widths, members), kind(self.ranks))
