"""Models of users, drawn at random, whose outputs are compared with those of plain PyG.

They write into what they get, keep what they have seen of a graph, or take their arguments in
unusual ways. What gistgnn gives has to be what PyG gives on tensors of its own; or the model is
refused in one line.
"""

import sys
from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from benchmarks.attack.case import Outcome, Report, Workspace, run
from benchmarks.attack.valid import arrays
from gistgnn import GIST
from gistgnn.errors import InputError
from gistgnn.graphs import Graph
from gistgnn.runners.fused import Stack
from gistgnn.sampling import Batch, forward
from gistgnn.utils.console import show_log

_F = 6
_C = 3
_NODES = 25
_WRONG = "WRONG"


def models(rng: Random, workspace: Workspace) -> Report:
    """Compare a random model of one of the three families with plain PyG."""
    title, check = rng.choice([_in_place, _in_place, _with_state, _with_signature])(rng)

    def work() -> int:
        show_log()
        try:
            wrong = check()
        except InputError as error:
            print(f"gistgnn: error: {error}", file=sys.stderr)
            return 2
        if wrong:
            print(f"{_WRONG} {wrong}")
        return 0

    def judge(outcome: Outcome) -> str:
        return outcome.out.strip()[:300] if outcome.out.startswith(_WRONG) else ""

    return run(workspace, title, work, judge)


def _batch(seed: int) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(_NODES, _F, generator=rng, dtype=torch.float64)
    edge_index = torch.randint(_NODES, (2, 80), generator=rng)
    weight = torch.rand(80, generator=rng, dtype=torch.float64) + 0.1
    nodes = torch.arange(_NODES)
    return Batch(x, edge_index, nodes % _C, nodes, edge_data={"edge_weight": weight})


def _network() -> nn.Module:
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(_F, _F))


_CONVS: dict[str, Callable[[], nn.Module]] = {
    "LGConv()": lambda: pyg.LGConv(),
    "SAGEConv": lambda: pyg.SAGEConv(_F, _F),
    "SAGEConv(sum)": lambda: pyg.SAGEConv(_F, _F, aggr="sum"),
    "SAGEConv(max)": lambda: pyg.SAGEConv(_F, _F, aggr="max"),
    "GCNConv": lambda: pyg.GCNConv(_F, _F),
    "GCNConv(no loops)": lambda: pyg.GCNConv(_F, _F, add_self_loops=False),
    "GCNConv(not normalised)": lambda: pyg.GCNConv(_F, _F, normalize=False),
    "GraphConv": lambda: pyg.GraphConv(_F, _F),
    "GraphConv(mean)": lambda: pyg.GraphConv(_F, _F, aggr="mean"),
    "GINConv(ReLU in place)": lambda: pyg.GINConv(_network()),
    "SGConv(1)": lambda: pyg.SGConv(_F, _F),
    "SGConv(2)": lambda: pyg.SGConv(_F, _F, K=2),
    "TAGConv": lambda: pyg.TAGConv(_F, _F),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(_F, _F),
    "SimpleConv": lambda: pyg.SimpleConv("mean"),
    "APPNP": lambda: pyg.APPNP(2, 0.1),
    "GATConv": lambda: pyg.GATConv(_F, _F),
}
_WITH_WEIGHTS = ("LGConv()", "GCNConv", "GCNConv(no loops)", "GCNConv(not normalised)")
_WITH_WEIGHTS += ("GraphConv", "GraphConv(mean)", "SGConv(1)", "SGConv(2)", "TAGConv", "APPNP")

_WRITES: dict[str, Callable[[Tensor], object]] = {
    "relu_": lambda tensor: tensor.relu_(),
    "mul_": lambda tensor: tensor.mul_(0.5),
    "add_": lambda tensor: tensor.add_(0.3),
    "clamp_": lambda tensor: tensor.clamp_(-0.2, 0.4),
    "a column": lambda tensor: tensor[:, :2].zero_(),
    "rows by a view": lambda tensor: tensor.t()[:, ::3].neg_(),
    "copy_": lambda tensor: tensor.copy_(tensor.flip(0)),
    "dropout in place": lambda tensor: nn.functional.dropout(tensor, 0.5, True, inplace=True),
}
_EDGE_WRITES: dict[str, Callable[[Tensor], object]] = {
    "turned": lambda edges: edges.copy_(edges.flip(0)),
    "moved": lambda edges: edges.copy_((edges + 1) % _NODES),
    "a part": lambda edges: edges[0, ::2].zero_(),
}
_WEIGHT_WRITES: dict[str, Callable[[Tensor], object]] = {
    "zero_": lambda weight: weight.zero_(),
    "mul_": lambda weight: weight.mul_(2),
    "a part": lambda weight: weight[::2].zero_(),
}

_Step = tuple[str, ...]


def _in_place(rng: Random) -> tuple[str, Callable[[], str]]:
    """Draw a model of convolutions with writes between them."""
    steps: list[_Step] = []
    for number in range(rng.choice([1, 2, 2, 3])):
        conv = rng.choice(list(_CONVS))
        weighted = "weighted" if conv in _WITH_WEIGHTS and rng.random() < 0.5 else ""
        steps.append(("conv", conv, rng.choice(["x", "h"]) if number else "x", weighted))
        for _ in range(rng.choice([0, 1, 1, 2])):
            target = rng.choice(["x", "h", "h", "edges", "weight"])
            writes = {"edges": _EDGE_WRITES, "weight": _WEIGHT_WRITES}.get(target, _WRITES)
            steps.insert(rng.randrange(len(steps) + 1), ("write", target, rng.choice(list(writes))))
    seed = rng.randrange(100)
    training = rng.random() < 0.5
    title = f"a model in place, {'training' if training else 'evaluation'}, seed {seed}: {steps}"
    return title, lambda: _compare(steps, seed, training)


class _Drawn(nn.Module):
    steps: tuple[_Step, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_CONVS[step[1]]() for step in self.steps if step[0] == "conv")
        self.out = nn.Linear(_F, _C)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        h = x
        outputs = []
        convs = iter(self.convs)
        for step in self.steps:
            if step[0] == "conv":
                source = x if step[2] == "x" else h
                edge_arguments = (edge_index, edge_weight) if step[3] else (edge_index,)
                h = next(convs)(source, *edge_arguments)
                outputs.append(h)
            else:
                target = {"x": x, "h": h, "edges": edge_index, "weight": edge_weight}[step[1]]
                writes = {"edges": _EDGE_WRITES, "weight": _WEIGHT_WRITES}.get(step[1], _WRITES)
                writes[step[2]](target)
        return self.out(sum(outputs))


def _compare(steps: list[_Step], seed: int, training: bool) -> str:
    kind = type("Drawn", (_Drawn,), {"steps": tuple(steps)})
    torch.manual_seed(seed)
    model = kind().double().train(training)
    seen = _batch(seed)

    def output(call: Callable[[], Tensor]) -> tuple[Tensor, list[Tensor | None]]:
        """Return an output, and the gradients, where torch can compute them."""
        model.zero_grad()
        torch.manual_seed(1)
        out = call()
        try:
            out.sin().sum().backward()
        except RuntimeError:  # The model has overwritten something that the gradient needs.
            return out.detach(), []
        gradients = [parameter.grad for parameter in model.parameters()]
        return out.detach(), [None if grad is None else grad.clone() for grad in gradients]

    weight = seen.edge_data["edge_weight"]
    expected = output(lambda: model(seen.x.clone(), seen.edge_index.clone(), weight.clone()))
    for number in range(4):
        computed = output(lambda: forward(model, seen))
        if not _close(computed, expected):
            return f"call {number + 1} has another output or gradient than plain PyG"
    fresh = _batch(seed)
    if not (torch.equal(seen.x, fresh.x) and torch.equal(seen.edge_index, fresh.edge_index)):
        return "the batch was changed"
    if not training and not any(step[0] == "write" and "dropout" in step[2] for step in steps):
        with torch.no_grad():
            try:
                stacked = Stack([model, model]).logits(seen)
            except RuntimeError:  # torch cannot fuse this model.
                return ""
        if not torch.allclose(stacked[1], expected[0], rtol=1e-9, atol=1e-9):
            return "the fused output is another than plain PyG's"
    return ""


def _close(
    one: tuple[Tensor, list[Tensor | None]], other: tuple[Tensor, list[Tensor | None]]
) -> bool:
    """Return whether two outputs and their gradients are the same but for rounding."""
    if not torch.allclose(one[0], other[0], rtol=1e-9, atol=1e-9, equal_nan=True):
        return False
    # PyG may have no gradients where ours has: its messages need what the model has overwritten,
    # and a product with the adjacency matrix does not.
    if not other[1]:
        return True
    if len(one[1]) != len(other[1]):
        return False
    for gradient, expected in zip(one[1], other[1], strict=True):
        if gradient is None or expected is None:
            if gradient is not expected:
                return False
        elif not torch.allclose(gradient, expected, 1e-8, 1e-8, equal_nan=True):
            return False
    return True


_REMEMBERED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "edges": lambda x, edge_index: edge_index,
    "a copy of the edges": lambda x, edge_index: edge_index.clone(),
    "the mean": lambda x, edge_index: x.mean(dim=0),
    "degrees": lambda x, edge_index: torch.bincount(edge_index[1], minlength=len(x)),
    "the number of nodes": lambda x, edge_index: len(x),
}


def _with_state(rng: Random) -> tuple[str, Callable[[], str]]:
    """Draw a model that keeps something of a graph that it has seen, or a PyG model that caches."""
    remembered = rng.choice([*_REMEMBERED, "cached=True"])
    holder = rng.choice(["attribute", "list", "dictionary", "buffer", "part"])
    when = rng.choice(["first call", "training", "other size"])
    inductive = rng.random() < 0.5
    training = "inductive" if inductive else "clusters"
    title = f"a model that keeps {remembered} in its {holder} ({when}), {training}"
    return title, lambda: _compare_state(remembered, holder, when, inductive)


def _compare_state(remembered: str, holder: str, when: str, inductive: bool) -> str:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.store: Any = {"list": [], "dictionary": {}}.get(holder)
            self.shape: Any = None

        def value(self, x: Tensor, edge_index: Tensor) -> Any:
            made = _REMEMBERED[remembered](x, edge_index)
            if when == "training" and not self.training:
                return made
            anew = when == "other size" and self.shape != edge_index.shape
            self.shape = edge_index.shape
            if holder == "list":
                self.store = [made] if anew or not self.store else self.store
                return self.store[0]
            if holder == "dictionary":
                self.store.update({0: made} if anew or 0 not in self.store else {})
                return self.store[0]
            if holder == "buffer" and isinstance(made, Tensor):
                if anew or "remembered" not in self._buffers:
                    self.register_buffer("remembered", made)
                return self.remembered
            self.store = made if anew or self.store is None else self.store
            return self.store

    class Keeps(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first = pyg.SAGEConv(3, width)
            self.second = pyg.SAGEConv(width, 3)
            self.part = Part()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            value = self.part.value(x, edge_index)
            if remembered in ("edges", "a copy of the edges"):
                edge_index = value
            elif remembered == "the mean":
                x = x - value
            elif remembered == "degrees":
                x = x * (1 + value.to(x.dtype))[:, None]
            else:
                x = x * value
            return self.second(self.first(x, edge_index).relu(), edge_index)

    build = (
        (lambda width: pyg.GCN(3, width, 2, 3, cached=True))
        if remembered == "cached=True"
        else Keeps
    )
    graph = Graph.build(**arrays())
    sampler = None if inductive else "clusters"
    gist = GIST(build, 8, 2)
    model = gist.fit(
        graph,
        epochs=4,
        local_steps=2,
        progress=False,
        inductive=inductive,
        sampler=sampler,
        standardise=False,
    ).model
    plain = build(8).eval()
    plain.load_state_dict(model.state_dict())
    if hasattr(plain, "convs"):
        for conv in plain.convs:
            conv.cached = False
    with torch.no_grad():
        output = model(graph.x, graph.edge_index)
        expected = plain(graph.x, graph.edge_index)
    same = torch.allclose(output, expected, atol=1e-5)
    return "" if same else "the result's model keeps another graph"


def _with_signature(rng: Random) -> tuple[str, Callable[[], str]]:
    """Draw a forward with its arguments in any order, by position or by name."""
    structure = rng.choice(["edge_index", "edge_index", "edges", "adj_t"])
    arguments = [rng.choice(["x", "h", "features"]), structure, "edge_weight"]
    x = arguments[0]
    if rng.random() < 0.4:
        arguments.append("scale")
    if rng.random() < 0.5:
        rng.shuffle(arguments)
    optional = {name for name in arguments if name == "scale" or (name != x and rng.random() < 0.4)}
    by_name = rng.randrange(len(arguments) + 1)
    # Python wants arguments with defaults behind those without.
    positional = sorted(arguments[:by_name], key=lambda name: name in optional)
    keyword_only = arguments[by_name:]
    words = [_argument(name, optional) for name in positional]
    if keyword_only:
        words += ["*", *(_argument(name, optional) for name in keyword_only)]
    signature = ", ".join(words)
    code = f"def forward(self, {signature}):\n    return weighted({x}, {structure}, edge_weight)\n"
    return f"a forward ({signature})", lambda: _compare_signature(code)


def _argument(name: str, optional: set[str]) -> str:
    if name not in optional:
        return name
    default = 1.0 if name == "scale" else None
    return f"{name}={default}"


def _weighted(x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
    if edge_index is None or weight is None:
        return x * 0
    return torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]] * weight[:, None])


def _compare_signature(code: str) -> str:
    names: dict[str, Any] = {"weighted": _weighted}
    exec(code, names)
    model = type("Model", (nn.Module,), {"forward": names["forward"]})()
    seen = _batch(0)
    expected = _weighted(seen.x, seen.edge_index, seen.edge_data["edge_weight"])
    output = forward(model, seen)
    same = torch.allclose(output, expected)
    return "" if same else "it trains without edges or weights, or on other ones"
