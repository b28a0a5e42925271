"""One complete run, from descriptions to a profile."""

from mimdsim.base.called import make_called
from mimdsim.compiler import memory_profile
from mimdsim.run.cautions import beyond_sources, half_warning, other_costs, unscaled_energy, unused_chips
from mimdsim.run.detail import detail_of
from mimdsim.run.firing import layers_said
from mimdsim.run.gpus import GPU_LINEUP, time_on_gpus
from mimdsim.run.identity import config_digest, descriptions_of
from mimdsim.run.inputs import samples_said
from mimdsim.run.made import Run
from mimdsim.run.retiming import Programs, retime, retime_many
from mimdsim.run.walk import (
    compile_workload,
    is_worth_advice,
    open_data,
    simulate,
    train_workload,
)

__all__ = [
    "GPU_LINEUP",
    "Programs",
    "Run",
    "beyond_sources",
    "compile_workload",
    "config_digest",
    "descriptions_of",
    "detail_of",
    "half_warning",
    "is_worth_advice",
    "layers_said",
    "memory_profile",
    "open_data",
    "other_costs",
    "retime",
    "retime_many",
    "samples_said",
    "simulate",
    "time_on_gpus",
    "train_workload",
    "unscaled_energy",
    "unused_chips",
]

make_called(__name__)
