"""The functional engine. Executes a lowered program for real values, vertex by vertex, on their slices."""

from mimdsim.functional.activity import activity_problem, activity_profiles, constant_layers
from mimdsim.functional.checkpoint import UNKNOWN_CODE, Checkpoints
from mimdsim.functional.engines import engine_refusals
from mimdsim.functional.execute import Executor
from mimdsim.functional.initial import InitialActivity, scaled_to_activity
from mimdsim.functional.schedules import RateSchedule
from mimdsim.functional.strict import execute_strictly
from mimdsim.functional.train import Evaluation, TrainingLog, TrainingPlan, evaluate, initial_weights, train
from mimdsim.functional.whole_tensors import WholeTensors

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
    "engine_refusals",
    "evaluate",
    "execute_strictly",
    "initial_weights",
    "scaled_to_activity",
    "train",
]
