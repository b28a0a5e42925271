"""One training step on a GPU: every kernel of the lowered graph timed, input copies, the interval, the assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.base.residuals import residuals_of
from mimdsim.base.schema import sourced_numbers
from mimdsim.base.units import dimension, show_bytes
from mimdsim.costs.area_power import energy_profile
from mimdsim.gpu import convolution, elementwise, gemm
from mimdsim.gpu.convolution import ConvolutionPass, convolution_seconds
from mimdsim.gpu.elementwise import (
    CUDNN_PERSISTENT,
    L2_FOOTPRINT_SHARE,
    Direction,
    RecurrentLayer,
    elementwise_seconds,
    launch_seconds,
    persistent_seconds,
)
from mimdsim.gpu.gemm import KernelTime, gemm_seconds
from mimdsim.gpu.kernels import WORD_BYTES, InputEncoding, Kernel, KernelProgram, ListKernel, Product, Recurrent, Stream
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.strategies import PLANES_SOURCE, STRATEGIES, Strategy, check_choice, find_strategy
from mimdsim.graph.records import Graph
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision
from mimdsim.profile.records import Assumption, EnergyProfile, GpuProfile, KernelSpan
from mimdsim.program import RecordedActivity

WALK_SECONDS = 4e-6  # start and end of a kernel that walks the timesteps itself; assumed
# One block that follows its sample's lists through the timesteps: bytes of rows a cycle, and what comes beside them;
# measured on an H100 by benchmarks/gpu/measure_steps.py
WALK_BYTES_PER_CYCLE = 16
FORWARD_LOADS, BACKWARD_LOADS = 6, 9  # latencies of the L2 in the chain of a timestep
FORWARD_NEURON_CYCLES, BACKWARD_NEURON_CYCLES = 2.0, 3.5
AUTO = "auto"
SECTIONS = ("chip", "compute", "systolic", "memory", "launch", "host", "energy")

AS_HALVES = Assumption(
    name="bf16",
    value="bytes and time of fp16",
    kind="published",
    source="data sheets since the A100 give both the same peak; products of a library may differ by some percent",
)
NARROW = {
    name: Assumption(
        name=name,
        value="products of the forward pass at its rate; bytes, and all else, as fp16",
        kind="assumed",
        source="spikes are exact in it, sums are wider; gradients would not be, and stay halves; converting a copy of "
        "the weights is counted where network.weight_format is given",
    )
    for name in ("fp8", "int8")
}


def time_on_gpu(
    graph: Graph,
    gpu: GpuMachine,
    *,
    strategy: str | Strategy,
    precision: Precision | Literal["bf16", "fp8", "int8"],
    input_encoding: InputEncoding = "as_graph",
    activity: RecordedActivity | None = None,
) -> GpuProfile:
    """The profile of one training step of `graph` on `gpu`; input copies overlap with the previous batch.

    `activity` is needed by strategies that follow lists of spikes; "auto" takes the fastest strategy that is legal.
    "bf16" takes the bytes and the time of "fp16"; so do "fp8" and "int8", but for products with spikes, which are exact
    in them and go at their rate.

    Raises DescriptionError for an unknown strategy, precision or encoding, MappingError if the strategy is not legal
    for the graph or the device has no such products, DoesNotFit when the buffers exceed the device's memory.
    """
    about: dict[str, Any] = {"input_encoding": input_encoding, "activity": activity}
    if precision == "bf16" or precision == "fp8" or precision == "int8":
        if precision == "bf16" and not gpu.has_bfloat16:
            raise MappingError(f"{gpu.name} does not multiply bf16, which came with TF32: use 'fp16' or 'fp32'")
        forward, why = (gpu, AS_HALVES) if precision == "bf16" else (_at_rate_of(gpu, precision), NARROW[precision])
        made = _time(graph, gpu, forward, strategy, "fp16", **about)
        return replace(made, precision=precision, assumptions=(why, *made.assumptions))
    return _time(graph, gpu, gpu, strategy, precision, **about)


def _at_rate_of(gpu: GpuMachine, precision: str) -> GpuMachine:
    """The device with products of halves as fast as those of a format of a byte."""
    if (rate := getattr(gpu.compute, key := f"{precision}_flops_per_cycle")) is None:
        raise MappingError(f"{gpu.name} gives no rate of products in {precision} (compute.{key}): use 'fp16'")
    return gpu.model_copy(update={"compute": gpu.compute.model_copy(update={"fp16_flops_per_cycle": rate})})


def _time(
    graph: Graph,
    gpu: GpuMachine,
    forward: GpuMachine,
    strategy: str | Strategy,
    precision: Precision,
    *,
    input_encoding: InputEncoding,
    activity: RecordedActivity | None,
) -> GpuProfile:
    """forward: the device as products of the forward pass find it."""
    if strategy == AUTO:

        def timed(strategy: str) -> GpuProfile:
            return _time(graph, gpu, forward, strategy, precision, input_encoding=input_encoding, activity=activity)

        return _fastest_strategy(timed, f"{gpu.name}, {precision}")
    how = find_strategy(strategy)
    lowered = _lower(graph, gpu, how, precision, input_encoding, activity)
    resident = lowered.working_set_bytes <= gemm.L2_RESIDENT_SHARE * gpu.memory.l2_bytes
    spans = tuple(
        _span(kernel, forward if kernel.phase == "forward" else gpu, how, precision, resident)
        for kernel in lowered.kernels
    )
    pinned = how.host_rate == "pinned"
    rate = gpu.host.bytes_per_second if pinned else gpu.host.framework_bytes_per_second
    host_seconds = lowered.input_bytes / rate
    device_seconds = sum(span.seconds for span in spans)
    residuals = residuals_of("GPU training step")
    low, high = (end**residuals.factor for end in how.interval(precision, convolutions=lowered.convolves))
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
        residuals=residuals,
        bytes_needed=lowered.bytes_needed,
        never_built=how.never_built,
        memory_bytes=gpu.memory.capacity_bytes,
        energy=_energy(
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


def _lower(
    graph: Graph,
    gpu: GpuMachine,
    how: Strategy,
    precision: Precision,
    input_encoding: InputEncoding,
    activity: RecordedActivity | None,
) -> KernelProgram:
    """The kernels, where the strategy is legal for graph and device and all buffers fit."""
    check_choice("precision", precision, ELEMENT_BYTES)
    check_choice("input encoding", input_encoding, get_args(InputEncoding))
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


def _fastest_strategy(timed_by: Callable[..., GpuProfile], where: str) -> GpuProfile:
    """The fastest legal strategy; its assumptions list what was refused and why. Bounds are left out."""
    timed: list[GpuProfile] = []
    refused: list[Assumption] = []
    for name, about in STRATEGIES.items():
        if about.never_built:
            continue
        try:
            timed.append(timed_by(strategy=name))
        except (MappingError, DoesNotFit) as why:
            refused.append(Assumption(name=f"not '{name}'", value="refused", kind="derived", source=str(why)))
    if not timed:
        raise MappingError(f"{where}: no strategy is legal: {'; '.join(one.source for one in refused)}")
    best = min(timed, key=lambda profile: profile.seconds_per_training_step)
    return replace(best, assumptions=(*best.assumptions, *refused))


def _span(kernel: Kernel, gpu: GpuMachine, how: Strategy, precision: Precision, resident: bool) -> KernelSpan:
    once, launches = _time_kernel(kernel, gpu, how, precision, resident), kernel.times
    if isinstance(kernel, ListKernel):
        launches *= kernel.launches
    return KernelSpan(
        name=kernel.name, op=kernel.op, phase=kernel.phase, times=launches, seconds=kernel.times * once.seconds,
        flops=kernel.times * once.flops, bytes_moved=round(kernel.times * once.bytes_moved), bound=once.bound,
    )  # fmt: skip


def _time_kernel(kernel: Kernel, gpu: GpuMachine, how: Strategy, precision: Precision, resident: bool) -> KernelTime:
    """One launch of a kernel, or one round of several."""
    period = launch_seconds(gpu, how.launching)
    if isinstance(kernel, Product):
        if kernel.convolution is not None:
            return _time_convolution(kernel, kernel.convolution, gpu, how, precision, resident)
        product = gemm_seconds(
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
        if how.launching == "graph":  # whose kernels wait for each other
            return replace(product, seconds=period + product.seconds)
        return product if product.seconds >= period else replace(product, seconds=period, bound="launch")
    if isinstance(kernel, Stream):
        walking = WALK_SECONDS if kernel.walks_timesteps else 0.0
        stream = elementwise_seconds(gpu, kernel.bytes_moved, launching=how.launching, fixed_seconds=walking)
        return replace(stream, flops=kernel.flops)
    if isinstance(kernel, Recurrent):  # its walk over the timesteps, and what else it streams
        direction: Direction = "forward" if kernel.phase == "forward" else "backward_inputs"
        if kernel.entries is None:
            walked = persistent_seconds(gpu, kernel, CUDNN_PERSISTENT, precision=precision, direction=direction)
        else:
            walked = list_walk_seconds(gpu, kernel, entries=kernel.entries, forward=direction == "forward")
        streamed = elementwise_seconds(gpu, kernel.bytes_moved, launching=how.launching)
        bound = "launch" if walked > streamed.seconds else "memory"
        return replace(streamed, seconds=walked + streamed.seconds, flops=kernel.flops, bound=bound)
    if isinstance(kernel, ListKernel):
        return _time_list_kernel(kernel, gpu, period, resident)
    return KernelTime(seconds=gpu.launch.host_synchronisation_seconds, bound="host", bytes_moved=0)


def _time_convolution(
    kernel: Product, each: ConvolutionPass, gpu: GpuMachine, how: Strategy, precision: Precision, resident: bool
) -> KernelTime:
    """The library does not add to what is there, as its products do: that is a kernel of its own."""
    found = convolution_seconds(gpu, each, precision=precision, l2_resident=resident and kernel.repeated)
    if not kernel.accumulate:
        return found
    weights = 3 * kernel.m * kernel.n * ELEMENT_BYTES[precision]
    added = elementwise_seconds(gpu, weights, launching=how.launching)
    return replace(found, seconds=found.seconds + added.seconds, bytes_moved=found.bytes_moved + weights)


def _time_list_kernel(kernel: ListKernel, gpu: GpuMachine, period_seconds: float, resident: bool) -> KernelTime:
    """One round; weights stream from the L2 when they are `resident` there."""
    memory = gpu.memory
    rate = memory.l2_streaming_bytes_per_second if resident else memory.dram_bytes_per_second * memory.streaming_share
    streaming = kernel.weight_bytes / rate
    gathering = kernel.l2_bytes / (kernel.l2_share * memory.l2_bytes_per_second)
    working = max(kernel.serial_cycles / gpu.chip.clock_hz, gathering)
    launching = kernel.launches * period_seconds
    waiting = kernel.host_waits * gpu.launch.host_synchronisation_seconds
    parts = {"launch": launching, "host": waiting, "memory": streaming + working}
    return KernelTime(
        seconds=sum(parts.values()),
        bound=max(parts, key=lambda name: parts[name]),
        flops=kernel.flops,
        bytes_moved=kernel.l2_bytes + kernel.weight_bytes,
    )


def list_walk_seconds(gpu: GpuMachine, layer: RecurrentLayer, *, entries: float, forward: bool) -> float:
    """A recurrent layer whose samples are walked by one block each, `entries` rows of its weights a timestep."""
    loads, each = (FORWARD_LOADS, FORWARD_NEURON_CYCLES) if forward else (BACKWARD_LOADS, BACKWARD_NEURON_CYCLES)
    cycles = loads * gpu.memory.l2_latency_cycles + each * layer.neurons
    cycles += entries * layer.neurons * WORD_BYTES / WALK_BYTES_PER_CYCLE
    rounds = math.ceil(layer.batch / gpu.chip.streaming_multiprocessors)
    return rounds * layer.timesteps * cycles / gpu.chip.clock_hz


def _energy(
    gpu: GpuMachine,
    kernels: Sequence[Kernel],
    spans: Sequence[KernelSpan],
    *,
    precision: Precision,
    resident: bool,
    seconds: float,
    host_bytes: float,
) -> EnergyProfile | None:
    """Energy of the kernels and their `spans`, one each; None if the machine has no energies.

    resident: weights stay in the L2 between timesteps. Products count each operand once and not what their
    tiles read again from the L2, which is part of the measured energy of a flop.
    """
    if gpu.energy is None:
        return None
    simt, tensor, dram, l2, idle = 0, 0, 0, 0, 0.0
    for kernel, span in zip(kernels, spans, strict=True):
        product = isinstance(kernel, Product | Recurrent)
        if product and gpu.uses_tensor_unit(precision):
            tensor += span.flops
        else:
            simt += span.flops
        if _stays_in_l2(kernel, span, gpu, resident):
            l2 += span.bytes_moved
        else:
            dram += span.bytes_moved
        if span.bound in ("launch", "host"):
            idle += span.seconds
    per_flop = "fp16_joules_per_flop" if precision == "fp16" else "tf32_joules_per_flop"
    return energy_profile(
        gpu.energy,
        (
            ("static power", "static_watts", seconds),
            ("waiting for launches", "launch_watts", idle),
            ("arithmetic", "simt_joules_per_flop", simt),
            ("arithmetic on tensor units", per_flop, tensor),
            ("DRAM", "dram_joules_per_byte", dram),
            ("L2", "l2_joules_per_byte", l2),
            ("host link", "host_joules_per_byte", host_bytes),
        ),
        figures="energy of a GPU",
    )


def _stays_in_l2(kernel: Kernel, span: KernelSpan, gpu: GpuMachine, resident: bool) -> bool:
    if isinstance(kernel, ListKernel):
        return True  # gathers from the L2; weights that are streamed completely are few in comparison
    if isinstance(kernel, Product):
        return resident and kernel.repeated
    each = span.bytes_moved / max(span.times, 1)
    return each < L2_FOOTPRINT_SHARE * gpu.memory.l2_bytes


def _lowering_assumptions(
    how: Strategy, precision: Precision, encoding: InputEncoding, lowered: KernelProgram, resident: bool
) -> tuple[Assumption, ...]:
    low, high = how.interval(precision, convolutions=lowered.convolves)
    band_source = PLANES_SOURCE if lowered.convolves and how.planes_band else how.band_source
    kind, _, where = band_source.partition(":")
    overlap = "hidden behind the previous batch"
    if how.host_rate == "framework":
        overlap += "; at the upper end of the interval nothing is hidden"
    rows: tuple[tuple[str, str, str, str], ...] = (
        ("kernels", how.description, "assumed", how.source),
        ("matrix products", "on lists of spikes", "assumed", how.source) if how.lists else
        ("matrix products", "dense, also where the tiled machine works on spike lists", "derived", gemm.MODEL_SOURCE),
        ("streaming kernels", "launch period plus bytes", "derived", elementwise.MODEL_SOURCE),
        ("interval", f"{low:g} to {high:g} times the kernels' seconds", kind, where.strip()),
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
    if lowered.convolves:
        value = f"{convolution.START_SECONDS * 1e6:g} us to start, and the product that gathers their patches"
        rows = (*rows, ("convolutions", value, "derived", convolution.MODEL_SOURCE))
    if lowered.most_groups > 1:
        value = f"up to {lowered.most_groups}, one kernel for all"
        rows = (*rows, ("groups of convolutions", value, "assumed", convolution.GROUPS_SOURCE))
    if how.hoisted:
        value = f"{WALK_SECONDS * 1e6:g} us each and one pass per value"
        where = "fused kernels of the Triton class, loads issued ahead of the timestep that needs them"
        rows = (*rows, ("neuron kernels over time", value, "assumed", where))
    return tuple(Assumption(name=name, value=value, kind=kind, source=source) for name, value, kind, source in rows)


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
