"""The memory, disk and time of a run, estimated before it starts by closed formulas of sizes."""

from gistgnn.estimate.memory import Resources
from gistgnn.estimate.plan import PLACES, Option, Plan, chosen_store, make_plan, out_of_memory, require_room

__all__ = ["PLACES", "Option", "Plan", "Resources", "chosen_store", "make_plan", "out_of_memory", "require_room"]
