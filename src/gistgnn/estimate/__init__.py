"""The memory, disk and time of a run, estimated before it starts by closed formulas of sizes."""

from gistgnn.estimate.memory import Resources
from gistgnn.estimate.plan import Option, Plan, make_plan, out_of_memory, require_room

__all__ = ["Option", "Plan", "Resources", "make_plan", "out_of_memory", "require_room"]
