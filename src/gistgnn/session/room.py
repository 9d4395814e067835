"""Refuses a run of which a step certainly does not fit, before anything is prepared."""

from gistgnn.accounting.room import require_step_fits as require
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.session.options import Options
from gistgnn.settings import Training


def require_step_fits(trainer: GlobalModel, graph: Graph, training: Training, options: Options) -> None:
    """Refuse a run whose widest sub-GCN takes more memory in one step than there is; a budget chooses what fits.

    Raises:
        InputError: it takes more.
    """
    if training.budget:
        return
    fewest = min((phase.sub_gcns for phase in training.phases), default=trainer.partition.sub_gcns)
    nodes = 0  # a sampler's batch may be of any size
    if options.sampler is None:
        nodes = int(graph.train.sum()) if options.inductive else graph.num_nodes
    require(trainer._full_spec, trainer.partition.split_into(fewest), trainer.input_axis, nodes)
