"""Framework programs that launch every operation from Python, timestep by timestep: for validation only.

The slower of host and device determines the time. A call costs the host one period; the device works through what was
launched, and the host may run ahead by as many launches as the stream's queue holds. What a framework launches in a
timestep is counted from its code.

The backward pass of indexing, x[t], fills a gradient as large as the whole sequence with zeros, copies one timestep
into it and adds it to the sum of all: 4 passes over timesteps * batch * neurons values in every timestep. Indexing
behind a leading slice, x[:, t], does it once more for the slice (3 passes), assigning to y[:, t] in place copies the
sequence (2 passes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mimdsim.gpu.elementwise import elementwise_seconds
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision

QUEUED_LAUNCHES = 1024  # how far the host runs ahead of the device; published: depth of a CUDA stream's queue
INDEXED, SLICED, ASSIGNED = 4, 3, 2  # passes over the whole sequence, as above; derived
BACKWARD_CALL_SHARE = (
    0.6  # autograd's C++ loop over a Python call's period; derived: 12 over 20 to 22 us on an A100 box
)
VALUE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one timestep launches besides matrix products, in the forward or the backward pass.

    calls: operations. array_passes: arrays of batch * neurons values that they read and write. sequence_passes: arrays
    of the whole sequence. indexing_calls: those of the calls that work on whole sequences.
    """

    calls: int
    array_passes: float
    sequence_passes: int = 0
    indexing_calls: int = 0


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A layer of neurons behind a dense layer, as users of the framework write it; shapes [timesteps, batch, neurons].

    products: each_timestep (inside the loop), hoisted (one for the sequence) or none.
    """

    name: str
    products: Literal["each_timestep", "hoisted", "none"]
    forward: Pass
    backward: Pass
    source: str


FRAMEWORKS: dict[str, Framework] = {
    item.name: item
    for item in (
        Framework(
            name="snnTorch",
            products="each_timestep",
            forward=Pass(calls=14, array_passes=24),
            backward=Pass(calls=14, array_passes=30),
            source="derived: counted from snn.Leaky 0.7, which computes the spike twice (reset and output); the input "
            "takes no gradient, so indexing it costs nothing",
        ),
        Framework(
            name="Sinabs",
            products="hoisted",
            forward=Pass(calls=8, array_passes=20),
            backward=Pass(calls=14, array_passes=24, sequence_passes=INDEXED + SLICED, indexing_calls=5),
            source="derived: counted from sinabs.layers.LIF 1.2; indexes x[:, t]",
        ),
        Framework(
            name="Norse",
            products="hoisted",
            forward=Pass(calls=14, array_passes=36),
            backward=Pass(calls=24, array_passes=40, sequence_passes=INDEXED, indexing_calls=3),
            source="derived: LIF step of norse 1.0 as TorchScript, which runs its operations one by one; calls of the "
            "backward pass from the host-bound row on the RTX 2070",
        ),
        Framework(
            name="SpikingJelly",
            products="hoisted",
            forward=Pass(calls=7, array_passes=16),
            backward=Pass(calls=12, array_passes=20, sequence_passes=INDEXED, indexing_calls=3),
            source="derived: counted from the multi-step LIF of 0.0.0.0.15: charge, fire and reset are TorchScript "
            "functions, each fused; indexes x[t]",
        ),
        Framework(
            name="Rockpool",
            products="hoisted",
            forward=Pass(calls=41, array_passes=60),
            backward=Pass(calls=36, array_passes=60, sequence_passes=INDEXED + SLICED + ASSIGNED, indexing_calls=7),
            source="derived: LIFTorch 2.6; indexes x[:, t] and assigns y[:, t]; calls from the host-bound rows on the "
            "RTX 2070",
        ),
        Framework(
            name="SpikingJelly, neurons only",
            products="none",
            forward=Pass(calls=11, array_passes=26.5),
            backward=Pass(calls=20, array_passes=48, sequence_passes=INDEXED + ASSIGNED, indexing_calls=4),
            source="derived: forward counted from LIFNode and MultiStepContainer of December 2020, as the "
            "documentation's table (clock_driven/neuron.py); backward from its growth with timesteps, which shows two "
            "more passes over the sequence than PyTorch of 2023 makes, for an unknown reason",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class EagerEstimate:
    """One call over all timesteps. bound: 'host' when launching takes longer than the device's work."""

    seconds: float
    bound: str
    host_seconds: float
    device_seconds: float


def eager_seconds(
    gpu: GpuMachine,
    framework: Framework,
    *,
    neurons: int,
    batch: int,
    timesteps: int,
    call_seconds: float,
    direction: Literal["forward", "backward"],
) -> EagerEstimate:
    """One pass over a sequence; call_seconds: the host's period of a Python call. Raises ValueError below 1."""
    if min(neurons, batch, timesteps) < 1:
        raise ValueError(f"{timesteps} timesteps, batch {batch}, {neurons} neurons: each must be at least 1")
    forward = direction == "forward"
    step = framework.forward if forward else framework.backward
    inside = framework.products == "each_timestep"
    calls = timesteps * (step.calls + (2 if inside and not forward else inside))
    period = call_seconds * (1.0 if forward else BACKWARD_CALL_SHARE)
    loop = timesteps * (
        _small_seconds(gpu, step, neurons * batch) + _sequence_seconds(gpu, step, neurons * batch * timesteps)
    )
    ahead = 0.0
    if inside:
        loop += timesteps * _product_seconds(gpu, neurons, batch, forward=forward, accumulated=True)
    elif framework.products == "hoisted":
        ahead = _product_seconds(gpu, neurons, batch * timesteps, forward=forward, accumulated=False)
    host = calls * period
    stalled = ahead + max(0, calls - QUEUED_LAUNCHES) * period if forward else 0.0
    device = ahead + loop
    return EagerEstimate(
        seconds=max(host, device, stalled),
        bound="device" if device >= max(host, stalled) else "host",
        host_seconds=host,
        device_seconds=device,
    )


def _small_seconds(gpu: GpuMachine, step: Pass, values: int) -> float:
    """The operations of one timestep that touch arrays of one timestep only."""
    launches = step.calls - step.indexing_calls
    each = step.array_passes / launches * values * VALUE_BYTES
    return launches * elementwise_seconds(gpu, round(each), launching="stream").seconds


def _sequence_seconds(gpu: GpuMachine, step: Pass, values: int) -> float:
    if not step.indexing_calls:
        return 0.0
    each = step.sequence_passes / step.indexing_calls * values * VALUE_BYTES
    footprint = 2 * values * VALUE_BYTES  # the gradient of this timestep and the sum of all
    return (
        step.indexing_calls
        * elementwise_seconds(gpu, round(each), launching="stream", footprint_bytes=footprint).seconds
    )


def _product_seconds(gpu: GpuMachine, neurons: int, rows: int, *, forward: bool, accumulated: bool) -> float:
    """x W^T, or dW with the addition onto the gradient so far; the input takes no gradient."""
    if forward:
        return gemm_seconds(gpu, rows, neurons, neurons, precision="fp32", transposed_weight=True).seconds
    seconds = gemm_seconds(gpu, neurons, neurons, rows, precision="fp32").seconds
    weight_bytes = neurons * neurons * VALUE_BYTES
    if accumulated:
        seconds += elementwise_seconds(
            gpu, 3 * weight_bytes, launching="stream", footprint_bytes=2 * weight_bytes
        ).seconds
    return seconds


@dataclass(frozen=True, kw_only=True)
class FusedNeurons:
    """Arrays of timesteps * batch * neurons values that a pass reads and writes; the backward pass with its sum."""

    name: str
    precisions: tuple[Precision, ...]
    forward: int
    backward: int
    source: str


FUSED: tuple[FusedNeurons, ...] = (
    FusedNeurons(
        name="SpikingJelly CuPy",
        precisions=("fp32",),
        forward=14,
        backward=13,
        source="derived: microseconds of the documentation's table (2021) over 0.88 of the DRAM's peak on an RTX "
        "2080 Ti; the code says 9 and, with the gradient added to an old one, 13",
    ),
    FusedNeurons(
        name="SpikingJelly CuPy",
        precisions=("fp16",),  # another kernel: pairs of values, no branches
        forward=9,
        backward=9,
        source="derived: counted from cuda_kernel/neuron_kernel/lif.py of 0.0.0.1: zeros for three arrays, potentials "
        "copied behind the first, x read, three arrays written; the sum reads the spikes, its gradient and two arrays "
        "of zeros are written, four arrays read, the gradient of x written",
    ),
    FusedNeurons(
        name="SpikingJelly Triton",
        precisions=("fp32", "fp16"),
        forward=3,
        backward=5,
        source="derived: counted from triton_kernel/neuron_kernel/lif.py of 0.0.0.1: x read, two arrays written; the "
        "sum reads the spikes, its gradient is written, two arrays read, the gradient of x written",
    ),
)


def find_fused(framework: str, precision: Precision) -> FusedNeurons | None:
    """The program that a table calls `framework`; None if it is not counted for numbers of that width."""
    for item in FUSED:
        if precision in item.precisions and all(word in framework for word in item.name.lower().split()):
            return item
    return None


def fused_seconds(
    gpu: GpuMachine,
    neurons: FusedNeurons,
    *,
    values: int,
    precision: Precision,
    direction: Literal["forward", "backward"],
) -> float:
    """One pass over `values` = timesteps * batch * neurons values. Raises ValueError when there are none."""
    if values < 1:
        raise ValueError(f"fused neurons over {values} values: must be at least 1")
    passes = neurons.forward if direction == "forward" else neurons.backward
    return elementwise_seconds(gpu, passes * values * ELEMENT_BYTES[precision], launching="stream").seconds
