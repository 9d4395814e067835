"""A run of the command line: its configuration, and its folder. Names are imported at their first use."""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.runs.config import ModelConfig, RunConfig

__all__ = ["ModelConfig", "RunConfig"]
__getattr__ = lazy_attributes(__name__, dict.fromkeys(__all__, "config"))
