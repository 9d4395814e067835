"""Link prediction: GIST trains the encoder in a loop of your own, beside ordinary training (m = 1).

With --data-root DIR the graph is Cora, from that folder or downloaded to it; otherwise it is a
graph of digits.
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import negative_sampling

from gistgnn import GIST, Loop
from gistgnn.graphs import load
from gistgnn.nn import GCN

parser = argparse.ArgumentParser()
parser.add_argument("--data-root", help="a folder for named data sets")
parser.add_argument("--rounds", type=int, default=20)
args = parser.parse_args()

graph = load("cora", args.data_root) if args.data_root else load("digits")
torch.manual_seed(0)
split = RandomLinkSplit(
    num_val=0.05, num_test=0.1, is_undirected=True, add_negative_train_samples=False
)
train, val, test = split(Data(x=graph.x, edge_index=graph.edge_index, num_nodes=graph.num_nodes))


def link_scores(encoder: nn.Module, pairs: Tensor) -> Tensor:
    """Return the inner products of the embeddings of some pairs of nodes: [pairs]."""
    z = encoder(train.x, train.edge_index)  # held-out edges pass no messages
    scores: Tensor = (z[pairs[0]] * z[pairs[1]]).sum(dim=1)
    return scores


def take_steps(encoder: nn.Module, steps: int) -> None:
    """Train on the edges, and on as many random pairs that are no edges."""
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    edges = train.edge_label_index
    for _ in range(steps):
        non_edges = negative_sampling(train.edge_index, train.num_nodes, edges.shape[1])
        scores = link_scores(encoder, torch.cat([edges, non_edges], dim=1))
        labels = torch.cat([torch.ones(edges.shape[1]), torch.zeros(non_edges.shape[1])])
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(scores, labels).backward()
        optimizer.step()


@torch.no_grad()
def auc(encoder: nn.Module, held_out: Data) -> float:
    """Return the area under the ROC curve of held-out edges and as many pairs without an edge."""
    scores = link_scores(encoder.eval(), held_out.edge_label_index)
    return float(roc_auc_score(held_out.edge_label, scores))


def build(widths: tuple[int, ...]) -> GCN:
    """Return an encoder. Its hidden layer is split; every sub-GCN gives all 64 outputs."""
    return GCN(graph.num_features, widths, 64, dropout=0.2)


for m in (1, 4):
    gist = GIST(build, widths=(256,), sub_gcns=m)
    loop = Loop(gist, args.rounds, lambda encoder: auc(encoder, val))
    for round in loop:
        for sub in round:
            take_steps(sub, 10)
    pairs = test.edge_label_index.shape[1]
    print(f"m = {m}: AUC {auc(loop.best_model(), test):.3f} on {pairs} held-out pairs")
