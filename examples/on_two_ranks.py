"""Train on several processes: torchrun --nproc-per-node 2 examples/on_two_ranks.py.

The result is the same as that of one process, which `python examples/on_two_ranks.py` is.
"""

import argparse

from gistgnn import GIST
from gistgnn.distributed import Ranks, load_on_ranks, started_by_torchrun
from gistgnn.graphs import load
from gistgnn.nn import GraphSAGE

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=80)
args = parser.parse_args()

ranks = Ranks() if started_by_torchrun() else None
# One rank of every machine loads the graph first, as it may have to download it.
graph = load_on_ranks(ranks, lambda: load("digits"))
gist = GIST(
    lambda widths: GraphSAGE(graph.num_features, widths, graph.num_classes),
    widths=(256, 256),
    sub_gcns=4,  # two on each rank
    store="sharded" if ranks else "memory",  # every rank holds half of the parameters
    ranks=ranks,
)
result = gist.fit(graph, epochs=args.epochs, local_steps=5, progress=False)
if ranks is None or ranks.leads:
    print(f"test accuracy: {result.test['accuracy']:.3%}")
