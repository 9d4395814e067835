"""Typical mistakes, each on a line that ends in the code of mypy's error."""

from torch import nn

from gistgnn import GIST, Phase, Training
from gistgnn.baselines import Ensemble
from gistgnn.graphs import load
from gistgnn.nn import GCN

graph = load("digits")


def build(widths: tuple[int, ...]) -> nn.Module:
    return GCN(graph.num_features, widths, graph.num_classes)


gist = GIST(build, widths=(64, 64), sub_gcns=4)
gist.fit(graph, epoch=10)  # call-arg
gist.fit(graph, epochs="10")  # arg-type
gist.fit(graph, epochs=1, optimizer="adamm")  # arg-type
gist.fit(graph, epochs=1, schedule="linear")  # arg-type
gist.fit(graph, epochs=1, metric="acuracy")  # arg-type
gist.fit(graph, epochs=1, runner="in turn")  # arg-type
gist.fit(graph, epochs=1, loss="crossentropy")  # arg-type
GIST(build, widths=(64, 64), subgcns=4)  # call-arg
GIST(build, widths=(64, 64), store="memroy")  # arg-type
Ensemble(build, (64, 64), 4, sed=1)  # call-arg
Training(epochs=1, precision="fp16")  # arg-type
Phase(4)  # call-arg
print(gist.fit(graph, epochs=1).tests)  # attr-defined
