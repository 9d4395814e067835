"""Many training runs on one machine, and the table that compares them.

Names are imported at their first use, because the modules import torch.
"""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.compare.comparison import Row, as_markdown, by_seeds, compare, rows_of, score_of, seconds_to, speedup
    from gistgnn.compare.many_runs import Record, RunStore, with_seeds
    from gistgnn.compare.on_ranks import RunsOnRanks, records_on_ranks

_NAMES = {
    "comparison": ["Row", "as_markdown", "by_seeds", "compare", "rows_of", "score_of", "seconds_to", "speedup"],
    "many_runs": ["Record", "RunStore", "with_seeds"],
    "on_ranks": ["RunsOnRanks", "records_on_ranks"],
}
__all__ = ["Record", "Row", "RunStore", "RunsOnRanks", "as_markdown", "by_seeds", "compare", "records_on_ranks"]
__all__ += ["rows_of", "score_of", "seconds_to", "speedup", "with_seeds"]
__getattr__ = lazy_attributes(__name__, {name: home for home, names in _NAMES.items() for name in names})
