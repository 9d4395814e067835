"""Train on a large graph by clusters: a step sees a few clusters of the graph, and not all of it.

The default is 2 % of a graph of Reddit's shape, drawn at random. With the data and a day of time:
python examples/large_graph.py --dataset reddit --clusters 1500 --epochs 80
"""

import argparse

from gistgnn import GIST
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import load
from gistgnn.nn import GraphSAGE
from gistgnn.sampling import ClusterSampling

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="synthetic:reddit@0.02")
parser.add_argument("--clusters", type=int, default=60)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

graph = load(args.dataset)
print(graph)


def build(widths: tuple[int, ...]) -> GraphSAGE:
    """Return the model at some widths, one for each hidden layer."""
    return GraphSAGE(graph.num_features, widths, graph.num_classes, dropout=0.2, norm="layer")


gist = GIST(build, widths=(512, 512), sub_gcns=4)
result = gist.fit(
    graph,
    sampler=ClusterSampling(args.clusters, clusters_per_batch=10),
    inductive=True,  # train on the training nodes and the edges between them, as the paper does
    evaluation=Evaluation("layers"),  # score the whole graph layer by layer, with little memory
    epochs=args.epochs,
    local_steps=12,
    evaluate_every=2,
    patience=5,
    progress=False,
)
print(result.summary())
