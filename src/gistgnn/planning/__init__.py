"""What a run takes of memory, disk and time, before it starts."""

from gistgnn.graphs.sizes import GraphSizes
from gistgnn.planning.forecast import PhasedPlan, Plan, Resources, make_plan
from gistgnn.planning.option import Option
from gistgnn.planning.phases import PhaseOption, Total
from gistgnn.planning.refusal import ample_bytes, out_of_memory, peak_bytes, require_room
from gistgnn.planning.spread import Network, Spread, spread

__all__ = ["GraphSizes", "Network", "Option", "PhaseOption", "PhasedPlan", "Plan", "Resources", "Spread", "Total"]
__all__ += ["ample_bytes", "make_plan", "out_of_memory", "peak_bytes", "require_room", "spread"]
