"""Many training runs on one machine, and the table that compares them."""

from gistgnn.compare.comparison import (
    Row,
    as_markdown,
    by_seeds,
    compare,
    rows_of,
    score_of,
    speedup,
)
from gistgnn.compare.many_runs import RunStore, with_seeds
from gistgnn.compare.on_ranks import records_on_ranks, train_on_ranks
from gistgnn.storage.record import Record

__all__ = [
    "Record",
    "Row",
    "RunStore",
    "as_markdown",
    "by_seeds",
    "compare",
    "records_on_ranks",
    "rows_of",
    "score_of",
    "speedup",
    "train_on_ranks",
    "with_seeds",
]
