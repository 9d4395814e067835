"""The scores of Θ as it stands, between rounds."""

from collections.abc import Callable
from typing import Any

from gistgnn.evaluate import evaluate
from gistgnn.graphs import Graph
from gistgnn.inference import Evaluation, Inference
from gistgnn.progress import waiting
from gistgnn.sampling import Batch, check_fits, whole_graph
from gistgnn.theta import Running, Theta

ScoreTable = dict[str, dict[str, float]]  # split -> score -> value

_SPLITS = ("validation", "test")


class Scorer:
    """Runs the full model on the whole graph: on rank 0, where there are several.

    Args:
        theta: the parameters.
        running: the full model with them.
        graph: what it is scored on.
        evaluation: how the model is run.
    """

    def __init__(self, theta: Theta, running: Running, graph: Graph, evaluation: Evaluation) -> None:
        self._theta, self._running, self._graph, self._evaluation = theta, running, graph, evaluation
        self._inference: Inference | None = None
        self.description: dict[str, Any] = {}  # of the evaluation, as result.json holds it

    def prepare(self, first: Batch, seed: int, note: Callable[[str], None], *, shown: bool) -> None:
        """Try the model on a batch, and prepare what does not change between evaluations.

        Raises:
            InputError: the model does not fit the graph, or the evaluation not the model; see `Evaluation.prepare`.
        """

        def work() -> dict[str, Any]:
            check_fits(self._running.module, first, self._graph.num_classes)
            with waiting("preparing evaluation", shown=shown):
                batch = whole_graph(self._graph)
                self._inference = self._evaluation.prepare(self._running.module, batch, seed, note)
            return self._inference.describe()

        self.description = self._theta.led(work)

    def __call__(self) -> ScoreTable:
        """The scores on validation and test nodes; every rank gets them."""
        return self._theta.led(self._score)

    def _score(self) -> ScoreTable:
        found = evaluate(self._running.refresh(), self._graph, _SPLITS, evaluation=self._inference)
        return {split: scores.as_dict() for split, scores in found.items()}
