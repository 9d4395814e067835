"""Small helpers that know nothing of graphs or GIST.

They are for prefetching, random streams, the console, memory and lazy imports.
"""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.utils.console import TaskProgress
    from gistgnn.utils.formats import duration, mean_sd, plural, size
    from gistgnn.utils.machine import describe_machine

__all__ = ["TaskProgress", "describe_machine", "duration", "mean_sd", "plural", "size"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "gistgnn.utils.console": ("TaskProgress",),
        "gistgnn.utils.formats": ("duration", "mean_sd", "plural", "size"),
        "gistgnn.utils.machine": ("describe_machine",),
    },
)
