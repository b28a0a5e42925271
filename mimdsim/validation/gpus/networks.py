"""Predictions for measured spiking or recurrent networks: one row of a table in, one prediction out.

A row has the columns gpu, framework, exec_style, task, batch_B, steps_T, neurons_or_layers, dtype, metric and
timing_valid. The task says what was measured: a linear layer of N x N with its neurons, N neurons alone, or a recurrent
layer. Tasks that are none of these, and programs whose operations were not counted, are reported, not guessed.
"""

from __future__ import annotations

import re
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
    library_loop_seconds,
    persistent_seconds,
)
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.machine.gpu import GpuMachine, Precision
from mimdsim.validation.gpus.devices import KNOWN, KNOWN_FORMATS, described, find_device, find_precision
from mimdsim.validation.gpus.eager import FRAMEWORKS, Framework, eager_seconds, find_fused, fused_seconds
from mimdsim.validation.gpus.products import LARGEST_EXTENT

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
    """seconds None: the row cannot be computed, `note` says why. tolerance: relative. spread: low and high multiple."""

    seconds: float | None
    note: str
    tolerance: float = 0.25
    spread: tuple[float, float] = (0.8, 1.25)


@dataclass(frozen=True, kw_only=True)
class _Case:
    gpu: GpuMachine
    label: str
    framework: str
    style: str
    task: str
    measured: Measured
    precision: Precision
    batch: int
    timesteps: int
    neurons: int
    directions: tuple[Direction, ...]


def predict_snn_row(row: dict[str, str]) -> SnnPrediction:
    """The prediction for one row, or the reason why there is none."""
    case = _read(row)
    if isinstance(case, str):
        return SnnPrediction(seconds=None, note=case)
    try:
        return _predict(case)
    except MimdsimError as problem:
        return SnnPrediction(seconds=None, note=str(problem))


def _read(row: dict[str, str]) -> _Case | str:
    missing = [name for name in NEEDED if not (row.get(name) or "").strip()]
    if missing:
        return f"row has no {', '.join(missing)}"
    valid = (row.get("timing_valid") or "ok").strip()
    if not valid.startswith("ok"):
        return f"its time cannot be trusted: {valid}"
    device = find_device(row["gpu"])
    if device is None:
        return f"no description of device '{row['gpu']}'; known: {', '.join(KNOWN)}"
    if row["metric"] not in METRICS:
        return f"no model for metric '{row['metric']}'; known: {', '.join(METRICS)}"
    try:
        batch, timesteps, neurons = (int(row[name]) for name in ("batch_B", "steps_T", "neurons_or_layers"))
    except ValueError:
        return (
            f"batch {row['batch_B']}, timesteps {row['steps_T']}, neurons {row['neurons_or_layers']}: "
            f"must be whole numbers"
        )
    if min(batch, timesteps, neurons) < 1:
        return f"batch {batch}, timesteps {timesteps}, neurons {neurons}: must be at least 1"
    if max(batch, timesteps, neurons) > LARGEST_EXTENT:
        return f"batch, timesteps or neurons are over {LARGEST_EXTENT:,}, which no device holds"
    precision = find_precision(row.get("dtype") or "fp32")
    if precision is None:
        return f"no model for dtype '{row['dtype']}'; known: {KNOWN_FORMATS}"
    measured = _measured(row["task"].lower())
    if measured is None:
        return f"no model for task '{row['task']}'; known: 1x Linear(N,N) and neurons, neurons only, LSTM, GRU, RNN"
    directions = METRICS[row["metric"]]
    if measured != "recurrent layer" and ("backward_inputs" in directions) != ("backward_weights" in directions):
        return f"no model for metric '{row['metric']}' of {measured}; known: the backward pass as a whole"
    return _Case(
        gpu=described(device[0]),
        label=row["gpu"].lower(),
        framework=row["framework"].lower(),
        style=(row.get("exec_style") or "").lower(),
        task=row["task"].lower(),
        measured=measured,
        precision=precision,
        batch=batch,
        timesteps=timesteps,
        neurons=neurons,
        directions=directions,
    )


def _measured(task: str) -> Measured | None:
    """What a task measured; None when it says neither a layer nor neurons alone."""
    if re.search(RECURRENT, task):
        return "recurrent layer"
    if re.search(NEURONS_ALONE, task):
        return "neurons alone"
    one = re.search(LINEAR, task) and not re.search(SEVERAL, task)
    return "linear layer and neurons" if one else None


def _predict(case: _Case) -> SnnPrediction:
    if case.measured == "recurrent layer":
        return _recurrent(case)
    if re.search(r"cupy|triton", case.framework):
        return _fused(case)
    framework = _eager_framework(case)
    if isinstance(framework, str):
        return SnnPrediction(seconds=None, note=framework)
    if case.precision != "fp32":
        return SnnPrediction(seconds=None, note=f"eager frameworks are described in fp32 only, not {case.precision}")
    call = next((period for label, period in HOSTS if re.search(label, case.label)), None)
    total, bounds = 0.0, []
    passes = {"forward" if item == "forward" else "backward" for item in case.directions}
    for direction in sorted(passes, reverse=True):  # the same order in every process
        estimate = eager_seconds(
            case.gpu,
            framework,
            neurons=case.neurons,
            batch=case.batch,
            timesteps=case.timesteps,
            call_seconds=call or OTHER_HOST_SECONDS,
            direction="forward" if direction == "forward" else "backward",
        )
        total += estimate.seconds
        bounds.append(estimate.bound)
    unknown = call is None and "host" in bounds
    note = f"{case.gpu.name}, {framework.name}, {' and '.join(bounds)} bound"
    return SnnPrediction(
        seconds=total,
        note=f"{note}; period of a call assumed, this computer is unknown" if unknown else note,
        tolerance=0.10 if "backward" in passes else 0.25,
        spread=(0.5, 2.0) if unknown else (0.8, 1.25),
    )


def _eager_framework(case: _Case) -> Framework | str:
    """The counted program that a row describes, or why none does."""
    named = {"snntorch": "snnTorch", "sinabs": "Sinabs", "norse": "Norse", "rockpool": "Rockpool"}
    named["spikingjelly"] = "SpikingJelly"
    name = next((ours for label, ours in named.items() if label in case.framework), None)
    if name is None or "exodus" in case.framework or "compile" in case.framework:
        return f"no count of the operations of framework '{case.framework}'; known: {', '.join(FRAMEWORKS)}"
    if "loop" not in case.style:
        return f"'{case.framework}' as '{case.style}' has no loop over timesteps that is described"
    if case.measured == "neurons alone":
        if name != "SpikingJelly":
            return f"no count of the operations of '{case.framework}' without a linear layer"
        return FRAMEWORKS["SpikingJelly, neurons only"]
    return FRAMEWORKS[name]


def _fused(case: _Case) -> SnnPrediction:
    """One kernel over all timesteps, behind one product over all of them where there is a layer."""
    neurons = find_fused(case.framework, case.precision)
    if neurons is None:
        return SnnPrediction(
            seconds=None, note=f"no count of what fused neurons of '{case.framework}' move in {case.precision}"
        )
    values = case.neurons * case.batch * case.timesteps
    seconds = 0.0
    passes = {"forward" if item == "forward" else "backward" for item in case.directions}
    for direction in sorted(passes):
        forward = direction == "forward"
        seconds += fused_seconds(
            case.gpu, neurons, values=values, precision=case.precision, direction="forward" if forward else "backward"
        )
        if case.measured != "neurons alone":
            shape = (case.batch * case.timesteps, case.neurons, case.neurons)
            m, n, k = shape if forward else shape[::-1]
            seconds += gemm_seconds(case.gpu, m, n, k, precision=case.precision).seconds
    note = f"{case.gpu.name}, {neurons.name}, {case.measured}"
    return SnnPrediction(seconds=seconds, note=note, tolerance=0.20, spread=(0.8, 1.25))


def _recurrent(case: _Case) -> SnnPrediction:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[re.findall(RECURRENT, case.task)[0]]
    layer = RecurrentLayer(neurons=case.neurons, gates=gates, batch=case.batch, timesteps=case.timesteps)
    how = _recurrent_program(case)
    if how is None:
        return SnnPrediction(
            seconds=None, note=f"no description of '{case.framework}' as a program for recurrent layers"
        )
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
        rows = case.batch * case.timesteps
        products = sum({"forward": 1, "backward_inputs": 1, "backward_weights": 1}[item] for item in case.directions)
        seconds += (
            products
            * gemm_seconds(case.gpu, rows, gates * case.neurons, case.neurons, precision=case.precision).seconds
        )
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
