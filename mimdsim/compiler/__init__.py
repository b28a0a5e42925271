"""From the training graph to a program on tiles, pass by pass.

place -> lower -> merge supersteps -> plan exchanges -> verify -> measure memory. `compile.py` runs the passes.
"""

from mimdsim.compiler.compile import Compiled, Watch, compile_graph, merged_program
from mimdsim.compiler.liveness import Memory, measure_memory, memory_of
from mimdsim.compiler.memory_report import fits_executable, memory_profile
from mimdsim.compiler.place.layer_partition import Placement
from mimdsim.compiler.place.placement import place
from mimdsim.program.exchanges import plan_exchanges

__all__ = [
    "Compiled",
    "Memory",
    "Placement",
    "Watch",
    "compile_graph",
    "fits_executable",
    "measure_memory",
    "memory_of",
    "memory_profile",
    "merged_program",
    "place",
    "plan_exchanges",
]
