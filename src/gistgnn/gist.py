"""Algorithm 1 of the paper (`train`), and the class `GIST` around it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gistgnn.accounting.footprint import round_costs
from gistgnn.distributed import Alone, World
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph
from gistgnn.layout.axes import Build, Widths, check_widths
from gistgnn.layout.check import infer_layout
from gistgnn.partition import Blocks, Partition
from gistgnn.round import Manner, Round
from gistgnn.runners.registry import make_runner
from gistgnn.runners.runner import Runner
from gistgnn.sampling import Sampling
from gistgnn.schedule import RoundPlan, check_phases, refuse_phases
from gistgnn.session.result import Result
from gistgnn.session.saving import Saving
from gistgnn.session.scorer import Running, Scorer
from gistgnn.session.session import Options, Session
from gistgnn.settings import Phase, Training, choose_training
from gistgnn.theta.mean import Mean
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.store import Store
from gistgnn.theta.theta import Theta

if TYPE_CHECKING:
    from torch_geometric.data import Data


def train(gist: "GIST", session: Session) -> None:
    """Algorithm 1, from the round at which `gist` stands.

    Args:
        gist: Θ and the partition.
        session: the batches (Cluster in the algorithm; the whole graph where c = 1), the runner, and the schedule: T,
            ζ, and how steps are taken.

    Raises:
        DivergedError: a loss or parameter is not finite; Θ is as it was before that round.
    """
    sampler, runner, seconds = session.sampler, session.runner, session.seconds
    while gist.next_round < session.schedule.rounds:
        plan = session.schedule.plan(gist.next_round)
        with seconds("take"):
            round_ = gist.begin_round(plan)  # subGCNs
        with seconds("train"):
            losses = runner(round_, sampler, plan.training, plan.stretch, gist.seed)  # subTrain
        with seconds("merge"):
            loss = round_.aggregate(losses)  # subAgg
        if session.after_round(plan, loss):
            break


class GIST:
    """Trains a graph neural network by graph independent subnetwork training.

    Args:
        build: returns the model at given widths: `build(widths)` with a tuple of one width per axis. If `widths` is a
            single integer: `build(width)`, with one axis that all layers share (PyG's own models, residual nets). The
            model's forward takes (x, edge_index), (x, adj) or (x); see `gistgnn.sampling.forward`.
        widths: the full model's widths, d_l in the paper.
        sub_gcns: m; 1 is the baseline, ordinary training of the full model.
        input_axis: the axis whose width is the number of input features, to partition d_0 as in Table 1; usually None.
        whole: axes that are not partitioned.
        partition: "balanced" or "categorical" (see `Partition`).
        seed: initial parameters, blocks and dropout follow from it.
        device: where the sub-GCNs train.
        store: where Θ is: "memory", "host", "sharded" over the ranks, or a `Store`.
        ranks: the processes that train the model together (see docs/how-to/workers.md); None: this one alone.
        axis_names: the names of the axes in messages about the partition; None: axis 0, axis 1, ...

    Raises:
        InputError: a value is out of range, or the model's layout fails the check (see `infer_layout`).
    """

    method = "gist"
    stores: tuple[str, ...] | None = None  # the stores that the method works with; None: all
    phased = True  # a run may have phases, and blocks that last
    merges = True  # False: weights between blocks are not meant to be trained

    def __init__(
        self,
        build: Build,
        widths: int | Sequence[int],
        sub_gcns: int = 1,
        *,
        input_axis: int | None = None,
        whole: int | Collection[int] = (),
        partition: str = "balanced",
        seed: int = 0,
        device: str | torch.device = "cpu",
        store: str | Store = "memory",
        ranks: World | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        self.build = build
        self.shared = not isinstance(widths, (list, tuple))
        self.widths = check_widths(widths, input_axis)
        self.input_axis = input_axis
        self.seed = seed
        self.device = torch.device(device)
        self.layout = infer_layout(build, self.widths, shared=self.shared, input_axis=input_axis)
        features = self.layout.features(self.widths)
        whole = (whole,) if isinstance(whole, int) else whole
        self.partition = Partition(features, sub_gcns, whole=whole, kind=partition, seed=seed, names=axis_names)
        self.store = store if isinstance(store, Store) else Store(store)
        self.ranks: World = ranks or Alone()
        if self.stores is not None and self.store.kind not in self.stores:
            raise InputError(
                f"the store is {self.store.kind}, but {self.method} holds all of Θ in memory: use {self.stores[0]}"
            )
        self.store.check_ranks(self.ranks, self.workers, "sub_gcns" if self.workers == self.sub_gcns else "workers")
        self.next_round = 0
        self._modules: dict[int, tuple[Widths, nn.Module]] = {}
        self._theta: Theta | None = None
        self._mean: Mean | None = None  # of the run, where Θ is the mean of its sub-GCNs

    @property
    def sub_gcns(self) -> int:
        """m, the number of sub-GCNs."""
        return self.partition.sub_gcns

    @property
    def workers(self) -> int:
        """How many workers train at the same time: m. `training="split"` splits the epochs over them."""
        return self.sub_gcns

    @property
    def theta(self) -> Theta:
        """Θ. It is made with the initial values of the seed when it is first used."""
        if self._theta is None:
            self._theta = self._make_theta(self.spec)
        return self._theta

    @property
    def full_spec(self) -> ModelSpec:
        """The full model."""
        return ModelSpec(self.build, self.layout, self.widths, self.shared, self.seed, self.device)

    @property
    def spec(self) -> ModelSpec:
        """The model that is trained and returned: the full model."""
        return self.full_spec

    def resume(self) -> None:
        """Resume from the Θ that an earlier process has left in the store's folder, after its last round.

        Raises:
            InputError: there is none, it is damaged, or it is of another model.
        """
        self._theta = self.store.place.load().reopen(self.store, self.spec)
        self.next_round = self._theta.round

    def blocks(self, draw: int) -> list[Blocks]:
        """The blocks of every sub-GCN in a draw; in the paper's method, round t has draw t."""
        return self.partition.blocks(draw)

    def partition_of(self, plan: RoundPlan) -> Partition:
        """The partition of a round: that of its m."""
        return self.partition if plan.sub_gcns is None else self.partition.split_into(plan.sub_gcns)

    def begin_round(self, plan: RoundPlan | None = None) -> Round:
        """Return the sub-GCNs of the next round (subGCNs); `Round.aggregate` ends the round.

        Args:
            plan: which blocks it has, and whether copies train; None: blocks that are drawn anew.
        """
        blocks, manner = self.blocks(self.next_round), Manner()
        if plan:
            blocks = self.partition_of(plan).blocks(plan.draw)
            manner = Manner(plan.copies, plan.lasting, plan.fresh, self._scales(len(blocks)))
        round_ = Round(self.theta, self.next_round, blocks, self._sub_gcn, self.input_axis, manner)
        self.next_round += 1
        return round_

    def stand_in(self, plan: RoundPlan) -> nn.Module | None:
        """Return a narrow model that has the output of the full model after a round of copies; None after others.

        All ranks call this; rank 0 gets the model.
        """
        if not plan.copies:
            return None
        blocks = self.partition_of(plan).blocks(plan.draw)
        manner = Manner(scales=self._scales(len(blocks)))
        alone = Round(self.theta, self.next_round, blocks[:1], self._sub_gcn, self.input_axis, manner)
        return next(iter(alone.subs), None)

    def rounds(self, count: int) -> Iterator[Round]:
        """Yield `count` rounds for a training loop of your own. Each is aggregated when the loop goes on to the next.

            for round in gist.rounds(20):
                for sub in round:            # a plain nn.Module at the blocks' widths
                    ...                      # any optimiser, any number of steps

        A round that is left by `break` or by an error is not aggregated: Θ stays as it was before it.

        Raises:
            DivergedError: a sub-GCN ended its round with values that are not finite.
        """
        for _ in range(count):
            round_ = self.begin_round()
            yield round_
            round_.aggregate()

    def model(self) -> nn.Module:
        """Return the full model with a copy of the parameters in Θ, in evaluation mode.

        With Θ on disk, the large parameters are not copied: the model reads them whenever it runs.
        """
        return self.theta.full_model(self.spec)

    def fit(
        self,
        graph: "Graph | Data",
        training: Training | str | None = None,
        *,
        sampler: Sampling | None = None,
        runner: str = "in-turn",
        inductive: bool = False,
        evaluation: Evaluation | None = None,
        progress: bool = True,
        report: Callable[[dict[str, Any]], None] = lambda _: None,
        advance: Callable[[int, int], None] = lambda done, of: None,
        stop: Callable[[], bool] = lambda: False,
        saving: Saving | None = None,
        epochs: int | None = None,
        local_steps: int | None = None,
        optimizer: str | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        schedule: str | None = None,
        optimizer_state: str | None = None,
        precision: str | None = None,
        clip_norm: float | None = None,
        patience: int | None = None,
        evaluate_every: int | None = None,
        phases: Sequence[Phase] | None = None,
        redraw_every: int | None = None,
        cross_weights: str | None = None,
        budget: float | None = None,
    ) -> Result:
        """Train on a graph from scratch, and return the model at its best validation score over the whole graph.

        Settings of training are given as a `Training`, or as keywords: `epochs`, `phases` or `budget` is required
        then, and the others have the defaults of `Training`, which documents them.

        Args:
            graph: a `Graph`, or a PyG `Data` with train_mask, val_mask and test_mask.
            training: all settings; or "split" or "each", the keyword of that name.
            sampler: how batches are made of the graph (`gistgnn.sampling`); None: every step sees the whole graph.
            runner: "in-turn": one sub-GCN after another; "fused": all in one pass over each batch.
            inductive: train on the subgraph of the training nodes; scores are those of the whole graph.
            evaluation: how models are run on the whole graph between rounds; None: `Evaluation()`.
            progress: show a progress bar on standard error.
            report: called with every entry of the history; a resumed run reports the earlier entries first.
            advance: called after every round with the number of rounds done, and the number of all rounds.
            stop: asked after every round; True saves the state (see `saving`) and ends the run.
            saving: where and how often the state is saved, and whether to resume.
            epochs: see `Training`, also for the rest.

        Raises:
            InputError: a setting is out of range, the graph is unusable, or a checkpoint is of another run.
            DivergedError: training diverged; `self.theta` holds the parameters from before that round.
        """
        settings = dict(
            training=training if isinstance(training, str) else None, epochs=epochs, local_steps=local_steps,
            optimizer=optimizer, lr=lr, weight_decay=weight_decay, momentum=momentum, schedule=schedule,
            optimizer_state=optimizer_state, precision=precision, clip_norm=clip_norm, patience=patience,
            evaluate_every=evaluate_every, phases=phases, redraw_every=redraw_every, cross_weights=cross_weights,
            budget=budget,
        )  # fmt: skip
        given = None if isinstance(training, str) else training
        chosen, sampler = self._adapt(self._check_phases(choose_training(given, settings)), sampler)
        how = evaluation or Evaluation()
        options = Options(sampler, runner, inductive, how, progress, report, advance, stop, saving)
        with Session(self, graph, chosen, options) as session:
            if not session.finished:
                train(self, session)
        return session.result()

    def traffic(self, training: Training, theta: int, slices: Sequence[int]) -> dict[str, float]:
        """Bytes that a worker sends: its slices in every round, from Θ and back (see `gistgnn.distributed.costs`).

        Args:
            training: ζ, and whether moments are carried.
            theta: bytes of Θ.
            slices: bytes of every sub-GCN.
        """
        costs = round_costs(training, self.sub_gcns, self.workers, theta=theta, slices=slices)
        return {"bytes_per_round": costs.gist}

    def begin_run(self, training: Training, first: RoundPlan, *, resumed: bool) -> None:
        """Make Θ anew for a run, or open the Θ on disk of a run that is resumed.

        Args:
            training: says whether Θ is the mean of its sub-GCNs, and how weights between blocks begin.
            first: the run's first round.
            resumed: the run is resumed; if Θ is in memory, a checkpoint is read into it later.
        """
        self._mean = None
        if training.averages:
            zero = training.cross_weights == "zero"
            self._mean = Mean.of(self.full_spec, self.partition.split, self.input_axis, zero=zero)
        if resumed and self.store.place.holds == "disk":
            self.resume()
            return
        if self.next_round or self._mean:
            gains = self._mean.gains(self.partition_of(first).sub_gcns) if self._mean else {}
            self._theta = self._make_theta(replace(self.spec, gains=gains), anew=self._theta is not None)
            self.next_round = 0
        if training.cross_weights == "zero" and not resumed:
            self.begin_round(first).begin_as_narrow_models(self.full_spec)
            self.next_round = self.theta.round = 0

    def make_runner(self, name: str) -> Runner:
        """Return the runner of a name."""
        return make_runner(name)

    def make_scorer(self, running: Running, graph: Graph, evaluation: Evaluation) -> Scorer:
        """Return what scores Θ between rounds."""
        return Scorer(self.theta, running, graph, evaluation)

    def _adapt(self, training: Training, sampler: Sampling | None) -> tuple[Training, Sampling | None]:
        """Change the settings of a run to those that the method needs."""
        return training, sampler

    def _check_phases(self, training: Training) -> Training:
        """Refuse phases that do not fit the method, the widths, the partition or the ranks."""
        if not self.phased:
            refuse_phases(training, self.method)
        check_phases(training.phases, self.partition)
        most = max((phase.sub_gcns for phase in training.phases), default=self.workers)
        self.store.check_ranks(self.ranks, most, "sub_gcns")
        return training

    def _scales(self, sub_gcns: int) -> dict[str, float]:
        return self._mean.scales(sub_gcns) if self._mean else {}

    def _make_theta(self, spec: ModelSpec, *, anew: bool = False) -> Theta:
        return self.store.place.load().make(self.store, spec, self.ranks, replace=anew)

    def _sub_gcn(self, i: int, blocks: Blocks) -> nn.Module:
        """Return a module of the blocks' widths: the one of the last round, unless the widths have changed."""
        widths = self.layout.widths([len(block) for block in blocks])
        if i not in self._modules or self._modules[i][0] != widths:
            self._modules[i] = widths, replace(self.full_spec, widths=widths).from_seed().to(self.device)
        return self._modules[i][1]
