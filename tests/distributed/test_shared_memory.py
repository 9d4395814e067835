"""What ranks on one machine read lies in memory once."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gistgnn import Graph, InputError
from gistgnn.distributed import Alone, Ranks, load_once
from gistgnn.distributed import shared_memory as machine
from gistgnn.sampling import ClusterSampling, training_subgraph, whole_graph
from tests.helpers.models import tiny_graph

from .launch import on_ranks


def made() -> dict[str, Tensor]:
    """Something that says who has made it."""
    return {"pid": torch.tensor([os.getpid()]), "x": torch.arange(6.0).view(2, 3), "flag": torch.tensor([True, False])}


def mapped(tensor: Tensor) -> bool:
    """Whether a tensor lies in memory that others map."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    for line in lines:
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= tensor.data_ptr() < last:
            return "memfd:gistgnn" in line
    return False


def share(ranks: Ranks, machines: int, room: bool) -> tuple[int, bool, list[list[float]]]:
    ranks.first_here, ranks._here = ranks.rank % machines, ranks.count // machines
    if not room:
        machine.write = lambda _: None
    found = ranks.share(made)
    again = ranks.share(lambda: {"ones": torch.ones(1000)})["ones"]
    assert again.sum() == 1000
    assert found["flag"].tolist() == [True, False]
    return int(found["pid"]), mapped(found["x"]), found["x"].tolist()


@pytest.mark.parametrize(("machines", "room"), [(1, True), (2, True), (4, True), (2, False)])
def test_one_rank_of_a_machine_makes_what_all_have(machines: int, room: bool) -> None:
    found = on_ranks(4, share, machines, room)
    groups = [{pid for pid, _, _ in found[k::machines]} for k in range(machines)]
    assert all(len(group) == (1 if room else 4 // machines) for group in groups)
    assert len(set.union(*groups)) == sum(map(len, groups))
    assert all(there == (room and machines < 4) for _, there, _ in found)
    assert all(x == [[0, 1, 2], [3, 4, 5]] for _, _, x in found)


def fail(ranks: Ranks) -> str:
    def make() -> dict[str, Tensor]:
        raise InputError("the graph is bad")

    with pytest.raises(InputError) as caught:
        ranks.share(make)
    return str(caught.value)


def test_what_fails_is_raised_on_all() -> None:
    assert on_ranks(2, fail) == ["the graph is bad"] * 2


def graphs(ranks: Ranks | None, room: bool = True) -> list[Tensor]:
    """All that a rank has of a graph, of its training nodes and of its batches."""
    if not room:
        machine.write = lambda _: None
    graph = load_once(ranks, tiny_graph)
    assert isinstance(graph, Graph)
    share = (ranks or Alone()).share
    seen = training_subgraph(graph, share)
    batches = ClusterSampling(5, 2, "random").sampler(seen, 0, share=share).batches(0, 3)
    found = [graph.x, graph.edge_index, graph.y, seen.x, seen.edge_index, whole_graph(graph).x]
    held = [graph.x, graph.edges.col, graph.y, seen.x, seen.csr.col]
    assert ranks is None or not room or all(mapped(tensor) for tensor in held if tensor.numel())
    for batch in batches:
        found += [batch.x, batch.edge_index, batch.y, batch.loss_nodes]
    return [tensor.clone() for tensor in found] + [torch.tensor([graph.num_classes, graph.checksum()])]


@pytest.mark.parametrize("room", [True, False])
def test_graphs_and_batches_are_the_same(room: bool) -> None:
    expected = graphs(None)
    for found in on_ranks(2, graphs, room):
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_memory_that_cannot_be_shared_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(torch, "save", full)
    assert machine.write(made()) is None
    monkeypatch.delattr(os, "memfd_create")
    assert machine.write(made()) is None
    assert len(os.listdir("/proc/self/fd")) == len(before)
