"""One compiled program on many machines: compiled once for all that get the same one, timed with the same spikes."""

from __future__ import annotations

from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.compiler import Compiled, compile_graph, measure_memory, memory_profile
from mimdsim.gpu import time_on_gpu
from mimdsim.gpu.dependence import recurs
from mimdsim.gpu.kernels import InputEncoding, has_lists
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import Graph, SpikingNetwork, training_graph
from mimdsim.machine import GpuMachine, MimdMachine
from mimdsim.machine.gpu import Precision
from mimdsim.profile import GpuProfile, TiledProfile
from mimdsim.program import Program, RecordedActivity
from mimdsim.program.records import NO_SPIKES
from mimdsim.timing import time_program
from mimdsim.workload import MappingOptions, Workload, network_of


def retime(compiled: Compiled, machine: MimdMachine, activity: RecordedActivity) -> TiledProfile:
    """The same program and spikes on another machine with as many tiles; where it does not fit, the profile says so."""
    if not compiled.memory_reads.same_on(machine):
        compiled = compiled.measured(machine)
    memory = memory_profile(compiled.program, compiled.memory, machine)
    return time_program(compiled.program, machine, activity, memory, must_fit=False)


def time_by_hand(program: Program, machine: MimdMachine, activity: RecordedActivity = NO_SPIKES) -> TiledProfile:
    """A program that is no network's; raises DoesNotFit."""
    return time_program(program, machine, activity, memory_profile(program, measure_memory(program, machine), machine))


class Programs:
    """The programs compiled last, at most `most`: one that the compiler would make again is not made again."""

    def __init__(self, most: int = 4):
        self._most = most
        self._kept: list[tuple[MappingOptions, Compiled]] = []
        self._network: tuple[Workload, SpikingNetwork] | None = None

    def compiled(self, workload: Workload, machine: MimdMachine) -> Compiled:
        """As `compile_workload`, whether it fits or not; raises the same."""
        network, options = self._network_of(workload), workload.mapping
        for place, (of_options, one) in enumerate(self._kept):
            if of_options == options and one.network == network and (made := one.on(machine)) is not None:
                del self._kept[place]
                break
        else:
            made = compile_graph(training_graph(network), network, machine, options, must_fit=False)
        self._kept = [*self._kept[max(0, len(self._kept) + 1 - self._most) :], (options, made)]
        return made

    def _network_of(self, workload: Workload) -> SpikingNetwork:
        if self._network is None or self._network[0] is not workload:
            self._network = workload, network_of(workload)
        return self._network[1]


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
    ("lists_hoisted", "fp32"),
)


def time_on_gpus(
    graph: Graph, gpus: tuple[GpuMachine, ...], activity: RecordedActivity | None = None
) -> tuple[tuple[GpuProfile, ...], tuple[str, ...]]:
    """The strategies on every GPU; what a GPU cannot run is reported as a warning.

    Strategies that follow lists of spikes are left out without any, or without their `activity`.
    """
    profiles: list[GpuProfile] = []
    warnings: list[str] = []
    walks, follows = recurs(graph), activity is not None and has_lists(graph)
    for gpu in gpus:
        for strategy, precision in GPU_LINEUP:
            about = STRATEGIES[strategy]
            if about.lists and not follows:
                continue
            if about.hoisted and not about.lists and about.persistent != walks:
                continue  # either there is nothing to keep on the chip, or a product depends on itself through time
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
