"""A model that was trained on scaled features scales what it is called on, or says so."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import GIST, load_run
from gistgnn.baselines import Ensemble
from gistgnn.evaluation import Evaluation, predict
from gistgnn.graphs import Graph
from gistgnn.graphs.standardise import Standardisation
from gistgnn.nn import GCN, ScaledModel
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.nn.scaling import scaled_model
from gistgnn.sampling import whole_graph
from tests.helpers.fitting import same
from tests.helpers.models import PLAIN, C, F, tiny_graph
from tests.helpers.refusals import refused

OPTIONS = {**PLAIN, "standardise": True, "epochs": 8, "local_steps": 2, "progress": False}


class Net(nn.Module):
    """A model with a method of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = pyg.SAGEConv(F, width)
        self.second = pyg.SAGEConv(width, C)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.first(x, edge_index).relu()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.encode(x, edge_index), edge_index)


class EdgesFirst(Net):
    def forward(self, edge_index: Tensor, x: Tensor) -> Tensor:
        return self.second(self.encode(x, edge_index), edge_index)


def unscaled_graph() -> Graph:
    made = tiny_graph(40)
    made.x.mul_(torch.logspace(-2, 2, F)).add_(torch.arange(F) * 10.0)
    return made


def expected_output(trained: nn.Module, build: Callable[[int], nn.Module], graph: Graph) -> Tensor:
    """The output by the trained parameters, with features scaled by hand.

    Means and deviations are those of the training nodes.
    """
    plain = build(8).eval()
    plain.load_state_dict(trained.model.state_dict())
    rows = graph.x[graph.train].double()
    x = (graph.x.double() - rows.mean(dim=0)) / rows.std(dim=0, unbiased=False)
    return Net.forward(plain, x.float(), graph.edge_index)


@pytest.mark.parametrize("build", [Net, EdgesFirst])
def test_every_way_to_call_the_result_scales_or_says_so(build: Callable[[int], Any]) -> None:
    graph = unscaled_graph()
    model = GIST(build, 8, 2).fit(graph, **OPTIONS).model
    expected = expected_output(model, build, graph)
    assert isinstance(model, ScaledModel)
    arguments = (graph.x, graph.edge_index) if build is Net else (graph.edge_index, graph.x)
    by_name = {"x": graph.x, "edge_index": graph.edge_index}
    outputs = [model(**by_name), model.forward(**by_name), predict(model, whole_graph(graph))]
    if build is Net:
        outputs += [model(*arguments), model.forward(*arguments)]
        outputs.append(predict(model, whole_graph(graph), Evaluation("parts", parts=1)))
        outputs.append(torch.jit.trace(model, arguments, check_trace=False)(*arguments))
        outputs.append(copy.deepcopy(model)(**by_name))
        outputs.append(pickle.loads(pickle.dumps(model))(**by_name))
    for output in outputs:
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(AttributeError, match=r"model\.model\.encode.*model\.scaling"):
        model.encode(*arguments)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = model.other
    x = model.scaling(graph.x)
    hidden = model.model.encode(x, graph.edge_index)
    torch.testing.assert_close(
        model.model.second(hidden, graph.edge_index), expected, rtol=1e-4, atol=1e-4
    )
    with refused("x has 3 features", str(F)):
        model(x=graph.x[:, :3], edge_index=graph.edge_index)


def test_an_ensemble_behind_a_scaling_is_called_by_position_and_by_name() -> None:
    graph = unscaled_graph()
    members = [Net(8).eval() for _ in range(2)]
    model = scaled_model(EnsembleModel(members), Standardisation.of(graph)).eval()
    rows = graph.x[graph.train].double()
    x = ((graph.x.double() - rows.mean(dim=0)) / rows.std(dim=0, unbiased=False)).float()
    expected = sum(member(x, graph.edge_index) for member in members) / 2
    for output in (
        model(graph.x, graph.edge_index),
        model(graph.x, edge_index=graph.edge_index),
        model(x=graph.x, edge_index=graph.edge_index),
    ):
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)


def test_the_model_behind_the_scaling_is_plain() -> None:
    """It can be traced and scripted, and PyG's own inference finds its layers."""
    graph = unscaled_graph()
    model = GIST(Net, 8, 2).fit(graph, **OPTIONS).model
    expected = expected_output(model, Net, graph)
    x = model.scaling(graph.x)
    edge_index = graph.edge_index
    assert not model.model._forward_pre_hooks
    assert type(model.model) is Net
    for scripted in (torch.jit.script(model.model), torch.jit.script(model.scaling)):
        assert isinstance(scripted, torch.jit.ScriptModule)
    torch.testing.assert_close(
        torch.jit.script(model.model)(x, edge_index), expected, rtol=1e-4, atol=1e-4
    )
    scaled = torch.fx.symbolic_trace(model.scaling)(graph.x)
    torch.testing.assert_close(model.model(scaled, edge_index), expected, rtol=1e-4, atol=1e-4)
    basic = GIST(lambda width: pyg.GraphSAGE(F, width, 2, C), 8, 2).fit(graph, **OPTIONS).model
    with pytest.raises(AttributeError, match="inference_per_layer"):
        basic.inference_per_layer(0, graph.x, edge_index, 40)
    h = basic.model.inference_per_layer(0, basic.scaling(graph.x), edge_index, 40)
    h = basic.model.inference_per_layer(1, h, edge_index, 40)
    torch.testing.assert_close(h, basic(graph.x, edge_index), rtol=1e-4, atol=1e-4)


def test_a_run_goes_on_from_a_scaled_model_and_from_its_state() -> None:
    graph = unscaled_graph()
    first = GIST(Net, 8, 2).fit(graph, **OPTIONS).model
    states = {"model": first, "state": first.state_dict(), "plain": first.model.state_dict()}
    continued = [
        GIST(Net, 8, 2).fit(graph, init=init, **OPTIONS).model.state_dict()
        for init in states.values()
    ]
    assert same(continued[0], continued[1])
    assert same(continued[0], continued[2])
    # These features are words, for which a run by itself does not standardise.
    options = {**OPTIONS, "standardise": None}
    words = unscaled_graph()
    words.x.copy_((torch.rand(40, F, generator=torch.Generator().manual_seed(0)) < 0.05).float())
    assert not GIST(Net, 8, 2).fit(words, **options).standardised
    for init in (first, first.state_dict()):
        assert GIST(Net, 8, 2).fit(words, init=init, **options).standardised


def test_files_have_the_names_of_the_model_and_are_read_again(tmp_path: Any) -> None:
    graph = unscaled_graph()
    builds = {"own": Net, "ours": lambda width: GCN(F, (width,), C)}
    for name, build in builds.items():
        result = GIST(build, 8, 2).fit(graph, **OPTIONS)
        result.save(tmp_path / name)
        again = load_run(tmp_path / name, build).model
        torch.testing.assert_close(
            again(graph.x, graph.edge_index), result.model(graph.x, graph.edge_index)
        )
        assert torch.equal(again.scaling.mean, result.model.scaling.mean)


def test_a_state_that_is_loaded_into_one_model_changes_no_other_one() -> None:
    graph = unscaled_graph()
    gist = GIST(Net, 8, 2)
    result = gist.fit(graph, **OPTIONS)
    first = gist.model()
    second = gist.model()
    expected = second(graph.x, graph.edge_index)
    first.load_state_dict({name: value + 1 for name, value in first.state_dict().items()})
    assert torch.equal(gist.model()(graph.x, graph.edge_index), expected)
    assert torch.equal(second(graph.x, graph.edge_index), expected)
    assert not torch.equal(first.scaling.mean, result.model.scaling.mean)


def test_the_members_of_an_ensemble_scale() -> None:
    graph = unscaled_graph()
    result = Ensemble(Net, 8, 2).fit(graph, **{**OPTIONS, "epochs": 4})
    x = result.model.scaling(graph.x)
    expected = sum(member(x, graph.edge_index) for member in result.model.model.members) / 2
    torch.testing.assert_close(result.model(graph.x, graph.edge_index), expected)
    torch.testing.assert_close(predict(result.model, whole_graph(graph)), expected)
