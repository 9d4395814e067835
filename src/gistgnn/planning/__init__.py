"""What a run would take of memory, disk and time, found without running it."""

from gistgnn.planning.plan import Option, Plan, Resources, Seconds, make_plan
from gistgnn.planning.refusal import require_room
from gistgnn.planning.sizes import GraphSizes

__all__ = ["GraphSizes", "Option", "Plan", "Resources", "Seconds", "make_plan", "require_room"]
