"""Runs that train narrow models by themselves, of which a run puts its wide model together."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from gistgnn.accounting.costs import Operations
from gistgnn.fit.identity import Fingerprint
from gistgnn.fit.prepare import Setup, Variant, make_sampler
from gistgnn.fit.result import Progress, Result, Scores
from gistgnn.fit.saving import Saving
from gistgnn.fit.scorer import Fixed, Running, Scorer
from gistgnn.global_model import GlobalModel
from gistgnn.graphs.named import GraphSizes
from gistgnn.layout.axes import Widths, named_tensors
from gistgnn.nn.scaling import plain_model
from gistgnn.sampling import ClusterSampling, Sampler
from gistgnn.settings import BASE_WIDTH, Training
from gistgnn.storage.checkpoints import Checkpoint, Checkpoints, Part
from gistgnn.storage.folder_lock import FolderLock
from gistgnn.storage.json_files import plain
from gistgnn.storage.whole_files import writing
from gistgnn.utils.random_streams import generator

Train = Callable[[Setup], Result]
"""Trains as a setup says, by Algorithm 1 (`gistgnn.gist.run_to_end`)."""

_SEEDS = 2**31


class NarrowRuns:
    """Trains narrow models of a run, each by a run of its own on the same graph and the same
    clusters.

    Args:
        setup: of the whole run.
        train: trains one of them.
    """

    def __init__(self, setup: Setup, train: Train) -> None:
        self.setup = setup
        self.sampling = setup.sampling
        self.sampler = make_sampler(
            setup.gist, setup.graph, setup.sampling, setup.arguments.inductive
        )
        self._train = train

    def with_smaller_batches(self, times: int) -> "NarrowRuns | None":
        """Return the same with batches of about 1 / `times` of the nodes; None: they cannot be
        smaller.
        """
        sampler = self.sampler.with_smaller_batches(times)
        if sampler is None or sampler.facts is None:
            return None
        assert isinstance(self.sampling, ClusterSampling)
        other = copy(self)
        other.sampler = sampler
        other.sampling = replace(
            self.sampling,
            clusters=sampler.facts.clusters,
            clusters_per_batch=sampler.facts.clusters_per_batch,
        )
        return other

    def seed_of(self, part: int) -> int:
        """Return the seed of a part; the first one has the run's."""
        seed = self.setup.gist.seed
        return seed if part == 0 else int(generator(seed, "part", part).integers(_SEEDS))

    def batches_of(self, part: int) -> Sampler:
        """Return the sampler of a part, whose batches are its own if they are random."""
        return self.sampler.with_independent_batches().for_sub_gcn(part)

    def model(self, widths: Widths, seed: int) -> GlobalModel:
        """Return a narrow model of the run, without values."""
        wide = self.setup.gist
        scaling = wide.width_scaling
        return GlobalModel(
            wide.build,
            widths[0] if wide.shared else widths,
            1,
            input_axis=wide.input_axis,
            seed=seed,
            device=wide.device,
            width_scaling="none" if scaling is None else "mup",
            base_width=BASE_WIDTH if scaling is None else scaling.base_width,
        )

    def evaluation_in_steps(self, model: GlobalModel) -> float:
        """Return how many steps of a narrow model take about as long as scoring it on the whole
        graph.
        """
        setup = self.setup
        graph = self.setup.graph
        sizes = GraphSizes(graph.num_nodes, graph.num_edges, int(graph.train.sum()))
        operations = Operations(
            model.full_spec,
            model.partition,
            sizes,
            self.sampling,
            setup.arguments.evaluation,
            inductive=setup.arguments.inductive,
        )
        return operations.evaluation_in_steps

    def train(
        self,
        model: GlobalModel,
        training: Training,
        *,
        title: str,
        sampler: Sampler,
        folder: str | None = None,
        init: Mapping[str, Tensor] | None = None,
        max_seconds: float | None = None,
    ) -> Result:
        """Train a narrow model, and return its result.

        Args:
            model: of `model`.
            training: its settings, complete.
            title: which of the narrow models it is, in words, such as "part 2 of 4".
            sampler: its batches.
            folder: the name of the folder of its checkpoints, inside that of the run's. Defaults to
                none: its state is not saved.
            init: the values with which it begins. Defaults to those of its seed.
            max_seconds: as in `GIST.fit`.
        """
        setup = self.setup
        saving = None
        if setup.arguments.saving is not None and folder is not None:
            saving = replace(setup.arguments.saving, path=setup.arguments.saving.path / folder)
        return self._train(
            replace(
                setup,
                gist=model,
                variant=Variant(),
                arguments=replace(setup.arguments, saving=saving, max_seconds=max_seconds),
                settings=training,
                sampling=self.sampling,
                init=None if init is None else dict(init),
                part=title,
                sampler=sampler,
            )
        )


class RecipeState:
    """The state of a run that trains narrow models, beside the checkpoints of their own runs.

    It is a checkpoint of the whole run, whose fingerprint says whose run it is. In its `with` block
    no other process saves in the folder.

    Attributes:
        saved: the state that an earlier process has left, if the run resumes from there; else None.
        tensors: those that this rank has saved with it, by name.
    """

    def __init__(self, setup: Setup, fingerprint: Fingerprint) -> None:
        self._saving: Saving | None = setup.arguments.saving
        self._fingerprint = fingerprint
        self._ranks = setup.gist.ranks
        self._lock: FolderLock | None = None
        self.saved: dict[str, Any] | None = None
        self.tensors: dict[str, Tensor] = {}

    def __enter__(self) -> "RecipeState":
        try:
            newest = self._ranks.lead(self._begin)
            if newest is not None:
                self._ranks.together(lambda: self._read(newest))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.free()
        self._lock = None

    def _begin(self) -> str | None:
        """Lock the folder; return the name of the newest checkpoint in it, or empty it."""
        if self._saving is None:
            return None
        self._lock = FolderLock(self._saving.path, beside=True)
        checkpoints = Checkpoints(self._saving.path)
        if not self._saving.resume:
            checkpoints.remove()
            return None
        newest = checkpoints.newest()
        return None if newest is None else newest.name

    def _read(self, name: str) -> None:
        assert self._saving is not None
        checkpoint = Checkpoint(self._saving.path / name, self._fingerprint)
        self.saved = checkpoint.state_as(dict[str, Any])
        own = f"{self._ranks.rank}/"
        for key in checkpoint.shapes:
            if key.startswith(own):
                self.tensors[key.removeprefix(own)] = checkpoint.tensor(key)

    def save(self, number: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Save the state after some steps of the recipe, in place of an earlier one; all ranks call
        this.

        Args:
            number: of the step, which names the checkpoint.
            state: what JSON can hold.
            tensors: of this rank, by name.
        """
        if self._saving is None:
            return
        checkpoints = Checkpoints(self._saving.path)
        place = checkpoints.place(number)

        def write() -> None:
            own = {
                f"{self._ranks.rank}/{name}": Part.whole(tensor) for name, tensor in tensors.items()
            }
            checkpoints.write(number, own, self._ranks.rank)

        def complete() -> None:
            with writing(checkpoints.folder, "make room and resume the run"):
                place.mkdir(parents=True, exist_ok=True)
            checkpoints.complete(number, plain(dict(state)), self._fingerprint, files)

        files = sum(self._ranks.gather(bool(tensors)))
        self._ranks.together(lambda: write() if tensors else None)
        self._ranks.lead(complete)

    def seconds_of(self, folder: str) -> float:
        """Return the seconds that the run of a narrow model had, of which a checkpoint is left;
        else 0.
        """
        if self._saving is None:
            return 0.0
        state = Checkpoints(self._saving.path / folder).newest_state(Progress)
        return 0.0 if state is None else sum(state.seconds.values())


def score_wide_model(
    setup: Setup, running: Running | Fixed, sampler: Sampler, progress: Progress
) -> Scorer:
    """Score a wide model that was put together; its scores are those of the run, in one more entry
    of the history.

    Args:
        setup: of the whole run.
        running: the wide model.
        sampler: has a batch on which the model is tried.
        progress: of the whole run. It has a history.

    Returns:
        What has scored the model.
    """
    metric = setup.metric
    begun = time.perf_counter()
    prepare = partial(setup.arguments.evaluation.prepare, seed=setup.gist.seed)
    classes = None if setup.any_outputs else setup.graph.num_classes
    with closing(sampler.batches(0, 1)) as batches:
        scorer = Scorer(running, setup.graph, metric, prepare, next(batches), classes)
    table = scorer()
    score = table["validation"][metric.name]
    progress.scores = Scores(
        best_round=progress.rounds,
        best_score=score,
        best=table,
        classes=scorer.classes,
        temperature=scorer.temperature,
        last=table,
    )
    test = table.get("test", {}).get(metric.name)
    before = progress.history[-1]
    # the mean of the parts' scores gives way to that of the whole
    if before["round"] == progress.rounds:
        progress.history.pop()
    whole = {"round": progress.rounds, "validation": score, "test": test}
    progress.history.append({**before, **whole})
    seconds = time.perf_counter() - begun
    progress.seconds["evaluate"] = progress.seconds.get("evaluate", 0.0) + seconds
    return scorer


def values_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a result's model, without the scaling of its
    features.
    """
    return {name: tensor.detach() for name, tensor in named_tensors(plain_model(model)).items()}
