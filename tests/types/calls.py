"""Ten typical calls, which `mypy --strict` has to accept."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gistgnn import GIST, Callback, Graph, Metric, Phase, Result, Saving, Training, load_run
from gistgnn.baselines import Ensemble
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import load
from gistgnn.nn import GCN
from gistgnn.sampling import ClusterSampling

graph: Graph = load("digits")


def build(widths: tuple[int, ...]) -> nn.Module:
    return GCN(graph.num_features, widths, graph.num_classes)


def error_rate(logits: Tensor, targets: Tensor) -> Tensor:
    return (logits.argmax(dim=1) != targets).float().mean()


class Stopping(Callback):
    def on_evaluation(self, run: Any, entry: dict[str, Any]) -> None:
        run.stop()


gist = GIST(build, widths=(64, 64), sub_gcns=4, device="cpu", store="host", partition="balanced")
result: Result = gist.fit(graph, epochs=40, lr=0.02, schedule="cosine", runner="fused")
accuracy: float = result.test["accuracy"]
gist.fit(
    graph, Training(phases=[Phase(2, 4)], optimizer="sgd", momentum=0.9), saving=Saving(Path("checkpoints"), every=10)
)
gist.fit(graph, epochs=4, loss=nn.CrossEntropyLoss(), class_weights=None, metric=Metric(error_rate, "errors", False))
gist.fit(graph, epochs=4, loss=partial(F.cross_entropy, label_smoothing=0.1), metric="roc_auc")
gist.fit(graph, epochs=4, optimizer=torch.optim.RAdam, schedule=lambda progress: 1 - progress, callbacks=[Stopping()])
gist.fit(graph, epochs=4, schedule=torch.optim.lr_scheduler.CosineAnnealingLR, max_seconds=60, init=result.model)
gist.fit(
    graph, phases=[Phase(4, 8), Phase(1, 2)], sampler=ClusterSampling(clusters=20), evaluation=Evaluation("layers")
)
ensemble = Ensemble(build, (64, 64), 4, seed=1).fit(graph, "each", epochs=4)
again = load_run(result.save("runs/mine"), build)
for round in gist.rounds(2):
    for sub in round:
        F.cross_entropy(sub(graph.x, graph.edge_index), graph.y).backward()
print(again.summary(), gist.model(), result.plot())
