"""Floor 5: the timing engine. Tells time for a program and recorded activity; knows nothing of values or compilers.

loads -> fast (cycle sums of one chip) -> event (host and chip as processes; equal where nothing contends).
"""

from mimdsim.timing.event import stream_training_steps
from mimdsim.timing.fast import time_program
from mimdsim.timing.loads import program_loads

__all__ = ["program_loads", "stream_training_steps", "time_program"]
