"""The training graph on GPUs: the strategies of every comparison."""

from __future__ import annotations

from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.gpu import time_on_gpu
from mimdsim.gpu.dependence import recurs
from mimdsim.gpu.inputs import InputEncoding
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import Graph
from mimdsim.machine import GpuMachine
from mimdsim.machine.gpu import Precision
from mimdsim.profile import GpuProfile
from mimdsim.program import RecordedActivity

# every comparison shows the published baseline and a strong one, so that the baseline is not a straw man
GPU_LINEUP: tuple[tuple[str, Precision], ...] = (
    ("as_published", "tf32"),
    ("as_published_synchronised", "tf32"),
    ("graph_replay", "tf32"),
    ("hoisted", "fp32"),
    ("hoisted", "tf32"),
    ("hoisted", "fp16"),
    ("persistent", "tf32"),
    ("persistent", "fp16"),
    ("lists_as_written", "fp32"),
    ("lists_ideal", "fp32"),
)


def time_on_gpus(
    graph: Graph, gpus: tuple[GpuMachine, ...], activity: RecordedActivity | None = None
) -> tuple[tuple[GpuProfile, ...], tuple[str, ...]]:
    """The strategies on every GPU; what a GPU cannot run is reported as a warning.

    Strategies that follow lists of spikes need `activity` and are left out without it.
    """
    profiles: list[GpuProfile] = []
    warnings: list[str] = []
    walks = recurs(graph)
    for gpu in gpus:
        for strategy, precision in GPU_LINEUP:
            about = STRATEGIES[strategy]
            if activity is None and about.lists:
                continue
            if about.persistent and not walks:
                continue  # nothing to keep on the chip: the same as hoisted
            try:
                encoding: InputEncoding = "dense" if about.copies_dense_input else "as_graph"
                profiles.append(
                    time_on_gpu(
                        graph,
                        gpu,
                        strategy=strategy,
                        precision=precision,
                        input_encoding=encoding,
                        activity=activity,
                    )
                )
            except (DoesNotFit, MappingError, DescriptionError) as refusal:
                warnings.append(f"{gpu.name}, {strategy}, {precision}: left out, {refusal}")
    return tuple(profiles), tuple(warnings)
