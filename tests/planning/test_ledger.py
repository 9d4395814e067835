"""Tensors without values are counted as those with values would be."""

import torch
from torch import nn
from torch.nn import functional as F

from gistgnn.nn import Adjacency
from gistgnn.planning.ledger import DISK, DISK_DEVICE, Account, SparseProduct, Work, filler, rehearsing
from gistgnn.planning.rates import flops, sparse_flops
from gistgnn.utils.process_memory import Kept

MIB = 2**20


def test_what_lives_is_counted_once_and_what_is_gone_is_not() -> None:
    with rehearsing() as ledger:
        account = ledger.account("cpu")
        x = torch.empty(1000, 100)
        assert account.live == 400_000
        rows = x[:10].t()
        assert account.live == 400_000
        y = x + 1
        assert account.live == 800_000
        del x
        assert account.live == 800_000  # the rows are part of it
        del rows, y
        assert account.live == 0
        assert account.top == 800_000


def test_phases_do_not_see_each_other_s_peaks_but_keep_what_the_c_library_keeps() -> None:
    with rehearsing() as ledger:
        filler(100 * MIB)
        filler(10 * MIB)
        first = ledger.peaks()
        large = filler(40 * MIB)
        second = ledger.peaks()
    assert first == {"cpu": 100 * MIB}
    assert second == {"cpu": (10 + 40) * MIB}
    del large


def test_memory_that_is_kept_has_a_limit() -> None:
    account = Account(Kept.under(None))
    for size in (20 * MIB, -20 * MIB):
        for _ in range(100):
            account.add(size)
    assert account.live == 0
    assert account.held == 1024 * MIB


def test_tensors_in_files_have_their_own_account() -> None:
    with rehearsing() as ledger:
        weight = torch.empty(50, 100, device=DISK_DEVICE)
        part = weight[:10].to("cpu")
        assert ledger.account(DISK).live == 20_000
        assert ledger.account("cpu").live == 4_000
    del part


def test_some_tensors_are_not_counted() -> None:
    with rehearsing() as ledger:
        with ledger.uncounted():
            weight = torch.empty(50, 100)
        out = torch.empty(10, 100) @ weight.t()
        assert ledger.account("cpu").live == 2_000  # of the result; its factor is gone
    del out


def total(work: Work) -> int:
    sparse = sum(sparse_flops(product) * times for product, times in work.sparse.items())
    return sparse + sum(flops(product) * times for product, times in work.products.items())


def test_products_are_counted_forward_and_backward() -> None:
    with rehearsing() as ledger:
        layer, x = nn.Linear(30, 20), torch.empty(7, 30)
        with ledger.observed("cpu") as work:
            F.relu(layer(x)).sum().backward()
    assert total(work) == 2 * (2 * 7 * 30 * 20)  # x needs no gradient
    assert sum(work.products.values()) == 2


def test_sparse_products_are_counted_by_their_entries() -> None:
    with rehearsing() as ledger:
        adj = Adjacency(torch.empty(2, 50, dtype=torch.int64), 9)
        h = torch.empty(9, 4, requires_grad=True)
        with ledger.observed("cpu") as work:
            (adj.mean @ h).sum().backward()
            adj.gcn @ h
    assert work.sparse == {SparseProduct(50, 9, 4): 2, SparseProduct(59, 9, 4): 1}
    assert total(work) == 2 * 4 * (50 + 50 + (50 + 9))
