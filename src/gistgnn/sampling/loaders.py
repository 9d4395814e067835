"""Batches from a loader of PyG, or from anything else that can be iterated over for `Data`."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs import Graph, Standardisation
from gistgnn.graphs.checks import (
    EDGE_DATA,
    check_edge_data,
    check_mask,
    dense,
    edges_of_adj_t,
    naming,
    single_label,
    to_tensor,
    valid_edges,
)
from gistgnn.graphs.features import SPARSE_BELOW, csr_of, is_sparse_matrix, nonzero_share
from gistgnn.graphs.named import GraphSizes
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.sampler import Expected, RandomBatches, Sampling
from gistgnn.utils.checks import shown
from gistgnn.utils.random_streams import Stream
from gistgnn.utils.tensors import to_device

MOST_BATCHES = 100_000  # of an epoch that are counted where a loader has no length
WITHOUT_TRAINING = 20  # batches in a row at most: random ones may hold no training node
_END = object()

# Attributes of loaders that say how batches are made, not which.
_HOW = {
    "filter_per_worker",
    "in_order",
    "log",
    "num_workers",
    "persistent_workers",
    "pin_memory",
    "pin_memory_device",
    "prefetch_factor",
    "timeout",
}


@dataclass(frozen=True, eq=False)
class FromLoader(Sampling):
    """Training on the batches of a loader: what `GIST.fit(graph, sampler=loader)` makes of it.

    A batch is a `Data` of PyG. The loss is on its training nodes, by its `train_mask`. If it has
    `batch_size`, as those of `NeighborLoader` do, only its first `batch_size` nodes count. With
    `node_norm`, as from GraphSAINT's samplers, the loss is the sum of the nodes' losses times their
    `node_norm`; `edge_norm` multiplies the edges' weights, if there are any. Features are scaled as
    the graph's are.

    The loader decides what a batch sees, and in which order batches come. What it draws from
    torch's global generator follows from the run's seed and the epoch, so a step has the same batch
    in every runner, on every rank and in a resumed run. What it draws elsewhere (NumPy, a
    `generator` of its own, `persistent_workers`) is its own: then the sub-GCNs of a round that one
    process trains still see the same batches, but every rank and a resumed run draw others.

    Args:
        loader: a loader of `torch_geometric.loader`, a list of `Data`, or any object that yields
            `Data` each time that it is iterated over.
    """

    name = "loader"

    loader: Iterable[Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        from torch_geometric.data.data import BaseData

        kind = type(self.loader).__name__
        if isinstance(self.loader, Iterator):
            raise InputError(
                f"sampler is a {kind}, which yields its batches once, and every epoch needs them: "
                "give a list, or a loader that can be iterated over again"
            )
        is_batch = isinstance(self.loader, (BaseData, Mapping))
        if is_batch or not isinstance(self.loader, Iterable):
            expected = "a loader, or a list of the Data to train on: [data]"
            raise InputError(f"sampler is a {kind}; expected {expected}")

    @cached_property
    def steps_per_epoch(self) -> int:
        """The batches of an epoch: the loader's length, or how many it yields if it has none."""
        try:
            count = len(self.loader)  # type: ignore[arg-type]  # it need not have a length
        except (TypeError, ValueError, NotImplementedError):
            count = self._counted()
        if count < 1:
            kind = type(self.loader).__name__
            raise InputError(f"the {kind} has no batch; expected at least one in an epoch")
        return count

    def _counted(self) -> int:
        count = 0
        with Stream(0, "length of a loader"):
            for _ in self.loader:
                count += 1
                if count > MOST_BATCHES:
                    raise InputError(
                        f"the {type(self.loader).__name__} has no length and yields more than "
                        f"{MOST_BATCHES:,} batches: give it a length, or end its epoch"
                    )
        return count

    def as_dict(self) -> dict[str, Any]:
        """Return the loader's class, and those of its settings that are numbers or texts."""
        loader: Any = self.loader
        facts: dict[str, Any] = {
            "name": self.name,
            "batches": self.batches,
            "class": type(loader).__name__,
            "steps_per_epoch": self.steps_per_epoch,
        }
        for name, value in sorted(getattr(loader, "__dict__", {}).items()):
            is_setting = isinstance(value, (bool, int, float, str)) and name not in _HOW
            if is_setting and not name.startswith("_"):
                facts.setdefault(name, value)
        if (order := getattr(loader, "sampler", None)) is not None:
            facts["order"] = type(order).__name__
        neighbors = getattr(getattr(loader, "node_sampler", None), "num_neighbors", None)
        if neighbors is not None:
            facts["num_neighbors"] = str(getattr(neighbors, "values", neighbors))
        return facts

    def sampler(self, full_batch: Batch, seed: int, layers: int | None = None) -> "LoaderBatches":
        """Refuse: a loop of the user's own iterates over the loader."""
        raise InputError("a loader belongs to GIST.fit: in a loop of your own, iterate over it")

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count nodes and edges as if an epoch had each of them once."""
        steps = self.steps_per_epoch
        return Expected.subgraph(graph, graph.nodes / steps, graph.edges / steps, steps)


class LoaderBatches(RandomBatches):
    """The batches of a loader, read for a graph.

    Args:
        settings: have the loader.
        reader: turns what it yields into batches.
        seed: of the run.
    """

    def __init__(self, settings: FromLoader, reader: "BatchReader", seed: int) -> None:
        super().__init__(seed, independent=settings.batches == "independent")
        self._loader = settings.loader
        self._reader = reader
        self._draws: dict[tuple[int, ...], Draws] = {}  # by the stream: one for every worker
        # What was drawn in this round, by step. Without it each step is drawn when it is asked for.
        self._of_round: dict[int, Any] | None = None
        self.steps_per_epoch = settings.steps_per_epoch
        if self._independent:
            self._require_own_batches()

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        # Without a thread: torch's global generator, which loaders use, is that of all threads.
        draws = self._draws_of(self._stream)
        for drawn in self._drawn(first_step, steps):
            batch = self.make(drawn)
            draws.require_training(drawn[0], has_nodes=batch.loss_nodes.numel() > 0)
            yield batch if self._columns is None else batch.select_columns(self._columns)

    def for_round(self) -> "LoaderBatches":
        if self._independent:
            return self
        return self._changed(_of_round={})

    def make(self, drawn: tuple[int, Any]) -> Batch:
        step, data = drawn
        with naming(f"the loader's batch of step {step}"):
            return self._reader.read(data)

    def _drawn(self, first_step: int, steps: int) -> Iterator[tuple[int, Any]]:
        draws = self._draws_of(self._stream)
        of_round = self._of_round
        for step in range(first_step, first_step + steps):
            if of_round is None:
                yield step, draws.at(step)
                continue
            if step not in of_round:
                of_round[step] = draws.at(step)
            yield step, of_round[step]

    def _draws_of(self, stream: tuple[int, ...]) -> "Draws":
        if stream not in self._draws:
            self._draws[stream] = Draws(self._loader, self.steps_per_epoch, self._seed, stream)
        return self._draws[stream]

    def _require_own_batches(self) -> None:
        """Refuse a loader that would give all workers the same batches."""
        kind = type(self._loader).__name__
        if getattr(self._loader, "persistent_workers", False):
            raise InputError(
                f"the {kind} has persistent_workers, which serve one epoch at a time, and several "
                "workers of the run draw from it: leave persistent_workers out"
            )
        first, second = (self._draws_of((worker,)).at(0) for worker in range(2))
        if first is second or _are_equal(first, second):
            raise InputError(
                f"the {kind} gives every worker the same batches, and each needs its own: "
                "shuffle them, such as by DataLoader(batches, shuffle=True)"
            )


class Draws:
    """What a loader yields, by step.

    A step that does not follow the last one begins its epoch anew, and skips what is before it.

    Args:
        loader: is iterated over, once for every epoch.
        steps_per_epoch: about how often it yields.
        seed: of the run; torch's global generator follows from it while the loader draws.
        stream: further numbers that the generator follows from, such as the worker's.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        steps_per_epoch: int,
        seed: int,
        stream: tuple[int, ...],
    ) -> None:
        self._loader = loader
        self._steps_per_epoch = steps_per_epoch
        self._seed = seed
        self._stream = stream
        self._step: int | None = None  # the last one
        self._data: Any = None  # of that step: it may be asked for again
        self._epoch = 0
        self._iterator: Iterator[Any] | None = None
        # The last step with training nodes, or the one before the first step.
        self._last_trained: int | None = None

    def at(self, step: int) -> Any:
        """Return what the loader yields for a step."""
        if step != self._step:
            if self._step is None or step != self._step + 1:
                self._go_to(step)
            self._data = self._next()
            self._step = step
        return self._data

    def require_training(self, step: int, *, has_nodes: bool) -> None:
        """Refuse a loader without training nodes in an epoch.

        Args:
            step: of a batch.
            has_nodes: whether this batch has training nodes.
        """
        if has_nodes:
            self._last_trained = step
            return
        if self._last_trained is None or self._last_trained >= step:
            self._last_trained = step - 1
        most = self._steps_per_epoch
        if not isinstance(self._loader, (list, tuple)):
            most = max(most, WITHOUT_TRAINING)
        if step - self._last_trained >= most:
            raise InputError(
                f"the {type(self._loader).__name__} has yielded {most} batches without a training "
                "node: make its batches of training nodes, or set their train_mask"
            )

    def _go_to(self, step: int) -> None:
        self._step = None
        epoch, before = divmod(step, self._steps_per_epoch)
        self._begin(epoch)
        for _ in range(before):
            self._next()

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._random = Stream(self._seed, "loader", epoch, *self._stream)
        self._iterator = None  # the last one's processes end before others start
        with self._random:
            self._iterator = iter(self._loader)

    def _next(self) -> Any:
        for _ in range(2):
            assert self._iterator is not None
            with self._random:
                data = next(self._iterator, _END)
            if data is not _END:
                return data
            self._begin(self._epoch + 1)
        raise InputError(f"the {type(self._loader).__name__} has yielded no batch in an epoch")


class BatchReader:
    """Turns a `Data` of PyG into a `Batch` for a graph, of which it may be any part.

    Nothing is written into the `Data`.

    Args:
        graph: decides the device, and the number and the kind of features, labels and edge data.
        scaling: of the graph's features. Defaults to none: they are as they were given.
    """

    def __init__(self, graph: Graph, scaling: Standardisation | None = None) -> None:
        self._graph = graph
        self._scaling = scaling
        self._device = graph.y.device
        is_csr = graph.x.layout is torch.sparse_csr
        self._is_sparse = is_csr or nonzero_share(graph.x) < SPARSE_BELOW

    def read(self, data: Any) -> Batch:
        """Return a batch.

        Raises:
            InputError: it does not fit the graph, or does not say which nodes to train on.
        """
        _require_data(data)
        x = self._features(data)
        nodes = x.shape[0]
        edges, edge_data = self._edges(data, nodes)
        y = self._labels(data, nodes)
        loss_nodes = _is_trained(data, y).nonzero().squeeze(1)
        _require_labels(y, loss_nodes)
        loss_weights = None
        if "node_norm" in data:
            weights = to_tensor(data.node_norm, "node_norm").to(torch.float32).reshape(-1)
            if len(weights) != nodes:
                expected = f"{nodes}, one for each node"
                raise InputError(f"node_norm has {len(weights)} numbers; expected {expected}")
            loss_weights = to_device(weights[loss_nodes], self._device)
        return Batch(
            to_device(x, self._device),
            to_device(edges, self._device),
            to_device(y, self._device),
            to_device(loss_nodes, self._device),
            sparse=self._is_sparse,
            loss_weights=loss_weights,
            edge_data={name: to_device(value, self._device) for name, value in edge_data.items()},
        )

    def _features(self, data: Any) -> Tensor:
        value = getattr(data, "x", None)
        if value is None:
            raise InputError("it has no x; expected the features of its nodes")
        is_matrix = is_sparse_matrix(value)
        x = csr_of(value) if is_matrix else to_tensor(value, "x")
        if x.ndim != 2 or x.shape[1] != self._graph.num_features:
            expected = f"[nodes, {self._graph.num_features}], as the graph has"
            raise InputError(f"x has shape {list(x.shape)}; expected {expected}")
        if is_matrix and (self._scaling is not None or not self._is_sparse):
            x = dense(x)
        x = x.to(torch.float32)
        if not is_matrix:
            x = x.contiguous()
        return x if self._scaling is None else self._scaling.features(x)

    def _edges(self, data: Any, nodes: int) -> tuple[Tensor, dict[str, Tensor]]:
        edge_index = getattr(data, "edge_index", None)
        values = {name: getattr(data, name, None) for name in EDGE_DATA}
        if edge_index is None and (adj_t := getattr(data, "adj_t", None)) is not None:
            edge_index, weights = edges_of_adj_t(adj_t)
            if values["edge_weight"] is None and self._graph.edge_weight is not None:
                values["edge_weight"] = weights
        if edge_index is None:
            raise InputError("it has neither edge_index nor adj_t; expected its edges [2, edges]")
        if isinstance(edge_index, Tensor):
            edge_index = edge_index.as_subclass(Tensor)  # PyG's EdgeIndex is one
        edges = valid_edges(edge_index, nodes, may_be_empty=True)
        checked = {}
        for name, value in values.items():
            if (value is None) == (getattr(self._graph, name) is not None):
                differ = f"it has {name}, and the graph has none"
                if value is None:
                    differ = f"it has no {name}, and the graph has some"
                raise InputError(f"{differ}: give it to both or to neither of them")
            if value is not None:
                checked[name] = check_edge_data(name, value, edges.shape[1])
        if "edge_weight" in checked and "edge_norm" in data:  # of GraphSAINT's samplers
            factors = check_edge_data("edge_weight", data.edge_norm, edges.shape[1])
            checked["edge_weight"] = checked["edge_weight"] * factors
        return edges, checked

    def _labels(self, data: Any, nodes: int) -> Tensor:
        """Return labels or targets of the kind that the graph has."""
        if getattr(data, "y", None) is None:
            raise InputError("it has no y; expected the labels of its nodes")
        graph = self._graph
        y = to_tensor(data.y, "y")
        if "root_n_id" in data and len(y) == len(data.root_n_id) != nodes:  # of ShaDowKHopSampler
            of_roots = y
            y = of_roots.new_full((nodes, *of_roots.shape[1:]), -1)
            y[data.root_n_id] = of_roots
        if y.ndim == 0 or len(y) != nodes:
            rows = len(y) if y.ndim else 1
            expected = "one row of each per node"
            raise InputError(f"y has {rows} rows and x has {nodes}; expected {expected}")
        columns = 1 if graph.y.ndim == 1 else graph.y.shape[1]
        y = y.reshape(nodes, -1)
        if y.shape[1] != columns:
            raise InputError(f"y has {y.shape[1]} columns; expected {columns}, as the graph has")
        if graph.y.ndim == 1:
            return single_label(y[:, 0], graph.num_classes)[0]
        targets = y.to(torch.float32)
        # Two classes may be one label: then a node without a label has -1.
        return targets if graph.regression else targets.masked_fill(targets < 0, torch.nan)


def _require_data(data: Any) -> None:
    from torch_geometric.data import Data, HeteroData

    if isinstance(data, HeteroData):
        raise InputError(
            "it is a HeteroData; expected a torch_geometric.data.Data: "
            "make the loader of gistgnn.graphs.from_hetero(data)"
        )
    if not isinstance(data, Data):
        raise InputError(f"it is {shown(data)}; expected a torch_geometric.data.Data")
    if "edge_label_index" in data:
        raise InputError(
            "it has edge_label_index, so it is of links: "
            "train on links in a loop of your own, as examples/link_prediction.py does"
        )


def _is_trained(data: Any, y: Tensor) -> Tensor:
    """Return a mask of the nodes to train on: [N]."""
    nodes = len(y)
    mask = getattr(data, "train_mask", None)
    # By their keys: a Batch of several Data has a property batch_size, which means something else.
    has_outputs = "root_n_id" in data or "batch_size" in data
    if mask is None and not has_outputs:
        raise InputError(
            "it has neither train_mask nor batch_size, which say what to train on: "
            "set train_mask on the Data of which the loader makes its batches"
        )
    is_trained = torch.ones(nodes, dtype=torch.bool, device=y.device)
    if has_outputs:
        outputs = data.root_n_id if "root_n_id" in data else slice(int(data.batch_size))
        is_trained = torch.zeros_like(is_trained)
        is_trained[outputs] = True
    if mask is None:
        return is_trained
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        expected = f"a mask of bools, one for each of the {nodes} nodes"
        raise InputError(f"train_mask is of {kind}; expected {expected}")
    return is_trained & check_mask(mask, "train_mask", nodes, empty=True)


def _require_labels(y: Tensor, loss_nodes: Tensor) -> None:
    targets = y[loss_nodes]
    is_missing = targets == -1 if y.ndim == 1 else ~targets.isfinite().all(dim=1)
    if bool(is_missing.any()):
        unlabelled = f"{int(is_missing.sum())} of its {len(targets)} training nodes"
        raise InputError(f"{unlabelled} have no label: take them out of train_mask")


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two batches have equal tensors."""
    if type(one) is not type(other) or not hasattr(one, "to_dict"):
        return False
    values = one.to_dict()
    tensors = [name for name, value in values.items() if isinstance(value, Tensor)]
    pairs = [(values[name], getattr(other, name, None)) for name in tensors]
    return all(isinstance(second, Tensor) and torch.equal(first, second) for first, second in pairs)
