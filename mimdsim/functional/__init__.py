"""Floor 5: the functional engine. Executes a lowered program for real values, vertex by vertex, on their slices."""

from mimdsim.functional.execute import Executor
from mimdsim.functional.strict import execute_strictly
from mimdsim.functional.train import TrainingLog, evaluate, initial_weights, train

__all__ = ["Executor", "TrainingLog", "evaluate", "execute_strictly", "initial_weights", "train"]
