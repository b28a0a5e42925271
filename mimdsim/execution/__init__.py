"""The functional engine. Executes a lowered program for real values, vertex by vertex, on their slices."""

from mimdsim.execution.activity import activity_problem, activity_profiles, constant_layers, run_recorded
from mimdsim.execution.checkpoint import UNKNOWN_CODE, Checkpoints
from mimdsim.execution.engines import RateSchedule, engine_refusals, scheduled_values
from mimdsim.execution.execute import Executor
from mimdsim.execution.initial import InitialActivity, scaled_to_activity
from mimdsim.execution.strict import execute_strictly
from mimdsim.execution.trainer import (
    Evaluation,
    TrainingLog,
    TrainingPlan,
    draw_randomness,
    evaluate,
    initial_weights,
    load_batch,
    train,
    without_smallest,
)
from mimdsim.execution.whole_tensors import WholeTensors

__all__ = [
    "UNKNOWN_CODE",
    "Checkpoints",
    "Evaluation",
    "Executor",
    "InitialActivity",
    "RateSchedule",
    "TrainingLog",
    "TrainingPlan",
    "WholeTensors",
    "activity_problem",
    "activity_profiles",
    "constant_layers",
    "draw_randomness",
    "engine_refusals",
    "evaluate",
    "execute_strictly",
    "initial_weights",
    "load_batch",
    "run_recorded",
    "scaled_to_activity",
    "scheduled_values",
    "train",
    "without_smallest",
]
