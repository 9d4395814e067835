"""Many training runs on one machine, and the table that compares them.

Names are imported at their first use, because the modules import torch.
"""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.compare.comparison import Row, by_seeds, compare, rows_of, score_of, seconds_to, with_seeds
    from gistgnn.compare.many_runs import RunStore
    from gistgnn.compare.on_ranks import RunsOnRanks, records_on_ranks
    from gistgnn.compare.processes import Record
    from gistgnn.compare.tables import as_markdown, speedup

__all__ = ["Record", "Row", "RunStore", "RunsOnRanks", "as_markdown", "by_seeds", "compare", "records_on_ranks"]
__all__ += ["rows_of", "score_of", "seconds_to", "speedup", "with_seeds"]
_HOMES = {
    **dict.fromkeys(["Row", "by_seeds", "compare", "rows_of", "score_of", "seconds_to", "with_seeds"], "comparison"),
    "Record": "processes",
    "RunStore": "many_runs",
    **dict.fromkeys(["RunsOnRanks", "records_on_ranks"], "on_ranks"),
    **dict.fromkeys(["as_markdown", "speedup"], "tables"),
}
__getattr__ = lazy_attributes(__name__, _HOMES)
