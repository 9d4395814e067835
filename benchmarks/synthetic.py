"""Scores on a synthetic graph: of features alone, and of GraphSAGE with several widths.

    python benchmarks/synthetic.py synthetic:amazon2m@0.02

prints the test accuracy at the best validation score and the seconds of every model. Results: RESULTS.md.
"""

import argparse
import time
from collections.abc import Callable

import torch
from sklearn.linear_model import LogisticRegression

from gistgnn import GIST
from gistgnn.graphs import Graph, load
from gistgnn.nn import GraphSAGE
from gistgnn.sampling import ClusterSampling


def logistic_regression(graph: Graph) -> float:
    x, y = graph.x.numpy(), graph.y.numpy()
    model = LogisticRegression(max_iter=200).fit(x[graph.train], y[graph.train])
    return model.score(x[graph.test], y[graph.test])


def mlp(graph: Graph, width: int = 512, epochs: int = 20) -> float:
    torch.manual_seed(0)
    stack = [torch.nn.Linear(graph.num_features, width), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
    stack += [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
    model = torch.nn.Sequential(*stack, torch.nn.Linear(width, graph.num_classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    nodes, best = graph.train.nonzero().flatten(), (0.0, 0.0)
    for _ in range(epochs):
        model.train()
        for batch in nodes[torch.randperm(len(nodes))].split(1024):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(graph.x[batch]), graph.y[batch]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(graph.x).argmax(1) == graph.y).double()
        best = max(best, (float(right[graph.val].mean()), float(right[graph.test].mean())))
    return best[1]


def sage(graph: Graph, width: int, clusters: int, epochs: int) -> float:
    def build(widths: tuple[int, ...]) -> GraphSAGE:
        return GraphSAGE(graph.num_features, widths, graph.num_classes, norm="layer", dropout=0.2)

    result = GIST(build, widths=(width,), sub_gcns=1).fit(
        graph,
        sampler=ClusterSampling(clusters, clusters_per_batch=10),
        epochs=epochs,
        local_steps=5 * clusters // 10,
        lr=0.005,
        schedule="cosine",
        progress=False,
    )
    assert result.test is not None
    return result.test["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 128, 512, 1024])
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    graph = load(args.dataset)
    print(graph)
    models: dict[str, Callable[[], float]] = {
        "logistic regression": lambda: logistic_regression(graph),
        "MLP, 2 hidden layers of 512": lambda: mlp(graph),
    }
    for width in args.widths:
        models[f"GraphSAGE {width}"] = lambda width=width: sage(graph, width, args.clusters, args.epochs)  # type: ignore[misc]
    for name, score in models.items():
        start = time.perf_counter()
        print(f"{name:30} {100 * score():6.2f} %  {time.perf_counter() - start:6.0f} s", flush=True)


if __name__ == "__main__":
    main()
