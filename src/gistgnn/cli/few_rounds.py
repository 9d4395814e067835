"""A warning about runs that would leave much of Θ untrained."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gistgnn.planning import GraphSizes
    from gistgnn.runs.config import RunConfig

log = logging.getLogger(__name__)


def warn_of_few_rounds(config: "RunConfig", sizes: "GraphSizes") -> None:
    """Warn if a weight between two split layers trains in less than one round on average: it is in 1/m of the rounds.

    Args:
        config: the run.
        sizes: of its graph.
    """
    from gistgnn.sampling import expected_batch

    training, m = config.training, config.sub_gcns
    seen = sizes.training() if config.inductive else sizes
    expected = expected_batch(config.sampler, seen, config.model.layers)
    steps = training.steps(expected.steps, m)
    rounds = steps / training.local_steps
    between = any(dim + 1 in config.partitioned_dims for dim in config.partitioned_dims)
    if config.method == "gist" and m > 1 and between and rounds < m:
        log.warning(
            f"m = {m}: each sub-GCN takes {steps} steps, {training.local_steps} in a round; a weight "
            f"between two split layers is trained in {rounds / m:.2g} rounds on average; raise --epochs or lower "
            "--local-steps"
        )
