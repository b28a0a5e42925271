"""The timing engine. Times a program with recorded activity; knows nothing of values or compilers.

worker_cycles -> critical_path (chips between barriers) -> analytic (the profile); discrete_event: host, chips and links
as processes, which agrees with the closed forms where there is no contention.
"""

from mimdsim.timing.analytic import GroupCycles, bundles_of, group_cycles, host_stream_seconds, time_program
from mimdsim.timing.discrete_event import ChipRun, global_exchange_seconds, run_chips, stream_training_steps
from mimdsim.timing.explain import explain
from mimdsim.timing.explanation import Explanation
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.tile_work import bytes_accessed, contexts_with_work, cycles_in_timesteps
from mimdsim.timing.worker_cycles import machine_loads, program_loads

__all__ = [
    "ChipRun",
    "Explanation",
    "GroupCycles",
    "TileIssue",
    "bundles_of",
    "bytes_accessed",
    "contexts_with_work",
    "cycles_in_timesteps",
    "explain",
    "global_exchange_seconds",
    "group_cycles",
    "host_stream_seconds",
    "machine_loads",
    "program_loads",
    "run_chips",
    "stream_training_steps",
    "time_program",
]
