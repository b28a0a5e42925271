"""One training step on a GPU: every kernel of the lowered graph timed, input copies, the interval, the assumptions."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, get_args

from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError, suggest
from mimdsim.base.schema import sourced_numbers
from mimdsim.base.units import dimension, show_bytes
from mimdsim.gpu import elementwise, gemm
from mimdsim.gpu.elementwise import CUDNN_PERSISTENT, Direction, RecurrentLayer, persistent_seconds
from mimdsim.gpu.energy import gpu_energy
from mimdsim.gpu.kernels import InputEncoding, Kernel, Lowered, Product, Recurrent, Stream
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.sparse_kernels import ListKernel, list_kernel_seconds, list_walk_seconds
from mimdsim.gpu.strategies import STRATEGIES, Strategy, find_strategy
from mimdsim.graph.records import Graph
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision
from mimdsim.profile.records import Assumption, GpuProfile, KernelSpan
from mimdsim.program import RecordedActivity

WALK_SECONDS = 4e-6  # start and end of a kernel that walks the timesteps itself; assumed
AUTO = "auto"
SECTIONS = ("chip", "compute", "systolic", "memory", "launch", "host", "energy")


def time_on_gpu(
    graph: Graph,
    gpu: GpuMachine,
    *,
    strategy: str | Strategy,
    precision: Precision,
    input_encoding: InputEncoding = "as_graph",
    activity: RecordedActivity | None = None,
) -> GpuProfile:
    """The profile of one training step of `graph` on `gpu`; input copies overlap with the previous batch.

    `activity` is needed by strategies that follow lists of spikes; "auto" takes the fastest strategy that is legal.

    Raises DescriptionError for an unknown strategy, precision or encoding, MappingError if the strategy is not legal
    for the graph, DoesNotFit when the buffers exceed the device's memory.
    """
    if strategy == AUTO:
        return _fastest(graph, gpu, precision, input_encoding, activity)
    how = find_strategy(strategy)
    lowered = _lowered(graph, gpu, how, precision, input_encoding, activity)
    resident = lowered.working_set_bytes <= gemm.L2_RESIDENT_SHARE * gpu.memory.l2_bytes
    spans = tuple(_span(kernel, gpu, how, precision, resident) for kernel in lowered.kernels)
    pinned = how.host_rate == "pinned"
    rate = gpu.host.bytes_per_second if pinned else gpu.host.framework_bytes_per_second
    host_seconds = lowered.input_bytes / rate
    device_seconds = sum(span.seconds for span in spans)
    low, high = how.band[precision]
    # a copy is hidden behind the previous batch; at worst, a framework's pipeline hides nothing
    slowest = device_seconds * high
    return GpuProfile(
        machine=gpu.name,
        title=gpu.title,
        strategy=how.name,
        precision=precision,
        description=how.description,
        spans=spans,
        host_seconds=host_seconds,
        host_exposed_seconds=max(0.0, host_seconds - device_seconds),
        seconds_low=max(device_seconds * low, host_seconds),
        seconds_high=max(slowest, host_seconds) if pinned else slowest + host_seconds,
        bytes_needed=lowered.bytes_needed,
        memory_bytes=gpu.memory.capacity_bytes,
        energy=gpu_energy(
            gpu,
            lowered.kernels,
            spans,
            precision=precision,
            resident=resident,
            seconds=device_seconds + max(0.0, host_seconds - device_seconds),
            host_bytes=lowered.input_bytes,
        ),
        assumptions=(*_lowering_assumptions(how, precision, input_encoding, lowered, resident), *_machine_numbers(gpu)),
    )


def _lowered(
    graph: Graph,
    gpu: GpuMachine,
    how: Strategy,
    precision: Precision,
    input_encoding: InputEncoding,
    activity: RecordedActivity | None,
) -> Lowered:
    """The kernels, where the strategy is legal for graph and device and all buffers fit."""
    _check_choice("precision", precision, tuple(ELEMENT_BYTES))
    _check_choice("input encoding", input_encoding, get_args(InputEncoding))
    if gpu.systolic is not None and how.needs:
        raise MappingError(
            f"strategy '{how.name}' needs {how.needs}; {gpu.name} multiplies on systolic arrays: use the strategy "
            f"'hoisted', or 'graph_replay' where a layer recurs"
        )
    counts = activity.counts if how.lists and activity is not None else {}
    lowered = lower_to_kernels(graph, how, precision=precision, input_encoding=input_encoding, counts=counts)
    needed, capacity = lowered.bytes_needed, gpu.memory.capacity_bytes
    if needed > capacity:
        raise DoesNotFit(
            f"{gpu.name}, strategy '{how.name}', {precision}: the training step needs "
            f"{show_bytes(needed, capacity)} and the device has {show_bytes(capacity, needed)}; "
            f"use a smaller batch or fewer timesteps"
        )
    return lowered


def _fastest(
    graph: Graph,
    gpu: GpuMachine,
    precision: Precision,
    input_encoding: InputEncoding,
    activity: RecordedActivity | None,
) -> GpuProfile:
    """The fastest legal strategy; its assumptions list what was refused and why. Bounds are left out."""
    timed: list[GpuProfile] = []
    refused: list[Assumption] = []
    for name in STRATEGIES:
        try:
            timed.append(
                time_on_gpu(
                    graph, gpu, strategy=name, precision=precision, input_encoding=input_encoding, activity=activity
                )
            )
        except (MappingError, DoesNotFit) as why:
            refused.append(Assumption(name=f"not '{name}'", value="refused", kind="derived", source=str(why)))
    if not timed:
        why_not = "; ".join(one.source for one in refused)
        raise MappingError(f"{gpu.name}, {precision}: no strategy is legal: {why_not}")
    best = min(timed, key=lambda profile: profile.seconds_per_training_step)
    return replace(best, assumptions=(*best.assumptions, *refused))


def _check_choice(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise DescriptionError(f"GPU {what} '{given}'", [f"no such {what}{suggest(given, known)}"])


def _span(kernel: Kernel, gpu: GpuMachine, how: Strategy, precision: Precision, resident: bool) -> KernelSpan:
    once, launches = _launch(kernel, gpu, how, precision, resident), kernel.times
    if isinstance(kernel, ListKernel):
        launches *= kernel.launches
    return KernelSpan(
        name=kernel.name, op=kernel.op, phase=kernel.phase, times=launches, seconds=kernel.times * once.seconds,
        flops=kernel.times * once.flops, bytes_moved=round(kernel.times * once.bytes_moved), bound=once.bound,
    )  # fmt: skip


class _Launch(NamedTuple):
    """One launch of a kernel, or one round of several, and what limits it."""

    seconds: float
    flops: int
    bytes_moved: float
    bound: str


def _launch(kernel: Kernel, gpu: GpuMachine, how: Strategy, precision: Precision, resident: bool) -> _Launch:
    period = elementwise.launch_seconds(gpu, how.launching)
    if isinstance(kernel, Product):
        estimate = gemm.gemm_seconds(
            gpu,
            kernel.m,
            kernel.n,
            kernel.k,
            batch=kernel.batch,
            precision=precision,
            accumulate=kernel.accumulate,
            l2_resident=resident and kernel.repeated,
            aligned=kernel.aligned,
        )
        bound = estimate.bound if estimate.seconds >= period else "launch"
        return _Launch(max(estimate.seconds, period), estimate.flops, estimate.bytes_moved, bound)
    if isinstance(kernel, Stream):
        walking = WALK_SECONDS if kernel.walks_timesteps else 0.0
        stream = elementwise.elementwise_seconds(
            gpu, kernel.bytes_moved, launching=how.launching, fixed_seconds=walking
        )
        return _Launch(stream.seconds, kernel.flops, kernel.bytes_moved, stream.bound)
    if isinstance(kernel, Recurrent):  # its walk over the timesteps, and what else it streams
        layer = RecurrentLayer(neurons=kernel.neurons, gates=1, batch=kernel.batch, timesteps=kernel.timesteps)
        direction: Direction = "forward" if kernel.phase == "forward" else "backward_inputs"
        if kernel.entries is None:
            walked = persistent_seconds(gpu, layer, CUDNN_PERSISTENT, precision=precision, direction=direction)
        else:
            walked = list_walk_seconds(
                gpu, neurons=kernel.neurons, batch=kernel.batch, timesteps=kernel.timesteps, entries=kernel.entries,
                forward=direction == "forward",
            )  # fmt: skip
        streamed = elementwise.elementwise_seconds(gpu, kernel.bytes_moved, launching=how.launching).seconds
        bound = "launch" if walked > streamed else "memory"
        return _Launch(walked + streamed, kernel.flops, kernel.bytes_moved, bound)
    if isinstance(kernel, ListKernel):
        seconds, bound = list_kernel_seconds(kernel, gpu, period, resident)
        return _Launch(seconds, kernel.flops, kernel.l2_bytes + kernel.weight_bytes, bound)
    return _Launch(gpu.launch.host_synchronisation_seconds, 0, 0, "host")


def _lowering_assumptions(
    how: Strategy, precision: Precision, encoding: InputEncoding, lowered: Lowered, resident: bool
) -> tuple[Assumption, ...]:
    low, high = how.band[precision]
    overlap = "hidden behind the previous batch"
    if how.host_rate == "framework":
        overlap += "; at the upper end of the interval nothing is hidden"
    rows = (
        ("kernels", how.description, "assumed", how.source),
        ("matrix products", "on lists of spikes", "assumed", how.source) if how.lists else
        ("matrix products", "dense, also where the tiled machine works on spike lists", "derived", gemm.MODEL_SOURCE),
        ("streaming kernels", "launch period plus bytes", "derived", elementwise.MODEL_SOURCE),
        ("interval", f"{low:g} to {high:g} times the kernels' seconds", *_split_source(how.band_source)),
        (
            "weights and their gradients", f"{show_bytes(lowered.working_set_bytes)}, "
            f"{'in the L2' if resident else 'from DRAM'} in loops over timesteps", "assumed",
            f"L2 holds up to {gemm.L2_RESIDENT_SHARE:g} of its capacity from one timestep to the next",
        ),
        ("input copy", f"{show_bytes(lowered.input_bytes)} a batch, encoding '{encoding}', {overlap}", "assumed",
         "double buffering; ids and counts as int32, dense input as float32"),
        ("weight update", "fp32 in every precision", "assumed", "usual practice of mixed precision training"),
        ("memory", show_bytes(lowered.bytes_needed), "derived", "sum of all buffers, none reused"),
    )  # fmt: skip
    walking = Assumption(
        name="neuron kernels over time", value=f"{WALK_SECONDS * 1e6:g} us each and one pass per value",
        kind="assumed", source="fused kernels of the Triton class, loads issued ahead of the timestep that needs them",
    )  # fmt: skip
    named = tuple(Assumption(name=name, value=value, kind=kind, source=source) for name, value, kind, source in rows)
    return (*named, walking) if how.hoisted else named


def _split_source(text: str) -> tuple[str, str]:
    kind, _, where = text.partition(":")
    return kind, where.strip()


def _machine_numbers(gpu: GpuMachine) -> tuple[Assumption, ...]:
    """Every number of the machine with its source."""
    return tuple(
        Assumption(
            name=f"{gpu.name}.{section}.{field}",
            value=f"{value:g} {(dimension(field) or '').replace('_per_', '/')}".strip(),
            kind=kind,
            source=source,
        )
        for section, field, value, kind, source in sourced_numbers(gpu, SECTIONS)
    )
