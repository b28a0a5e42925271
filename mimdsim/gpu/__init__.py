"""The training graph on a GPU, lowered to kernels and timed; the yardstick for the tiled machine."""

from mimdsim.gpu.engine import time_on_gpu
from mimdsim.gpu.strategies import STRATEGIES, find_strategy

__all__ = ["STRATEGIES", "find_strategy", "time_on_gpu"]
