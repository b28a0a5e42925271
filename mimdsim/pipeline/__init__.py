"""One complete run, from descriptions to a profile."""

from mimdsim.compiler import memory_profile
from mimdsim.pipeline.detail import detail_of
from mimdsim.pipeline.firing import constant_layer_texts
from mimdsim.pipeline.identity import config_digest, descriptions_of
from mimdsim.pipeline.inputs import sample_warnings
from mimdsim.pipeline.pipeline import (
    compile_workload,
    is_worth_advice,
    open_data,
    simulate,
    train_workload,
)
from mimdsim.pipeline.result import Run
from mimdsim.pipeline.retiming import Programs, retime, time_on_gpus
from mimdsim.pipeline.warnings import half_warning, machine_warnings

__all__ = [
    "Programs",
    "Run",
    "compile_workload",
    "config_digest",
    "constant_layer_texts",
    "descriptions_of",
    "detail_of",
    "half_warning",
    "is_worth_advice",
    "machine_warnings",
    "memory_profile",
    "open_data",
    "retime",
    "sample_warnings",
    "simulate",
    "time_on_gpus",
    "train_workload",
]
