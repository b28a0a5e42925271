"""Measure training steps of networks with convolutions, and single convolutions, on an NVIDIA GPU.

    python benchmarks/gpu/measure_convolutions.py --out measured/

writes measured/gpu_training_steps.csv (a row a network, strategy and precision), measured/gpu_step_kernels.csv (the
kernels of the hoisted steps) and measured/gpu_convolutions.csv (cuDNN's time for a layer's forward pass, input and
weight gradient). `mimdsim validate` compares the model with the first and the last. Layouts (channels outermost,
innermost, innermost and padded to 16 bytes) are tried for every step and every convolution, the fastest is kept.
Needs PyTorch with Triton; JAX for the rows of XLA's loop and snnTorch for those of its own loop, where they are
installed; nvidia-ml-py for energy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu import planes
from benchmarks.gpu.bptt import THRESHOLD
from benchmarks.gpu.measure import replayed, write_rows
from benchmarks.gpu.measure_steps import KERNEL_COLUMNS, STEP_COLUMNS, kernels_of, timing
from mimdsim.graph.convolution import Convolution, convolutions_of

SOURCE = "mimdsim benchmarks/gpu/measure_convolutions.py"
CONVOLUTION_COLUMNS = (
    "source", "gpu", "dtype", "pass", "samples", "channels", "height", "width", "channels_made", "kernel",
    "stride", "padding", "layout", "time_us",
)  # fmt: skip
# (network, batch, timesteps); numbers of the model were chosen on the first, third, fifth and seventh and judged by the
# other four of eight; the last four were measured when it was done
CASES = (
    ("1x28x28-12c5:max2-64c5:max2-10", 128, 50),  # snnTorch, tutorial 6
    ("2x34x34-12c5-sum2-64c5-sum2-10", 20, 25),  # workloads/nmnist-conv.toml
    ("2x48x48-32c3p1s2-64c3p1s2-128c3p1s2-11", 32, 40),  # strides in place of pools
    ("2x32x32-16c5p2-sum2-32c3p1-sum2-512-11", 16, 50),  # workloads/dvs-gesture-conv.toml
    ("3x32x32-64c3p1-max2-128c3p1-max2-256c3p1-max2-10", 64, 10),  # of the size of those for CIFAR-10
    ("2x64x64-32c3p1-max2-64c3p1-max2-64c3p1-max2-256-11", 16, 20),  # as SpikingJelly's, smaller
    ("1x28x28-32c3p1-avg2-32c3p1-avg2-10", 32, 100),
    ("2x128x128-128c3p1-max2-128c3p1-max2-128c3p1-max2-128c3p1-max2-128c3p1-max2-512-110", 8, 8),  # SpikingJelly's
    ("2x64x64-16c5p2-max2-32c3p1-max2-64c3p1-max2-11", 32, 25),
    ("1x28x28-16c5:avg2-32c5:avg2-64-10", 64, 25),
    ("3x64x64-32c3p1s2-64c3p1-max2-128c3p1s2-256c3p1-10", 16, 16),
    ("2x34x34-24c3-max2-48c3-max2-128-10", 100, 20),
)
SMALL_CASES = (("2x12x11-5c3p1-max2-6c3s2-7", 4, 6), ("1x9x9-4c3:avg2-9-6", 3, 5))
FIRING, INPUT_FIRING = 0.05, 0.02  # shares of the neurons and of the inputs
PRECISIONS = ("fp32", "tf32", "fp16")
PROGRAMS: dict[str, tuple[str, Callable[[planes.Buffers], Callable[[], None]]]] = {
    "hoisted": ("cuDNN, Triton neurons and pools, one CUDA graph", planes.hoisted),
    "graph_replay": ("cuDNN, Triton neurons and pools, time outermost, one CUDA graph", planes.looped),
}
Measured = tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]  # row, rows of its kernels and layers
Layout = tuple[bool, int]  # channels innermost, padded to a multiple of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("measured"), help="folder to write")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing further after so long")
    parser.add_argument("--what", nargs="+", default=["check", *PROGRAMS, "eager", "xla", "convolutions"])
    parser.add_argument("--networks", nargs="+", type=int, help="positions in CASES; leave out the others")
    parser.add_argument("--small", action="store_true", help="small networks, also on the processor (for tests)")
    options = parser.parse_args()
    start = time.perf_counter()
    import torch

    torch.backends.cudnn.benchmark = True
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU (no GPU at hand)"
    print(gpu, torch.__version__, "cuDNN", torch.backends.cudnn.version(), clocks(), flush=True)
    cases = SMALL_CASES if options.small else CASES
    cases = cases if options.networks is None else tuple(cases[at] for at in options.networks)
    steps: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []

    for text, batch, timesteps in cases:
        if time.perf_counter() - start > options.seconds:
            print("out of time before", text)
            break
        problem = prepared(torch, text, batch, timesteps)
        if "check" in options.what:
            check(torch, problem)
        for row, found, alone in measured(torch, gpu, text, problem, options.small, options.what):
            print(f"{time.perf_counter() - start:.0f} s", {k: row[k] for k in PRINTED}, clocks(), flush=True)
            steps.append(row)
            kernels += found
            single += alone
            write_rows(options.out / "gpu_training_steps.csv", STEP_COLUMNS, steps)
            write_rows(options.out / "gpu_step_kernels.csv", KERNEL_COLUMNS, kernels)
            write_rows(options.out / "gpu_convolutions.csv", CONVOLUTION_COLUMNS, single)
        del problem
    print(f"measured on {gpu} in {time.perf_counter() - start:.0f} s,", clocks())


PRINTED = ("strategy", "precision", "widths", "program", "ms", "mJ")


def clocks() -> str:
    """Of the board at this moment."""
    try:
        import pynvml

        pynvml.nvmlInit()
        board = pynvml.nvmlDeviceGetHandleByIndex(0)
        found = [pynvml.nvmlDeviceGetClockInfo(board, kind) for kind in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)]
        watts = pynvml.nvmlDeviceGetPowerUsage(board) / 1e3
    except Exception:  # no such board or package; tables then say nothing of clocks
        return "no clocks"
    return f"SM {found[0]} MHz, memory {found[1]} MHz, {watts:.0f} W"


def layouts(precision: str) -> tuple[Layout, ...]:
    aligned = {"fp32": (), "tf32": ((True, 4),), "fp16": ((True, 8),)}[precision]
    return ((False, 1), (True, 1), *aligned)


def named(layout: Layout) -> str:
    last, pad = layout
    return f"channels {'innermost' if last else 'outermost'}" + (f", padded to {pad}" if pad > 1 else "")


def allow(torch: Any, precision: str) -> Any:
    """The element type, with TF32 set."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return torch.float16 if precision == "fp16" else torch.float32


def prepared(torch: Any, text: str, batch: int, timesteps: int) -> planes.Problem:
    """A batch of random spikes, and weights with which a share of every layer's neurons fires at a timestep."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator().manual_seed(1)
    layers = convolutions_of(text)
    neurons = layers[0].planes.neurons
    fired = torch.rand((batch * timesteps, neurons), generator=draw) < INPUT_FIRING
    counts = fired.sum(1, dtype=torch.int32)
    ids = torch.argsort(fired.to(torch.int8), dim=1, descending=True, stable=True)[:, : int(counts.max())]
    weights = [
        torch.randn((of.channels, of.read.channels, *of.window.kernel), generator=draw) / of.fan_in**0.5
        for of in layers
    ]
    problem = planes.Problem(
        layers=layers, timesteps=timesteps, batch=batch, ids=ids.to(device, torch.int32), counts=counts.to(device),
        weights=[w.to(device) for w in weights],
        biases=[0.01 * torch.randn(len(w), generator=draw).to(device) for w in weights],
        labels=torch.randint(layers[-1].channels, (batch,), generator=draw).to(device),
    )  # fmt: skip
    allow(torch, "fp32")
    few = planes.reduced(problem, timesteps, min(batch, 4))
    own = planes.Buffers(torch, few, torch.float32)
    own.unfold()
    scaled = []
    for layer, w in enumerate(problem.weights):
        _, _, current = own.currents(layer, 0, own.rows)
        low, high = 0.01, 1000.0
        for _ in range(18):
            middle = (low * high) ** 0.5
            own.walk(layer, current * middle, 0, own.steps)
            fire = float((own.states[layer][own.batch :] > THRESHOLD).float().mean())
            low, high = (middle, high) if fire < FIRING else (low, middle)
        own.walk(layer, current * middle, 0, own.steps)
        scaled.append(w * middle)
    return replace(problem, weights=scaled)


def check(torch: Any, problem: planes.Problem) -> None:
    """Gradients of a few timesteps and samples of every program and layout, next to float64 on the processor."""
    allow(torch, "fp32")
    few = planes.reduced(problem, min(5, problem.timesteps), 2)
    exact = planes.reference(torch, on_processor(few), torch.float64)()
    for name, (_, build) in PROGRAMS.items():
        for layout in layouts("fp16"):
            own = planes.Buffers(torch, few, torch.float32, last=layout[0], pad=layout[1])
            step = build(own)
            step()
            step()  # nothing is left over from a step before
            print("  gradients off float64,", name, named(layout), difference(own.found(), exact), flush=True)


def on_processor(problem: planes.Problem) -> planes.Problem:
    moved = {name: [each.cpu() for each in getattr(problem, name)] for name in ("weights", "biases")}
    return replace(problem, ids=problem.ids.cpu(), counts=problem.counts.cpu(), labels=problem.labels.cpu(), **moved)


def difference(found: list[Any], exact: list[Any]) -> str:
    """The largest difference of every gradient, over its largest value."""
    pairs = zip(found, exact, strict=True)
    return " ".join(f"{float((a.cpu() - b).abs().max() / b.abs().max()):.1e}" for a, b in pairs)


def measured(
    torch: Any, gpu: str, text: str, problem: planes.Problem, small: bool, what: list[str]
) -> Iterator[Measured]:
    """Of every program."""
    of: dict[str, Any] = {"gpu": gpu, "widths": text, "recurrent": "none"}
    given: dict[str, Any] = {**of, "batch": problem.batch, "timesteps": problem.timesteps, "source": SOURCE}
    on_gpu = torch.cuda.is_available()
    chosen: dict[str, Layout] = {}
    for strategy, (program, build) in PROGRAMS.items():
        if strategy not in what:
            continue
        for precision in PRECISIONS if on_gpu else ("fp32",):
            dtype, quick = allow(torch, precision), []
            tried = layouts(precision)
            if precision in chosen:  # graphs of loops take long to capture
                tried = tuple(dict.fromkeys((chosen[precision], (False, 1))))
            for layout in tried if len(tried) > 1 else ():
                own = planes.Buffers(torch, problem, dtype, last=layout[0], pad=layout[1])
                step = build(own)
                step()
                run = replayed(torch, step) if on_gpu else step  # launches hidden, or they would be compared
                quick.append(float(timing(torch, run, small, seconds=0.1)["ms"]))
                del own, step, run
            if quick:
                print(" ", strategy, precision, dict(zip(map(named, tried), quick, strict=True)), flush=True)
            layout = tried[quick.index(min(quick))] if quick else tried[0]
            chosen.setdefault(precision, layout)
            own = planes.Buffers(torch, problem, dtype, last=layout[0], pad=layout[1])
            step = build(own)
            step()
            given |= {"spikes": activity(own)} if precision == "fp32" else {}
            assert all(bool(torch.isfinite(each).all()) for each in own.found())
            found = kernels_of(torch, step) if strategy == "hoisted" else []
            timed = timing(torch, replayed(torch, step) if on_gpu else step, small)
            samples = own.rows if strategy == "hoisted" else own.batch
            on = {"source": SOURCE, "gpu": gpu, "dtype": precision}
            alone = list(convolutions(torch, own, samples, on)) if "convolutions" in what else []
            row = {"strategy": strategy, "precision": precision}
            where = f"{program}, {named(layout)}, PyTorch {torch.__version__}"
            yield (
                {**given, **row, "program": where, **timed},
                [{**of, **row, "position": at, **each} for at, each in enumerate(found)],
                alone,
            )
            del own, step
            if on_gpu:
                torch.cuda.empty_cache()
    if "eager" in what:
        yield from eager_rows(torch, problem, given, small)
    if "xla" in what:
        yield from xla_rows(torch, problem, given, small)


def activity(own: planes.Buffers) -> str:
    """Means per timestep and sample, the input first."""
    fired = [own.problem.counts.float().mean()]
    fired += [(s[own.batch :] > THRESHOLD).float().sum() / own.rows for s in own.states]
    return " ".join(f"{float(each):.2f}" for each in fired)


def eager_rows(torch: Any, problem: planes.Problem, given: dict[str, Any], small: bool) -> Iterator[Measured]:
    """Loops over timesteps in Python: written out, and with snnTorch's neurons."""
    programs: dict[str, Callable[[], Any]] = {}
    allow(torch, "tf32")
    programs["a loop in Python, PyTorch's automatic differentiation"] = planes.reference(torch, problem, torch.float32)
    try:
        import snntorch

        programs[f"snnTorch {snntorch.__version__}"] = planes.of_snntorch(torch, snntorch, problem)
    except ImportError as why:
        print("no snnTorch:", why)
    for program, gradients in programs.items():
        timed = timing(torch, gradients, small, seconds=0.4)
        row = {"strategy": "eager", "precision": "tf32", "program": f"{program}, PyTorch {torch.__version__}"}
        yield {**given, **row, **timed}, [], []


def xla_rows(torch: Any, problem: planes.Problem, given: dict[str, Any], small: bool) -> Iterator[Measured]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax

        from benchmarks.gpu.xla import planes_step
    except ImportError:
        return
    inputs = planes.spikes_of(torch, problem, torch.float32).cpu().numpy()
    host = on_processor(problem)
    weights, biases = ([each.numpy() for each in arrays] for arrays in (host.weights, host.biases))
    for precision in ("tf32", "fp32"):
        step = planes_step(problem.layers, inputs, weights, biases, host.labels.numpy(), precision)
        timed = timing(torch, step, small, finish=lambda last: last.block_until_ready())
        program = f"jax.lax.scan, channels innermost, JAX {jax.__version__}"
        yield {**given, "strategy": "as_published", "precision": precision, "program": program, **timed}, [], []


def convolutions(torch: Any, own: planes.Buffers, samples: int, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """cuDNN's time for each layer of `own`, in its layout, whose kernels have been chosen."""
    for layer, of in enumerate(own.layers):
        if planes.reads_all(of):
            continue
        for name, seconds in passes(torch, of, samples, own.dtype, (own.last, own.pad), layer > 0):
            yield {
                **given, "pass": name, "samples": samples,
                "channels": of.read.channels, "height": of.read.height, "width": of.read.width,
                "channels_made": of.channels, "kernel": of.window.kernel[0], "stride": of.window.stride[0],
                "padding": of.window.padding[0], "layout": named((own.last, own.pad)),
                "time_us": f"{1e6 * seconds:.2f}",
            }  # fmt: skip


def passes(
    torch: Any, of: Convolution, samples: int, dtype: Any, layout: Layout, back: bool
) -> Iterator[tuple[str, float]]:
    """(name, seconds) of the forward pass and both gradients, between operands that are there."""
    last, pad = layout
    order = torch.channels_last if last else torch.contiguous_format
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def drawn(*sizes: int) -> Any:
        return torch.randn(sizes, device=device).to(dtype, memory_format=order)

    read, made = (-(-each // pad) * pad for each in (of.read.channels, of.channels))
    x, w = drawn(samples, read, of.read.height, of.read.width), drawn(made, read, *of.window.kernel)
    q = drawn(samples, made, of.made.height, of.made.width)
    window = of.window

    def adjoint(wanted: tuple[bool, bool, bool]) -> Any:
        return torch.ops.aten.convolution_backward(
            q, x, w, None, window.stride, window.padding, window.dilation, False, (0, 0), 1, wanted
        )

    works: dict[str, Callable[[], Any]] = {
        "forward": lambda: torch.nn.functional.conv2d(x, w, None, window.stride, window.padding),
        "weight gradient": lambda: adjoint((False, True, False)),
    }
    if back:  # what reads the input has no gradient to hand on
        works["input gradient"] = lambda: adjoint((True, False, False))
    for name, work in works.items():
        if device == "cpu":
            work()
            yield name, 1.0
            continue
        work()
        calls = 4 if samples * max(of.made.neurons, of.read.neurons) > 1 << 26 else 20
        run = replayed(torch, lambda work=work, calls=calls: [work() for _ in range(calls)] and None)
        yield name, median_seconds(torch, run) / calls
        del run


def median_seconds(torch: Any, run: Callable[[], Any]) -> float:
    found = []
    for _ in range(7):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found[2:])


if __name__ == "__main__":
    main()
