"""From the training graph to a program on tiles, pass by pass.

place -> lower -> merge supersteps -> plan exchanges -> verify -> measure memory. `compile.py` runs the passes.
"""

from mimdsim.compiler.compile import Compiled, compile_graph
from mimdsim.compiler.fitting import fits_executable
from mimdsim.compiler.passes.liveness import Memory, measure_memory
from mimdsim.compiler.place.lists import Placement, place
from mimdsim.program.exchanges import plan_exchanges

__all__ = [
    "Compiled",
    "Memory",
    "Placement",
    "compile_graph",
    "fits_executable",
    "measure_memory",
    "place",
    "plan_exchanges",
]
