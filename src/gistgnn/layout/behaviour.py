"""What a model does with the graph that it is called on, found out by calls on small graphs.

Two things cannot be seen in a model's parameters. It may keep something of the first graph that it
sees, such as the edges, and use it for every later one: then the result of an inductive run, or of
a run with batches, is wrong. And it may make no use of what it is given, such as edges that its
forward forgets to hand on.
"""

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError, reason
from gistgnn.layout.axes import Build, Layout, named_tensors
from gistgnn.layout.instance import Instance, construct_on_host, eager, same
from gistgnn.nn.scaling import plain_model
from gistgnn.sampling import Batch, forward
from gistgnn.sampling.call import signature
from gistgnn.utils.random_streams import Stream

log = logging.getLogger(__name__)

_MORE_NODES = 2  # Another graph has so many nodes more than the first.


def check_behaviour(build: Build, layout: Layout, instances: Sequence[Instance]) -> frozenset[str]:
    """Return the names of the inputs that a model makes no use of, such as "edge_index".

    A note is logged if a model takes no edges, or makes no use of them.

    Raises:
        InputError: the model keeps what it has seen of a graph.
    """
    first = instances[0]
    for training, more_nodes in itertools.product((False, True), (_MORE_NODES, 0)):
        fresh = construct_on_host(build, layout, first.features)
        _refuse_what_is_kept(
            first, fresh, _another_graph(first.batch, more_nodes), training=training
        )
    unused = frozenset(
        name for name in _inputs(first) if not any(_uses(instance, name) for instance in instances)
    )
    kind = type(plain_model(first.module)).__name__
    if signature(first.module).structure is None:
        log.warning(f"{kind} takes no edges: it is trained on the features of every node alone")
    elif "edge_index" in unused:
        log.warning(f"{kind} makes no use of the edges: its output is the same for other edges")
    return unused


def _refuse_what_is_kept(
    instance: Instance, fresh: nn.Module, second: Batch, *, training: bool
) -> None:
    """Compare, on a second graph, a model that has seen a first graph with one that has not."""
    seen = instance.module
    if more := sorted(instance.values.keys() - named_tensors(fresh).keys()):
        raise _refusal(seen, more[:1], "it has more parameters or buffers than a new model")
    before = _attributes(fresh)
    try:
        expected = _output(fresh, instance, second, training)
        again = _output(fresh, instance, second, training)
    except Exception:  # A user's model may raise anything, here about so small a graph.
        return
    # The model draws random numbers that are not torch's, or counts its calls.
    if not same(again, expected):
        return
    changed = _changed_attributes(before, fresh)
    try:
        _output(seen, instance, instance.batch, training)
        output = _output(seen, instance, second, training)
        problem = (
            ""
            if same(output, expected)
            else "its output for a second graph is not that of a new model"
        )
    except Exception as error:
        problem = f"it fails on a second graph ({reason(error)})"
    if problem:
        raise _refusal(seen, changed, problem)


def _refusal(model: nn.Module, names: list[str], problem: str) -> InputError:
    name = f"'{names[0]}'" if names else "something"
    kind = type(plain_model(model)).__name__
    return InputError(
        f"{kind} keeps {name} of the first graph that it is called on, so {problem}: compute it "
        "anew in every forward, as batches, and the graph of an inductive run, differ from call to "
        "call"
    )


def _output(module: nn.Module, instance: Instance, batch: Batch, training: bool) -> Tensor:
    """Run a module with the parameters of an instance."""
    with torch.no_grad(), Stream(0, "behaviour"), eager(module):
        tensors = named_tensors(module)
        for name, value in instance.values.items():
            tensors[name].copy_(value)
        return forward(module.train(training), batch, private=True)


def _another_graph(batch: Batch, more_nodes: int) -> Batch:
    """Return a graph of other nodes and edges, with the same kinds of features and edge data."""
    rng = torch.Generator().manual_seed(1)
    count = len(batch.x) + more_nodes
    nodes = torch.arange(count)
    edges = batch.adj.num_edges + more_nodes
    source = torch.cat([nodes, nodes.roll(2)] + [nodes] * (edges // count))[:edges]
    target = torch.cat([nodes.roll(-2), nodes] + [nodes.roll(3)] * (edges // count))[:edges]
    edge_index = torch.stack([source, target])[:, target.argsort(stable=True)]
    x = torch.randn(count, batch.x.shape[1], generator=rng, dtype=batch.x.dtype)
    entries = torch.arange(edge_index.shape[1]) % batch.adj.num_edges
    data = {name: value[entries] for name, value in batch.edge_data.items()}
    return Batch(x, edge_index, nodes, nodes, edge_data=data)


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module and its parts by name, without parameters and hooks."""
    attributes = dict[str, Any]()
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in vars(part).items():
            if name != "training" and (not name.startswith("_") or "cache" in name):
                attributes[f"{prefix}{name}"] = value
        attributes |= {
            f"{prefix}{name}": value for name, value in part.named_buffers(recurse=False)
        }
    return attributes


def _changed_attributes(before: dict[str, Any], module: nn.Module) -> list[str]:
    """Return the names of attributes that are others than before."""
    after = _attributes(module)
    return [
        name for name, value in after.items() if name not in before or before[name] is not value
    ]


def _inputs(instance: Instance) -> list[str]:
    """Return the names of what a model gets beside the features."""
    takes = signature(instance.module)
    edge_data = [name for name in takes.edge_data if name in instance.batch.edge_data]
    return edge_data if takes.structure is None else ["edge_index", *edge_data]


def _uses(instance: Instance, name: str) -> bool:
    """Tell whether a model's output depends on an input."""
    for changed in _with_another(instance.batch, name):
        try:
            if not same(_output(instance.module, instance, changed, False), instance.reference):
                return True
        except Exception:  # The user's code fails on other values, so it looks at the input.
            return True
    return False


def _with_another(batch: Batch, name: str) -> Iterator[Batch]:
    """Yield the graph with other values of an input."""
    edge_index = batch.edge_index
    data = dict(batch.edge_data)
    if name == "edge_index":
        count = len(batch.x)
        yield replace(
            batch, edges=torch.stack([(edge_index[0] + 2) % count, edge_index[1]]), edge_data=data
        )
        fewer = slice(0, edge_index.shape[1] // 2)  # The nodes then have other degrees.
        half = {key: value[fewer] for key, value in data.items()}
        yield replace(batch, edges=edge_index[:, fewer], edge_data=half)
        return
    value = data[name]
    other = value.flip(0) + 0.5 if value.is_floating_point() else 1 - value
    yield replace(batch, edge_data={**data, name: other})
