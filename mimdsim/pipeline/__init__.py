"""One complete run, from descriptions to a profile."""

from mimdsim.compiler import memory_profile
from mimdsim.pipeline.detail import detail_of
from mimdsim.pipeline.identity import config_digest, descriptions_of
from mimdsim.pipeline.inference import infer_single_samples
from mimdsim.pipeline.pipeline import compile_workload, open_data, simulate, train_workload
from mimdsim.pipeline.result import Run
from mimdsim.pipeline.retiming import Programs, retime, time_by_hand, time_on_gpus

__all__ = [
    "Programs",
    "Run",
    "compile_workload",
    "config_digest",
    "descriptions_of",
    "detail_of",
    "infer_single_samples",
    "memory_profile",
    "open_data",
    "retime",
    "simulate",
    "time_by_hand",
    "time_on_gpus",
    "train_workload",
]
