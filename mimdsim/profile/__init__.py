"""What a run cost (door 2 of ARCHITECTURE.md). Records that reports read; no engines, no machines.

`RunProfile` is what `profile.json` holds; the columns of single tiles beside it are in `profile.detail`, which needs
numpy. Loading one validates every field, so a report can be drawn from someone else's file.
"""

from mimdsim.profile.ratios import UncertainSeconds, ratio, ratio_of, seconds_by_source
from mimdsim.profile.records import (
    FIRING,
    MAPPING_FILE,
    Activity,
    Assumption,
    Change,
    Doubt,
    EnergyPart,
    EnergyProfile,
    Finding,
    GpuProfile,
    Inference,
    InferenceTime,
    KernelSpan,
    Liveness,
    MemoryProfile,
    NamedFile,
    RunProfile,
    SiliconPart,
    SiliconProfile,
    Span,
    Sparsity,
    TileColumns,
    TiledProfile,
    Training,
    WhatIf,
)
from mimdsim.profile.store import load_profile, save_profile

__all__ = [
    "FIRING",
    "MAPPING_FILE",
    "Activity",
    "Assumption",
    "Change",
    "Doubt",
    "EnergyPart",
    "EnergyProfile",
    "Finding",
    "GpuProfile",
    "Inference",
    "InferenceTime",
    "KernelSpan",
    "Liveness",
    "MemoryProfile",
    "NamedFile",
    "RunProfile",
    "SiliconPart",
    "SiliconProfile",
    "Span",
    "Sparsity",
    "TileColumns",
    "TiledProfile",
    "Training",
    "UncertainSeconds",
    "WhatIf",
    "load_profile",
    "ratio",
    "ratio_of",
    "save_profile",
    "seconds_by_source",
]
