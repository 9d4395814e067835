"""Runs of narrow models, of which a budget and `Parts` put their wide model together."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from gistgnn.fit.identity import Fingerprint
from gistgnn.fit.prepare import Setup, make_sampler
from gistgnn.fit.result import Progress, Result, Scores
from gistgnn.fit.saving import Saving
from gistgnn.fit.scorer import Scorer
from gistgnn.global_model import GlobalModel
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
    """Trains narrow models of a run, each by a run of its own.

    They have the same graph and the same clusters.

    Args:
        setup: of the whole run.
        train: trains one of them.

    Attributes:
        sampler: has their batches.
        seed: of their initial values and dropout.
    """

    def __init__(self, setup: Setup, train: Train) -> None:
        self.setup = setup
        self.sampling = setup.sampling
        self.sampler = make_sampler(
            setup.gist, setup.graph, setup.sampling, setup.arguments.inductive
        )
        self.seed = setup.gist.seed
        self._train = train

    def with_smaller_batches(self, times: int) -> "NarrowRuns | None":
        """Return the same with batches of about 1 / `times` of the nodes.

        Returns None if they cannot be smaller.
        """
        sampler = self.sampler.with_smaller_batches(times)
        if sampler is None or sampler.facts is None:
            return None
        assert isinstance(self.sampling, ClusterSampling)
        runs = copy(self)
        runs.sampler = sampler
        runs.sampling = replace(
            self.sampling,
            clusters=sampler.facts.clusters,
            clusters_per_batch=sampler.facts.clusters_per_batch,
        )
        return runs

    def of_part(self, part: int) -> "NarrowRuns":
        """Return the same for one of several parts, which has a seed and random batches of its own.

        The first part has the seed of the run.
        """
        runs = copy(self)
        runs.sampler = self.sampler.with_independent_batches().for_sub_gcn(part)
        if part > 0:
            runs.seed = int(generator(self.seed, "part", part).integers(_SEEDS))
        return runs

    def model(self, widths: Widths) -> GlobalModel:
        """Return a narrow model of the run, without values."""
        wide = self.setup.gist
        scaling = wide.width_scaling
        return GlobalModel(
            wide.build,
            widths[0] if wide.shared else widths,
            1,
            input_axis=wide.input_axis,
            seed=self.seed,
            device=wide.device,
            width_scaling="none" if scaling is None else "mup",
            base_width=BASE_WIDTH if scaling is None else scaling.base_width,
        )

    def evaluation_in_steps(self, model: GlobalModel) -> float:
        """Return how many steps of a narrow model take as long as scoring it on the whole graph."""
        setup = replace(self.setup, gist=model, sampling=self.sampling)
        return setup.count_operations().evaluation_in_steps

    def train(
        self,
        model: GlobalModel,
        training: Training,
        *,
        title: str,
        folder: str | None = None,
        init: Mapping[str, Tensor] | None = None,
        max_seconds: float | None = None,
    ) -> Result:
        """Train a narrow model, and return its result.

        Args:
            model: as `model` returns it.
            training: its settings, complete.
            title: which of the narrow models it is, in words, such as "part 2 of 4".
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
                arguments=replace(setup.arguments, saving=saving, max_seconds=max_seconds),
                settings=training,
                sampling=self.sampling,
                init=None if init is None else dict(init),
                part=title,
                sampler=self.sampler,
            )
        )


class SavedState:
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

    def __enter__(self) -> "SavedState":
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
        """Read the state and this rank's tensors out of a checkpoint of the folder."""
        assert self._saving is not None
        checkpoint = Checkpoint(self._saving.path / name, self._fingerprint)
        self.saved = checkpoint.state_as(dict[str, Any])
        prefix = f"{self._ranks.rank}/"
        for key in checkpoint.shapes:
            if key.startswith(prefix):
                self.tensors[key.removeprefix(prefix)] = checkpoint.tensor(key)

    def save(self, number: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Save the state in place of an earlier one; all ranks call this.

        Args:
            number: how many times it has been saved, which names the checkpoint.
            state: what JSON can hold.
            tensors: of this rank, by name.
        """
        if self._saving is None:
            return
        checkpoints = Checkpoints(self._saving.path)
        rank = self._ranks.rank
        files = sum(self._ranks.gather(bool(tensors)))  # One of every rank that has tensors.

        def write() -> None:
            parts = {f"{rank}/{name}": Part.whole(tensor) for name, tensor in tensors.items()}
            checkpoints.write(number, parts, rank)

        def complete() -> None:
            with writing(checkpoints.folder, "make room and resume the run"):
                checkpoints.folder_of(number).mkdir(parents=True, exist_ok=True)
            checkpoints.complete(number, plain(dict(state)), self._fingerprint, files)

        self._ranks.together(lambda: write() if tensors else None)
        self._ranks.lead(complete)

    def seconds_of(self, folder: str) -> float:
        """Return the seconds that a narrow run has taken, as its checkpoint says; 0 without one."""
        if self._saving is None:
            return 0.0
        state = Checkpoints(self._saving.path / folder).newest_state(Progress)
        return 0.0 if state is None else sum(state.seconds.values())


def score_wide_model(setup: Setup, sampler: Sampler, progress: Progress) -> Scorer:
    """Score the wide model that was put together in Θ, and add its scores to the history.

    Its scores are those of the run.

    Args:
        setup: of the whole run.
        sampler: has a batch on which the model is tried.
        progress: of the whole run. It has a history.

    Returns:
        What has scored the model.
    """
    metric = setup.metric
    begun = time.perf_counter()
    with closing(sampler.batches(0, 1)) as batches:
        scorer = Scorer(setup, next(batches))
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
    # The scores of the wide model take the place of the mean of the parts' scores.
    if before["round"] == progress.rounds:
        progress.history.pop()
    scores = {"round": progress.rounds, "validation": score, "test": test}
    progress.history.append({**before, **scores})
    seconds = time.perf_counter() - begun
    progress.seconds["evaluate"] = progress.seconds.get("evaluate", 0.0) + seconds
    return scorer


def trained_values(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a result's model, without the scaling of features."""
    return {name: tensor.detach() for name, tensor in named_tensors(plain_model(model)).items()}
