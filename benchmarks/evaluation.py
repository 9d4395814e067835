"""Seconds of evaluation on the whole graph, and layer by layer: in memory, and with a temporary file.

    python benchmarks/evaluation.py [NODES EDGES]

The graph is random, with 128 features and 40 classes; the models have two hidden layers of 256 with layer norm.
"""

import sys
import time
from dataclasses import replace

import torch

from gistgnn.evaluation import Inference
from gistgnn.evaluation.budget import Budget, plan_layers
from gistgnn.evaluation.by_layers import ByLayers
from gistgnn.evaluation.evaluation import WholeGraph
from gistgnn.evaluation.required_nodes import required_nodes
from gistgnn.nn import GAT, GCN, GNN, GraphSAGE
from gistgnn.sampling import Batch

REPEATS = 3
MODELS: dict[str, GNN] = {
    "gcn": GCN(128, (256, 256), 40, norm="layer"),
    "graphsage": GraphSAGE(128, (256, 256), 40, norm="layer"),
    "gat": GAT(128, (64, 64), 40, heads=4, norm="layer"),
}


def seconds(inference: Inference, model: GNN) -> float:
    start = time.perf_counter()
    inference.logits(model)
    return time.perf_counter() - start


@torch.no_grad()
def main(nodes: int, edges: int) -> None:
    torch.manual_seed(0)
    x, edge_index = torch.randn(nodes, 128), torch.randint(nodes, (2, edges))
    batch = Batch(x, edge_index, torch.zeros(nodes), torch.arange(0))
    for name, model in MODELS.items():
        model.eval()
        plan, nodes_of = plan_layers(model, batch, Budget(2**34)), required_nodes(model, batch.adj, None)
        ways: dict[str, Inference] = {"whole": WholeGraph(batch), "in memory": ByLayers(batch, plan, nodes_of)}
        for columns in (256, 64):
            ways[f"file, {columns} columns"] = ByLayers(batch, replace(plan, in_file=True, columns=columns), nodes_of)
        expected = ways["whole"].logits(model)
        for way in ways.values():
            torch.testing.assert_close(way.logits(model), expected, rtol=1e-3, atol=1e-4)
        times = [{how: seconds(way, model) for how, way in ways.items()} for _ in range(REPEATS)]
        best = {how: min(seconds_of[how] for seconds_of in times) for how in ways}
        row = ", ".join(f"{how} {best[how]:.2f} s ({best[how] / best['whole']:.2f})" for how in ways)
        print(f"{name}: {row}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or (200_000, 4_000_000)))
