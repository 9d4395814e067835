"""The memory, disk and time of a run, estimated before it starts by closed formulas of sizes."""

from gistgnn.estimate.memory import Memory
from gistgnn.estimate.plan import PLACES, SELDOM_BEST, Option, Plan, make_plan
from gistgnn.estimate.refusal import (
    chosen_store,
    out_of_memory,
    require_room,
    whole_model_fits,
)
from gistgnn.estimate.resources import Resources
from gistgnn.estimate.shapes import RunShape

__all__ = [
    "PLACES",
    "SELDOM_BEST",
    "Memory",
    "Option",
    "Plan",
    "Resources",
    "RunShape",
    "chosen_store",
    "make_plan",
    "out_of_memory",
    "require_room",
    "whole_model_fits",
]
