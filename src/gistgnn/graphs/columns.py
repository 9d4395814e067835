"""Columns of features that may not be what their user meant.

They hold numbers that float32 rounds, or number the rows.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

log = logging.getLogger(__name__)

_ROWS = 2**16  # rows that are looked at for what float32 loses
_NUMBERS = 2**22  # entries that are looked at for numbers of rows, before whole columns are
_EXACT_FLOAT32 = 2**24  # up to here float32 has every whole number
_EXACT_FLOAT64 = 2**53
_SHUFFLED = 10  # with fewer rows, their numbers may be those from 1 on by chance
_NAMED = 5  # columns that one note names


class Rounding:
    """What float32 loses of the columns of features, whose rows may come in blocks.

    These are two kinds of columns: values that lie closer together than float32 can tell apart, and
    whole numbers beyond 2^24, such as ids and times in seconds.
    """

    def __init__(self) -> None:
        self._count = 0
        # By column, one of its whole numbers, and what float32 makes of it.
        self._examples: dict[int, tuple[int, float]] = {}

    def add(self, x: Tensor) -> None:
        """Look at some rows of a block of features: [n, F]."""
        if x.dtype not in (torch.float64, torch.int64, torch.int32):
            return  # float32 has all values of the other types
        some = x[:: max(1, len(x) // _ROWS)]
        rows = some.double()
        if not self._count:
            self._origin = rows[0].clone()  # sums of differences to it stay exact
            self._sum = torch.zeros_like(self._origin)
            self._squares = torch.zeros_like(self._origin)
            self._most_lost = torch.zeros_like(self._origin)
            self._is_whole = torch.ones_like(self._origin, dtype=torch.bool)
        shifted = rows - self._origin
        self._count += len(rows)
        self._sum += shifted.sum(dim=0)
        self._squares += shifted.square().sum(dim=0)
        lost = (rows.float() - rows).abs()
        self._most_lost = torch.maximum(self._most_lost, lost.amax(dim=0))
        self._is_whole &= (rows == rows.floor()).all(dim=0)
        is_rounded = (rows.abs() > _EXACT_FLOAT32) & (lost > 0) | (rows.abs() > _EXACT_FLOAT64)
        is_rounded &= lost.isfinite() & self._is_whole  # what is infinite is refused
        for column in is_rounded.any(dim=0).nonzero().flatten().tolist():
            row = int(is_rounded[:, column].nonzero()[0])
            self._examples.setdefault(
                column, (int(some[row, column]), float(rows[row, column].float()))
            )

    def losses(self) -> dict[int, str]:
        """Return what is lost, by the number of the column."""
        if not self._count:
            return {}
        mean = self._sum / self._count
        spread = (self._squares / self._count - mean.square()).clamp(min=0).sqrt()
        mean += self._origin
        is_flat = (
            (self._most_lost > spread / 8)
            & (spread > 1e-12 * mean.abs())
            & self._most_lost.isfinite()
        )
        losses = {}
        for column in range(len(mean)):
            if is_flat[column]:
                around = f"varies by {spread[column]:.3g} around {mean[column]:.9g}"
                losses[column] = (
                    f"{around}, less than float32 can tell apart there: subtract its mean before"
                )
            elif column in self._examples and self._is_whole[column]:
                value, rounded = self._examples[column]
                losses[column] = (
                    f"has whole numbers such as {value}, which float32 makes {rounded:.0f}: leave "
                    "ids out; of times take the difference to the first, of amounts the logarithm"
                )
        return losses


def suspects(x: Tensor) -> Tensor:
    """Return the columns of a CSR tensor that `Rounding` and `counting_columns` have to look at.

    A column with two rows of 0 does not number the rows, and its values differ by more than float32
    rounds. So what is left are columns with fewer zeros, and whole numbers beyond 2^24.
    """
    rows, columns = x.shape
    col = x.col_indices().long()
    values = x.values()
    is_full = torch.bincount(col, minlength=columns) >= rows - 1
    is_large = values.double().abs() > _EXACT_FLOAT32
    is_full[col[is_large]] = True
    return is_full.nonzero().flatten()


def counting_columns(x: Tensor) -> list[int]:
    """Return the columns of ``x`` [N, F] that number the rows.

    They hold N whole numbers without a gap, in any order.
    """
    count = len(x)
    if count < 3:
        return []
    head = x[: max(3, _NUMBERS // x.shape[1])].double()
    in_order = (head.diff(dim=0) == 1).all(dim=0)
    is_whole = (head == head.floor()).all(dim=0)
    lowest, highest = head.aminmax(dim=0)
    span = highest - lowest
    may_be_shuffled = (
        is_whole & (span >= len(head) - 1) & (span <= count - 1) & (count >= _SHUFFLED)
    )
    return [
        column
        for column in (in_order | may_be_shuffled).nonzero().flatten().tolist()
        if _numbers_rows(x[:, column].double(), is_in_order=bool(in_order[column]))
    ]


def _numbers_rows(column: Tensor, *, is_in_order: bool) -> bool:
    if is_in_order:
        return bool((column.diff() == 1).all())
    places = column - column.min()
    # An infinite value is equal to its floor, and no integer.
    if bool((places != places.floor()).any()) or float(places.max()) != len(column) - 1:
        return False
    return bool((torch.bincount(places.long(), minlength=len(column)) == 1).all())


def note_columns(
    rounded: Mapping[int, str], counting: Iterable[int], names: Sequence[str] = (), name: str = "x"
) -> None:
    """Log a note on columns of features.

    ``names`` has the names of all columns, or there are none.
    """
    titles = {
        column: names[column] if names else f"{name}[:, {column}]"
        for column in (*rounded, *counting)
    }
    for column, loss in list(rounded.items())[:_NAMED]:
        log.warning("%s %s", titles[column], loss)
    if others := list(rounded)[_NAMED:]:
        log.warning("%s: float32 loses digits of %d more columns like these", name, len(others))
    if numbers := list(counting):
        shown = ", ".join(titles[column] for column in numbers[:_NAMED])
        log.warning(
            "%s numbers the rows, and is trained on as a feature: a model may learn the order of "
            "the rows; leave it out (pandas writes it without index=False)",
            shown,
        )
