"""Predictions for measured spiking or recurrent networks: one row of a table in, one prediction out.

A row has the columns gpu, framework, exec_style, task, batch_B, steps_T, neurons_or_layers, dtype, metric and
timing_valid. The task says what was measured: a linear layer of N x N with its neurons, N neurons alone, or a recurrent
layer. Tasks that are none of these, and programs whose operations were not counted, are reported, not guessed.

Framework programs launch every operation from Python, timestep by timestep. The slower of host and device determines
the time. A call costs the host one period; the device works through what was launched, and the host may run ahead by as
many launches as the stream's queue holds. What a framework launches in a timestep is counted from its code.

The backward pass of indexing, x[t], fills a gradient as large as the whole sequence with zeros, copies one timestep
into it and adds it to the sum of all: 4 passes over timesteps * batch * neurons values in every timestep. Indexing
behind a leading slice, x[:, t], does it once more for the slice (3 passes), assigning to y[:, t] in place copies the
sequence (2 passes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from mimdsim.base.errors import MimdsimError
from mimdsim.gpu.elementwise import (
    ALTERNATING,
    CUDNN_LOOP,
    CUDNN_PERSISTENT,
    TILED_PERSISTENT,
    Direction,
    LibraryLoop,
    PersistentKernel,
    RecurrentLayer,
    elementwise_seconds,
    library_loop_seconds,
    persistent_seconds,
)
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.machine.gpu import ELEMENT_BYTES, GpuMachine, Precision
from mimdsim.validation.gpus.products import LARGEST_EXTENT, check_given, device_of, precision_of
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, whole_numbers, within_bounds

QUEUED_LAUNCHES = 1024  # how far the host runs ahead of the device; published: depth of a CUDA stream's queue
INDEXED, SLICED, ASSIGNED = 4, 3, 2  # passes over the whole sequence, as above; derived
# autograd's C++ loop over a Python call's period; derived: 12 over 20 to 22 us on an A100 box
BACKWARD_CALL_SHARE = 0.6
VALUE_BYTES = 4


Way = Literal["forward", "backward"]


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

    products: Literal["each_timestep", "hoisted", "none"]
    forward: Pass
    backward: Pass
    source: str


FRAMEWORKS: dict[str, Framework] = {
    "snnTorch": Framework(
        products="each_timestep",
        forward=Pass(calls=14, array_passes=24),
        backward=Pass(calls=14, array_passes=30),
        source="derived: counted from snn.Leaky 0.7, which computes the spike twice (reset and output); the input "
        "takes no gradient, so indexing it costs nothing",
    ),
    "Sinabs": Framework(
        products="hoisted",
        forward=Pass(calls=8, array_passes=20),
        backward=Pass(calls=14, array_passes=24, sequence_passes=INDEXED + SLICED, indexing_calls=5),
        source="derived: counted from sinabs.layers.LIF 1.2; indexes x[:, t]",
    ),
    "Norse": Framework(
        products="hoisted",
        forward=Pass(calls=14, array_passes=36),
        backward=Pass(calls=24, array_passes=40, sequence_passes=INDEXED, indexing_calls=3),
        source="derived: LIF step of norse 1.0 as TorchScript, which runs its operations one by one; calls of the "
        "backward pass from the host-bound row on the RTX 2070",
    ),
    "SpikingJelly": Framework(
        products="hoisted",
        forward=Pass(calls=7, array_passes=16),
        backward=Pass(calls=12, array_passes=20, sequence_passes=INDEXED, indexing_calls=3),
        source="derived: counted from the multi-step LIF of 0.0.0.0.15: charge, fire and reset are TorchScript "
        "functions, each fused; indexes x[t]",
    ),
    "Rockpool": Framework(
        products="hoisted",
        forward=Pass(calls=41, array_passes=60),
        backward=Pass(calls=36, array_passes=60, sequence_passes=INDEXED + SLICED + ASSIGNED, indexing_calls=7),
        source="derived: LIFTorch 2.6; indexes x[:, t] and assigns y[:, t]; calls from the host-bound rows on the "
        "RTX 2070",
    ),
    "SpikingJelly, neurons only": Framework(
        products="none",
        forward=Pass(calls=11, array_passes=26.5),
        backward=Pass(calls=20, array_passes=48, sequence_passes=INDEXED + ASSIGNED, indexing_calls=4),
        source="derived: forward counted from LIFNode and MultiStepContainer of December 2020, as the "
        "documentation's table (clock_driven/neuron.py); backward from its growth with timesteps, which shows two "
        "more passes over the sequence than PyTorch of 2023 makes, for an unknown reason",
    ),
}


class EagerEstimate:
    """One pass over a sequence of all timesteps; call_seconds: the host's period of a Python call. bound: 'host' when
    launching takes longer than the device's work. Raises ValueError below 1."""

    def __init__(
        self,
        gpu: GpuMachine,
        framework: Framework,
        *,
        neurons: int,
        batch: int,
        timesteps: int,
        call_seconds: float,
        direction: Way,
    ):
        if min(neurons, batch, timesteps) < 1:
            raise ValueError(f"{timesteps} timesteps, batch {batch}, {neurons} neurons: each must be at least 1")
        forward = direction == "forward"
        step = framework.forward if forward else framework.backward
        inside = framework.products == "each_timestep"
        calls = timesteps * (step.calls + (2 if inside and not forward else inside))
        period = call_seconds * (1.0 if forward else BACKWARD_CALL_SHARE)
        values = neurons * batch
        launches, whole = step.calls - step.indexing_calls, values * timesteps
        # of whole sequences the gradient of this timestep and the sum of all are touched
        loop = timesteps * (
            _calls_seconds(gpu, launches, step.array_passes, values)
            + _calls_seconds(gpu, step.indexing_calls, step.sequence_passes, whole, footprint_values=2 * whole)
        )
        ahead = 0.0
        if inside:
            loop += timesteps * _product_seconds(gpu, neurons, batch, forward=forward, accumulated=True)
        elif framework.products == "hoisted":
            ahead = _product_seconds(gpu, neurons, batch * timesteps, forward=forward, accumulated=False)
        stalled = ahead + max(0, calls - QUEUED_LAUNCHES) * period if forward else 0.0
        self.host_seconds, self.device_seconds = calls * period, ahead + loop
        on_host = max(self.host_seconds, stalled)
        self.seconds = max(on_host, self.device_seconds)
        self.bound = "device" if self.device_seconds >= on_host else "host"


def _calls_seconds(gpu: GpuMachine, calls: int, passes: float, values: int, footprint_values: int = 0) -> float:
    """Operations that together read or write arrays of so many values `passes` times."""
    if not calls:
        return 0.0
    each, footprint = round(passes / calls * values * VALUE_BYTES), footprint_values * VALUE_BYTES or None
    return calls * elementwise_seconds(gpu, each, launching="stream", footprint_bytes=footprint).seconds


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
    """Arrays of timesteps * batch * neurons values that a pass reads and writes; the backward pass with its sum.

    earlier: the same of both passes together by an earlier version of the code, where there is one that a table may
    have timed; 0 where there is none.
    """

    name: str
    precisions: tuple[Precision, ...]
    forward: int
    backward: int
    source: str
    earlier: int = 0


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
        "sum reads the spikes, its gradient is written, two arrays read, the gradient of x written; before (3bbb89a), "
        "potentials were written too, and zeros written and read as their gradient: 11 passes instead of 8",
        earlier=11,
    ),
)


def fused_seconds(
    gpu: GpuMachine,
    neurons: FusedNeurons,
    *,
    values: int,
    precision: Precision,
    direction: Way,
) -> float:
    """One pass over `values` = timesteps * batch * neurons values. Raises ValueError when there are none."""
    if values < 1:
        raise ValueError(f"fused neurons over {values} values: must be at least 1")
    passes = neurons.forward if direction == "forward" else neurons.backward
    return elementwise_seconds(gpu, passes * values * ELEMENT_BYTES[precision], launching="stream").seconds


# Period of a Python call that launches one kernel, of the computer a device was timed in; a fact of that computer.
# kind: derived, from host-bound rows of gpu_snn_measurements.csv (2070: N=512, 3090: N=4096) and from published
# microseconds per operation (A100 and 4090 boxes of open-neuromorphic); others assumed
HOSTS: tuple[tuple[str, float], ...] = (
    (r"rtx ?2070", 18e-6),
    (r"rtx ?3090", 30e-6),
    (r"rtx ?4090", 15e-6),
    (r"a100", 22e-6),
)
OTHER_HOST_SECONDS = 20e-6
NEEDED = ("gpu", "framework", "task", "metric", "neurons_or_layers", "batch_B", "steps_T")
RECURRENT = r"\b(lstm|gru|rnn)\b"
NEURONS_ALONE = r"\bno linear\b|\b(p?lif|if|neurons?) only\b"
LINEAR, SEVERAL = r"\blinear\b", r"\b(?!1 ?x)\d+ ?x linear\b|\blinear layers\b"
METRICS: dict[str, tuple[Direction, ...]] = {
    "forward": ("forward",),
    "forward(no_grad)": ("forward",),
    "forward+backward": ("forward", "backward_inputs", "backward_weights"),
    "backward": ("backward_inputs", "backward_weights"),
    "backward wrt inputs": ("backward_inputs",),
    "backward wrt weights": ("backward_weights",),
}


Measured = Literal["recurrent layer", "linear layer and neurons", "neurons alone"]


@dataclass(frozen=True, kw_only=True)
class SnnPrediction:
    """tolerance: relative. spread: low and high multiple of the seconds."""

    seconds: float
    note: str
    tolerance: float = 0.25
    spread: tuple[float, float] = (0.8, 1.25)


class _Case:
    """A row read; raises MimdsimError for one without a prediction."""

    def __init__(self, row: Mapping[str, str]):
        check_given(row, NEEDED)
        valid = (row.get("timing_valid") or "ok").strip()
        if not valid.startswith("ok"):
            raise MimdsimError(f"its time cannot be trusted: {valid}")
        self.gpu, _ = device_of(row["gpu"])
        if row["metric"] not in METRICS:
            raise MimdsimError(f"no model for metric '{row['metric']}'; known: {', '.join(METRICS)}")
        self.batch, self.timesteps, self.neurons = extents = whole_numbers(
            row, "batch_B", "steps_T", "neurons_or_layers"
        )
        if min(extents) < 1:
            said = f"batch {self.batch}, timesteps {self.timesteps}, neurons {self.neurons}"
            raise MimdsimError(f"{said}: must be at least 1")
        if max(extents) > LARGEST_EXTENT:
            raise MimdsimError(f"batch, timesteps or neurons are over {LARGEST_EXTENT:,}, which no device holds")
        self.precision = precision_of(row.get("dtype") or "fp32")
        self.label, self.framework, self.task = (row[name].lower() for name in ("gpu", "framework", "task"))
        self.style = (row.get("exec_style") or "").lower()
        measured = _measured(self.task)
        if measured is None:
            known = "1x Linear(N,N) and neurons, neurons only, LSTM, GRU, RNN"
            raise MimdsimError(f"no model for task '{row['task']}'; known: {known}")
        self.measured, self.directions = measured, METRICS[row["metric"]]
        halves = [way in self.directions for way in ("backward_inputs", "backward_weights")]
        if measured != "recurrent layer" and len(set(halves)) > 1:
            known = "the backward pass as a whole"
            raise MimdsimError(f"no model for metric '{row['metric']}' of {measured}; known: {known}")

    @property
    def ways(self) -> tuple[Way, ...]:
        """Its passes, the backward pass as a whole."""
        if "forward" not in self.directions:
            return ("backward",)
        return ("forward", "backward") if len(self.directions) > 1 else ("forward",)


def predict_snn_row(row: Mapping[str, str]) -> SnnPrediction:
    """The prediction for one row; raises MimdsimError where there is none."""
    case = _Case(row)
    if case.measured == "recurrent layer":
        return _recurrent(case)
    return _fused(case) if re.search(r"cupy|triton", case.framework) else _eager(case)


def _measured(task: str) -> Measured | None:
    """What a task measured; None when it says neither a layer nor neurons alone."""
    if re.search(RECURRENT, task):
        return "recurrent layer"
    if re.search(NEURONS_ALONE, task):
        return "neurons alone"
    one = re.search(LINEAR, task) and not re.search(SEVERAL, task)
    return "linear layer and neurons" if one else None


def _eager(case: _Case) -> SnnPrediction:
    """A loop over timesteps."""
    name = _eager_framework(case)
    if case.precision != "fp32":
        raise MimdsimError(f"eager frameworks are described in fp32 only, not {case.precision}")
    call = next((period for label, period in HOSTS if re.search(label, case.label)), None)
    total, bounds = 0.0, []
    for way in case.ways:
        estimate = EagerEstimate(
            case.gpu,
            FRAMEWORKS[name],
            neurons=case.neurons,
            batch=case.batch,
            timesteps=case.timesteps,
            call_seconds=call or OTHER_HOST_SECONDS,
            direction=way,
        )
        total += estimate.seconds
        bounds.append(estimate.bound)
    unknown = call is None and "host" in bounds
    note = f"{case.gpu.name}, {name}, {' and '.join(bounds)} bound"
    return SnnPrediction(
        seconds=total,
        note=f"{note}; period of a call assumed, this computer is unknown" if unknown else note,
        tolerance=0.10 if "backward" in case.ways else 0.25,
        spread=(0.5, 2.0) if unknown else (0.8, 1.25),
    )


def _eager_framework(case: _Case) -> str:
    """The name of the counted program that a row describes; raises MimdsimError if none does."""
    name = next((name for name in FRAMEWORKS if name.lower() in case.framework), None)
    if name is None or "exodus" in case.framework or "compile" in case.framework:
        known = ", ".join(FRAMEWORKS)
        raise MimdsimError(f"no count of the operations of framework '{case.framework}'; known: {known}")
    if "loop" not in case.style:
        raise MimdsimError(f"'{case.framework}' as '{case.style}' has no loop over timesteps that is described")
    if case.measured != "neurons alone":
        return name
    if name != "SpikingJelly":
        raise MimdsimError(f"no count of the operations of '{case.framework}' without a linear layer")
    return "SpikingJelly, neurons only"


def _fused(case: _Case) -> SnnPrediction:
    """One kernel over all timesteps, behind one product over all of them where there is a layer."""
    counted = (item for item in FUSED if case.precision in item.precisions)
    neurons = next((one for one in counted if all(word in case.framework for word in one.name.lower().split())), None)
    if neurons is None:
        raise MimdsimError(f"no count of what fused neurons of '{case.framework}' move in {case.precision}")
    values = case.neurons * case.batch * case.timesteps
    seconds = 0.0
    for way in case.ways[::-1]:
        seconds += fused_seconds(case.gpu, neurons, values=values, precision=case.precision, direction=way)
        if case.measured != "neurons alone":
            shape = (case.batch * case.timesteps, case.neurons, case.neurons)
            m, n, k = shape if way == "forward" else shape[::-1]
            seconds += gemm_seconds(case.gpu, m, n, k, precision=case.precision).seconds
    note = f"{case.gpu.name}, {neurons.name}, {case.measured}"
    high = 1.25 * max(neurons.earlier / (neurons.forward + neurons.backward), 1)
    if high > 1.25:
        note += ", interval for an earlier version that moves more"
    return SnnPrediction(seconds=seconds, note=note, tolerance=0.20, spread=(0.8, high))


def _recurrent(case: _Case) -> SnnPrediction:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[re.findall(RECURRENT, case.task)[0]]
    layer = RecurrentLayer(neurons=case.neurons, gates=gates, batch=case.batch, timesteps=case.timesteps)
    how = _recurrent_program(case)
    if how is None:
        raise MimdsimError(f"no description of '{case.framework}' as a program for recurrent layers")
    if isinstance(how, LibraryLoop):
        # DeepBench's forward pass is that of inference and leaves its training buffer zero, so gradients are zeros too
        # (code/nvidia/rnn_bench.cu), which draw too little for a power limit to act.
        parts = [
            library_loop_seconds(
                case.gpu,
                layer,
                how,
                precision=case.precision,
                direction=item,
                power_limited=how is not CUDNN_LOOP or item == "forward",
            )
            for item in case.directions
        ]
    else:
        parts = [
            persistent_seconds(case.gpu, layer, how, precision=case.precision, direction=item)
            for item in case.directions
        ]
    seconds = sum(parts)
    if how is CUDNN_PERSISTENT:  # nn.LSTM includes the input's product: one forward, two backward
        rows, outputs = case.batch * case.timesteps, gates * case.neurons
        product = gemm_seconds(case.gpu, rows, outputs, case.neurons, precision=case.precision)
        seconds += len(case.directions) * product.seconds
    kind = "loop" if isinstance(how, LibraryLoop) else "persistent"
    return SnnPrediction(seconds=seconds, note=f"{case.gpu.name}, {kind}", tolerance=0.25, spread=(0.75, 1.35))


def _recurrent_program(case: _Case) -> LibraryLoop | PersistentKernel | None:
    text = f"{case.framework} {case.style}"
    if "flashrnn" in text and "fused" in text:
        return TILED_PERSISTENT
    if "alternating" in text or "haste" in text:
        return ALTERNATING
    if "cudnn" in text:
        return CUDNN_PERSISTENT if "persistent" in text else CUDNN_LOOP
    return None


def _network_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    marks = [f" {mark}={row[name]}" for mark, name in (("B", "batch_B"), ("T", "steps_T")) if row.get(name)]
    what = f"{row['framework']} {row['metric']}"
    name = f"{row['gpu']} {what} N={row['neurons_or_layers']}{''.join(marks)}"
    yield row.figure(name, "s", row.number("value_s"), 0.25, what, origin=next(iter(row["source"].split()), ""))
    found = predict_snn_row(row)
    low, high = found.spread
    yield within_bounds(found.seconds, low * found.seconds, high * found.seconds) | {"tolerance": found.tolerance}


NETWORKS = ReferenceTable(
    needed={"gpu", "framework", "metric", "neurons_or_layers", "value_s", "source"},
    also={"batch_B", "steps_T", "task", "dtype", "exec_style", "timing_valid"},
    ignored={"gpu_basis", "peak_mem_bytes"},
    read_row=_network_row,
    figures="GPU training step",
    on="",
)
