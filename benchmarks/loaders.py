"""Scores by PyG's loaders beside those by our samplers of the same kind.

Loaders whose packages are not installed are named and left out.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric import loader as pyg
from torch_geometric.data import Data

from gistgnn import GIST, Graph
from gistgnn.graphs import load
from gistgnn.graphs.clustering import cluster
from gistgnn.nn import GraphSAGE
from gistgnn.sampling import ClusterSampling, NeighborSampling, SaintNodeSampling, Sampling

Make = Callable[[Data, int], Any]  # a loader, given the graph and the seed


class ClusterData(pyg.ClusterData):
    """PyG's clusters, cut by our METIS, as PyG needs pyg-lib or torch-sparse for it."""

    def __init__(self, data: Data, parts: int) -> None:
        self.full_data = data
        super().__init__(data, parts, log=False)

    def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
        graph = Graph.from_pyg(self.full_data)
        return cluster(graph.edges, num_nodes, self.num_parts, "metis", 0).assignment


def kinds(batch_size: int, clusters: int, per_batch: int) -> dict[str, tuple[Sampling, Make]]:
    """Return our samplers, and the functions that make PyG's loaders of the same kind, by name."""
    parts = clusters // per_batch

    def cluster_loader(data: Data, seed: int) -> Any:
        pieces = ClusterData(data, clusters)
        return pyg.ClusterLoader(pieces, batch_size=per_batch, shuffle=True)

    def list_of_batches(data: Data, seed: int) -> list[Data]:
        order = torch.randperm(clusters, generator=torch.Generator().manual_seed(seed))
        pieces = ClusterData(data, clusters)
        return list(pyg.ClusterLoader(pieces, batch_size=per_batch, sampler=order.tolist()))

    def random_nodes(data: Data, seed: int) -> Any:
        return pyg.RandomNodeLoader(data, num_parts=parts, shuffle=True)

    def neighbors(data: Data, seed: int) -> Any:
        options = {"input_nodes": data.train_mask, "batch_size": batch_size, "shuffle": True}
        return pyg.NeighborLoader(data, [10, 10, 10], **options)

    def saint(data: Data, seed: int) -> Any:
        nodes = data.num_nodes // parts
        return pyg.GraphSAINTNodeSampler(
            data, batch_size=nodes, num_steps=parts, sample_coverage=20, log=False
        )

    by_metis = ClusterSampling(clusters, per_batch, precompute=False)
    at_random = ClusterSampling(clusters, per_batch, method="random", precompute=False)
    return {
        "clusters: ClusterLoader": (by_metis, cluster_loader),
        "clusters: a list of Data": (by_metis, list_of_batches),
        "random groups of nodes: RandomNodeLoader": (at_random, random_nodes),
        "neighbours: NeighborLoader": (NeighborSampling(10, batch_size), neighbors),
        "GraphSAINT's nodes: GraphSAINTNodeSampler": (SaintNodeSampling(1), saint),
    }


def score(graph: Data, sampler: Any, m: int, seed: int, epochs: int, width: int) -> float:
    """Train one model; return its test accuracy in percent."""
    features = graph.num_features
    classes = int(graph.y.max()) + 1
    gist = GIST(lambda widths: GraphSAGE(features, widths, classes), (width, width), m, seed=seed)
    result = gist.fit(graph, sampler=sampler, epochs=epochs, evaluate_every=5, progress=False)
    return 100 * result.test["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--epochs", type=int, default=40, help="for each sub-GCN")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sub-gcns", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--clusters", type=int, default=60)
    parser.add_argument("--clusters-per-batch", type=int, default=10)
    args = parser.parse_args()
    graph = load(args.dataset, args.data_root)
    masks = {"train_mask": graph.train, "val_mask": graph.val, "test_mask": graph.test}
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **masks)
    print(f"| {args.dataset}, test accuracy in % | m | our sampler | PyG's loader |")
    print("| --- | --- | --- | --- |")
    pairs = kinds(args.batch_size, args.clusters, args.clusters_per_batch)
    for name, (ours, make) in pairs.items():
        if isinstance(ours, SaintNodeSampling):
            ours = SaintNodeSampling(data.num_nodes * args.clusters_per_batch // args.clusters)
        try:
            next(iter(make(data, 0)))
        except ImportError as error:
            print(f"| {name} | | | {error} |")
            continue
        for m in args.sub_gcns:
            cells = []
            for sampler in (lambda seed: ours, lambda seed: make(data, seed)):  # noqa: B023
                scores = [
                    score(data, sampler(seed), m, seed, args.epochs, args.width)
                    for seed in range(args.seeds)
                ]
                cells.append(f"{statistics.fmean(scores):.2f} ± {statistics.stdev(scores):.2f}")
            print(f"| {name} | {m} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
