"""Calls that `mypy --strict` has to accept, and mistakes.

Each mistake is on a line that ends in the code of mypy's error.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gistgnn import GIST, Metric, Parts, Result, Saving, Training, load_run
from gistgnn.baselines import Ensemble
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import load
from gistgnn.nn import GCN

graph = load("digits")


def build(widths: tuple[int, ...]) -> nn.Module:
    return GCN(graph.num_features, widths, graph.num_classes)


def error_rate(logits: Tensor, targets: Tensor) -> Tensor:
    return (logits.argmax(dim=1) != targets).float().mean()


gist = GIST(build, widths=(64, 64), sub_gcns=4, device="cpu", store="host", partition="balanced")
result: Result = gist.fit(
    graph, epochs=40, lr=0.02, schedule="cosine", runner="fused", saving=Saving(Path("checkpoints"))
)
accuracy: float = result.test["accuracy"]
gist.fit(graph, Training(epochs=8, optimizer="sgd", momentum=0.9), evaluation=Evaluation("layers"))
gist.fit(
    graph,
    epochs=4,
    loss=nn.CrossEntropyLoss(),
    class_weights=None,
    metric=Metric(error_rate, "errors", False),
)
gist.fit(
    graph,
    epochs=4,
    optimizer=torch.optim.RAdam,
    schedule=lambda progress: 1 - progress,
    metric="roc_auc",
)
gist.fit(
    graph,
    epochs=4,
    schedule=torch.optim.lr_scheduler.CosineAnnealingLR,
    max_seconds=60,
    init=result.model,
)
parts = Parts(build, (64, 64), 4, seed=1).fit(graph, epochs=4, max_seconds=60)
within = gist.fit(graph, budget=60.0)
ensemble = Ensemble(build, (64, 64), 4, seed=1).fit(graph, "each", epochs=4)
again = load_run(result.save("runs/mine"), build)
for round in gist.rounds(2):
    for sub in round:
        F.cross_entropy(sub(graph.x, graph.edge_index), graph.y).backward()
print(again.summary(), gist.model(), result.plot())

Training(epoch=10)  # call-arg
Training(epochs="10")  # arg-type
Training(epochs=1, optimizer="adamm")  # arg-type
Training(epochs=1, schedule="linear")  # arg-type
Training(epochs=1, metric="acuracy")  # arg-type
Training(epochs=1, loss="crossentropy")  # arg-type
Training(epochs=1, precision="fp16")  # arg-type
gist.fit(graph, epochs=1, runner="in turn")  # arg-type
GIST(build, widths=(64, 64), subgcns=4)  # call-arg
GIST(build, widths=(64, 64), store="memroy")  # arg-type
print(gist.fit(graph, epochs=1).tests)  # attr-defined
print(result.coverage.never)  # attr-defined
print(result.history[-1]["tests"])  # typeddict-item
