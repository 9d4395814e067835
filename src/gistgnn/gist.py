"""Algorithm 1 of the paper, and the public class around it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gistgnn.accounting.footprint import costs_of
from gistgnn.accounting.phases import Phases
from gistgnn.distributed import Ranks
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph
from gistgnn.layout.axes import Build, Widths, check_widths
from gistgnn.layout.check import infer_layout
from gistgnn.partition import Blocks, Partition
from gistgnn.round import Round
from gistgnn.runners import Runner, Schedule, Stretch, make_runner
from gistgnn.sampling import Sampler, Sampling
from gistgnn.session.result import Result
from gistgnn.session.saving import Saving
from gistgnn.session.scorer import Scorer
from gistgnn.session.session import Fit, Options
from gistgnn.settings import Training, make_training
from gistgnn.theta import (
    Model,
    Running,
    Slices,
    Store,
    Theta,
    build_from_seed,
    check_ranks,
    full_model,
    make_theta,
    open_theta,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data


class GIST:
    """Trains a graph neural network by graph independent subnetwork training.

    Args:
        build: returns the model at given widths: `build(widths)` with a tuple of one width per axis or, where `widths`
            is a single integer, `build(width)` with one axis shared by all layers (PyG's own models, residual nets).
            Its forward takes (x, edge_index), (x, adj) or (x); see `gistgnn.sampling.forward`.
        widths: the full model's widths, d_l in the paper.
        sub_gcns: m; 1 is the baseline, ordinary training of the full model.
        input_axis: which of the widths is the number of input features, to partition d_0 as in Table 1; usually None.
        whole: axes that are not partitioned.
        partition: "balanced" or "categorical" (see `Partition`).
        seed: initial parameters, blocks and dropout follow from it.
        device: where the sub-GCNs train.
        store: where Θ is: "memory", "host", "sharded" over the ranks, or a `Store`.
        ranks: the processes that train the model together (see docs/workers.md); None: this one alone.
        axis_names: what messages about the partition call the axes; None: axis 0, axis 1, ...

    Raises:
        InputError: a value out of range, or a model whose layout fails the check (see `infer_layout`).
    """

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
        ranks: Ranks | None = None,
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
        self.slices = Slices(self.layout, self.widths)
        self.store, self.ranks = store if isinstance(store, Store) else Store(store), ranks
        self._check_ranks()
        self.next_round = 0
        self._pool: dict[int, tuple[Widths, nn.Module]] = {}
        self._theta: Theta | None = None

    method = "gist"

    @property
    def sub_gcns(self) -> int:
        """m, the number of sub-GCNs."""
        return self.partition.sub_gcns

    @property
    def workers(self) -> int:
        """How many train at the same time, over which `training="split"` splits the epochs: m."""
        return self.sub_gcns

    @property
    def theta(self) -> Theta:
        """Θ, made with the initial values of the seed when it is first asked for."""
        if self._theta is None:
            self._theta = self._make_theta()
        return self._theta

    def resume(self) -> None:
        """Go on from the Θ that an earlier process left in the store's folder, with the round after its last.

        Raises:
            InputError: there is none, it is damaged, or of another model.
        """
        self._theta = open_theta(self.store, self.what())
        self.next_round = self._theta.round

    def blocks(self, number: int) -> list[Blocks]:
        """The blocks of round t, of every sub-GCN."""
        return self.partition.blocks(number)

    def begin_round(self) -> Round:
        """Draw new blocks and return their sub-GCNs (subGCNs); `Round.aggregate` ends the round."""
        blocks = self.blocks(self.next_round)
        round_ = Round(self.theta, self.next_round, blocks, self._sub_gcn, self.input_axis)
        self.next_round += 1
        return round_

    def rounds(self, count: int) -> Iterator[Round]:
        """Yield `count` rounds for a training loop of one's own; going on to the next round aggregates the one before.

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
        """Return the full model with the parameters of Θ as they are, in evaluation mode.

        They are copies; where Θ is in files, the large ones are read from there whenever the model runs.
        """
        return full_model(self.theta, self.what())

    def fit(
        self,
        graph: "Graph | Data",
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
        **settings: Any,
    ) -> Result:
        """Train on a graph from scratch, and return the model at its best validation score over the whole graph.

        Args:
            graph: a `Graph`, or a PyG `Data` with train_mask, val_mask and test_mask.
            sampler: how batches are made of the graph (`gistgnn.sampling`); None: every step sees the whole graph.
            runner: "in-turn": one sub-GCN after another; "fused": all in one pass over each batch (see `Fused`).
            inductive: train on the subgraph of the training nodes alone; scores are those of the whole graph.
            evaluation: how models are run on the whole graph between rounds; None: `Evaluation()`.
            progress: show a progress bar, and what is worth knowing of the clusters, on standard error.
            report: called with every entry of the history; of a run that goes on, with the earlier ones first.
            advance: called after every round with how many are done, and how many there are to be.
            stop: asked after every round; True saves the state (if `saving` says where) and ends the run.
            saving: where and how often the state is saved, and whether to go on from it.
            settings: see `Training`; `epochs` is required.

        Raises:
            InputError: a setting out of range, an unusable graph, or a checkpoint of another run.
            DivergedError: training diverged; `self.theta` holds the parameters from before that round.
        """
        options = Options(
            sampler, runner, inductive, evaluation or Evaluation(), progress, report, advance, stop, saving
        )
        return Fit(self, graph, options, make_training(settings)).run(train)

    def traffic(self, training: Training) -> dict[str, float]:
        """Bytes that a worker sends: its slices in every round, there and back (see `gistgnn.distributed.costs`)."""
        return {"bytes_per_round": costs_of(self, training).gist}

    def begin(self, *, going_on: bool) -> None:
        """Stand at the beginning of a run, or where an earlier process left Θ."""
        if going_on and self.store.kind == "mapped":
            self.resume()
        elif self.next_round:
            self._theta = self._make_theta(replace=True)
            self.next_round = 0

    def runner(self, name: str) -> Runner:
        """The runner of a name; see `make_runner`."""
        return make_runner(name)

    def scorer(self, running: Running, graph: Graph, evaluation: Evaluation) -> Scorer:
        """What scores Θ between rounds."""
        return Scorer(self.theta, running, graph, evaluation)

    def what(self) -> Model:
        """The model whose parameters Θ are."""
        return Model(self.build, self.layout, self.widths, self.shared, self.seed, self.device, self.ranks)

    def _check_ranks(self) -> None:
        check_ranks(self.store, self.ranks, self.sub_gcns)

    def _make_theta(self, *, replace: bool = False) -> Theta:
        return make_theta(self.store, self.what(), replace=replace)

    def _sub_gcn(self, i: int, blocks: Blocks) -> nn.Module:
        """Return a module of the blocks' widths, the one of the last round where these have not changed."""
        widths = self.layout.widths([len(block) for block in blocks])
        if i not in self._pool or self._pool[i][0] != widths:
            self._pool[i] = widths, self._construct(widths)
        return self._pool[i][1]

    def _construct(self, widths: Widths) -> nn.Module:
        return build_from_seed(self.build, widths, self.seed, shared=self.shared).to(self.device)


def train(
    gist: GIST,
    sampler: Sampler,
    training: Training,
    runner: Runner,
    after_round: Callable[[Stretch, float], bool],
    phases: Phases,
) -> None:
    """Algorithm 1, from the round that `gist` stands at.

    Args:
        gist: Θ and the partition.
        sampler: the batches (Cluster in the algorithm; the whole graph where c = 1).
        training: ζ, T by way of the epochs, and how a step is taken.
        runner: trains the sub-GCNs of a round.
        after_round: called with the steps taken and the mean loss; returns True to stop.
        phases: counts the seconds of each part.

    Raises:
        DivergedError: a loss or parameter is not finite; Θ is as it was before that round.
    """
    plan = Schedule(training, sampler.steps_per_epoch, gist.workers)
    while gist.next_round < plan.rounds:
        stretch = plan.stretch(gist.next_round)
        with phases("take"):
            round_ = gist.begin_round()  # subGCNs
        with phases("train"):
            losses = runner(round_, sampler, training, stretch, gist.seed)  # subTrain
        with phases("merge"):
            loss = round_.aggregate(losses)  # subAgg
        if after_round(stretch, loss):
            break
