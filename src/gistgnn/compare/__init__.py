"""Many training runs on one machine, and the table that compares them."""

from gistgnn.compare.comparison import Row, as_markdown, by_seeds, compare, rows_of, score_of, seconds_to, speedup
from gistgnn.compare.many_runs import Record, RunsOnRanks, RunStore, records_on_ranks, with_seeds

__all__ = ["Record", "Row", "RunStore", "RunsOnRanks", "as_markdown", "by_seeds", "compare", "records_on_ranks"]
__all__ += ["rows_of", "score_of", "seconds_to", "speedup", "with_seeds"]
