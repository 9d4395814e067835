"""Denormal numbers are zero wherever a run computes, and as before when it is over."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, Callback, Graph
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import Adjacency
from gistgnn.sampling import Batch, ClusterSampling
from gistgnn.sampling.clusters import ClusterBatches
from tests.helpers.denormals import denormal_products, having_denormals, two_threads_of_torch
from tests.helpers.fitting import fit, gcn, same, theta
from tests.helpers.models import tiny_graph


class Products(Callback):
    """Keeps what becomes of denormal products, by the moment of the run."""

    def __init__(self) -> None:
        self.seen: dict[str, set[str]] = {}

    def look(self, moment: str) -> None:
        self.seen.setdefault(moment, set()).update(denormal_products())

    def on_fit_begin(self, run: Any) -> None:
        self.look("begin")

    def on_round_end(self, run: Any, loss: float) -> None:
        self.look("round")

    def on_fit_end(self, run: Any, result: Any) -> None:
        self.look("end")

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        self.look("step")
        return nn.functional.cross_entropy(logits, targets)

    def metric(self, logits: Tensor, targets: Tensor) -> float:
        self.look("evaluation")
        return (logits.argmax(dim=1) == targets).float().mean().item()


class Raises(Callback):
    """Ends a run by an error."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def on_round_end(self, run: Any, loss: float) -> None:
        raise self._error


@pytest.mark.parametrize("has_denormals", [True, False])
def test_denormals_are_zero_at_every_moment_of_a_run(
    has_denormals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = Products()
    make = ClusterBatches.make

    def look_and_make(batches: ClusterBatches, drawn: Any) -> Batch:
        products.look("batch")  # A thread of its own makes batches.
        return make(batches, drawn)

    monkeypatch.setattr(ClusterBatches, "make", look_and_make)
    options: dict[str, Any] = {"sampler": ClusterSampling(4, 2), "callbacks": [products]}
    options |= {"loss": products.loss, "metric": products.metric}
    with two_threads_of_torch(), having_denormals(has_denormals):
        fit(GIST(gcn(), (8, 7), 2), **options)
        assert denormal_products() == ({"all"} if has_denormals else {"none"})
    moments = ("begin", "round", "end", "step", "evaluation", "batch")
    assert products.seen == {moment: {"none"} for moment in moments}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_denormals_are_as_before_after_an_error(error: type[BaseException]) -> None:
    with two_threads_of_torch():
        with pytest.raises(error):
            fit(GIST(gcn(), (8, 7), 2), callbacks=[Raises(error)])
        assert denormal_products() == {"all"}


def test_a_run_within_a_run_leaves_the_outer_one_as_it_was() -> None:
    products = Products()

    class Inner(Callback):
        def on_round_end(self, run: Any, loss: float) -> None:
            fit(GIST(gcn(), (8, 7), 2), epochs=2)

    with two_threads_of_torch():
        fit(GIST(gcn(), (8, 7), 2), epochs=4, callbacks=[Inner(), products])
        assert denormal_products() == {"all"}
    assert products.seen == {moment: {"none"} for moment in ("begin", "round", "end")}


def adam_without_epsilon(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Make an Adam whose steps depend on denormal squares of gradients."""
    return torch.optim.Adam(parameters, lr=lr, eps=1e-30, fused=True)


def plain_loop(model: nn.Module, graph: Graph, epochs: int) -> dict[str, Tensor]:
    optimizer = adam_without_epsilon(model.train().parameters(), 0.01)
    adjacency = Adjacency(graph.edge_index, graph.num_nodes, graph.x.dtype)
    for _ in range(epochs):
        optimizer.zero_grad()
        logits = model(graph.x, adjacency)[graph.train]
        nn.functional.cross_entropy(logits, graph.y[graph.train]).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in named_tensors(model).items()}


def test_a_run_equals_a_plain_loop_that_takes_them_for_zero() -> None:
    graph = tiny_graph()
    # With such features Adam's squares are denormal in the first layer.
    graph = replace(graph, x=graph.x * 1e-18)
    gist = GIST(gcn(), (8, 7), 1, width_scaling="none")
    with having_denormals(True):
        with_denormals = plain_loop(gist.model(), graph, 6)
    with having_denormals(False):
        with_zeros = plain_loop(gist.model(), graph, 6)
    fit(gist, graph, epochs=6, optimizer=adam_without_epsilon)
    assert same(theta(gist), with_zeros)
    assert not same(theta(gist), with_denormals)
