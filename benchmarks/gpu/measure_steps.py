"""Measure whole training steps on an NVIDIA GPU: time, energy and every kernel, one program for each strategy.

    python benchmarks/gpu/measure_steps.py --out measured/

writes measured/gpu_training_steps.csv (a row a network, program and precision), measured/gpu_step_kernels.csv (the
kernels of one step in order, as the profiler saw them) and measured/gpu_parameters.csv (launch periods, rates, idle
power: what `models/*.toml` states of a GPU). `mimdsim validate measured/gpu_training_steps.csv` compares the model.
Needs PyTorch with Triton; JAX for the rows of XLA's loop and CuPy for the wait of a whole grid, where they are
installed; nvidia-ml-py for energy.

Networks have random weights, scaled layer by layer until the stated share of the neurons fires; a row says how many
fired.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu import programs
from benchmarks.gpu.bptt import SECOND_THRESHOLD, Shape
from benchmarks.gpu.measure import replayed, write_rows

STEP_COLUMNS = (
    "gpu", "strategy", "program", "precision", "widths", "recurrent", "batch", "timesteps", "spikes", "listed",
    "longest", "ms", "ms_low", "ms_high", "mJ", "source",
)  # fmt: skip
KERNEL_COLUMNS = ("gpu", "strategy", "precision", "widths", "recurrent", "position", "kernel", "times", "us")
PARAMETER_COLUMNS = ("gpu", "parameter", "value", "unit", "how")
SOURCE = "mimdsim benchmarks/gpu/measure_steps.py"
LONGEST_NAME = 160  # of a kernel; holds the output tile of the libraries'
# as published, and with rows of weights that start at multiples of 16 bytes, as the library's fast kernels need
NMNIST, SHD = (2312, 1466, 1466, 10), (700, 1461, 1460, 20)
NMNIST_PADDED, SHD_PADDED = (2312, 1472, 1472, 16), (704, 1464, 1464, 24)
# (widths, recurrent hidden layers, batch, timesteps, spikes of the input, share of hidden neurons that fire)
CASES = [
    (NMNIST_PADDED, False, 48, 100, 12.7, 0.0085),
    (NMNIST, False, 48, 100, 12.7, 0.0085),
    (SHD_PADDED, True, 48, 100, 10.0, 0.01),
    (NMNIST_PADDED, False, 48, 100, 12.7, 0.05),
    (SHD, True, 48, 100, 10.0, 0.01),
    ((2312, 592, 592, 592, 592, 16), False, 48, 100, 12.7, 0.01),
    (NMNIST_PADDED, False, 48, 20, 12.7, 0.0085),
    ((704, 256, 24), True, 32, 250, 10.0, 0.03),
    (NMNIST_PADDED, False, 256, 100, 12.7, 0.0085),
    ((64, 128, 16), False, 48, 50, 6.0, 0.05),
    (SHD, False, 48, 100, 10.0, 0.01),
    (NMNIST_PADDED, False, 48, 100, 12.7, 0.002),
    (SHD_PADDED, True, 48, 100, 10.0, 0.05),
    ((2312, 1024, 1024, 1024, 16), False, 32, 50, 12.7, 0.015),
    ((704, 512, 512, 24), True, 64, 100, 10.0, 0.02),
]
SMALL_CASES = [((40, 30, 20, 5), False, 8, 10, 4.0, 0.1), ((40, 30, 5), True, 8, 10, 4.0, 0.1)]
PROGRAMS: dict[str, tuple[str, Callable[[programs.Buffers], Callable[[], None]], tuple[str, ...]]] = {
    "hoisted": ("PyTorch products, Triton neurons, one CUDA graph", programs.hoisted, ("fp32", "tf32", "fp16")),
    "lists_hoisted": ("Triton kernels along lists of spikes, one CUDA graph", programs.listed, ("fp32",)),
    "graph_replay": (
        "PyTorch products, Triton neurons, time outermost, one CUDA graph", programs.looped, ("fp32", "tf32", "fp16")
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("measured"), help="folder to write")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further network after so long")
    parser.add_argument("--strategies", nargs="+", default=[*PROGRAMS, "as_published"], help="leave out the others")
    parser.add_argument("--networks", nargs="+", type=int, help="positions in CASES; leave out the others")
    parser.add_argument("--small", action="store_true", help="small networks, also on the processor (for tests)")
    options = parser.parse_args()
    start = time.perf_counter()
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU (no GPU at hand)"
    if torch.cuda.is_available():
        write_rows(options.out / "gpu_parameters.csv", PARAMETER_COLUMNS, list(parameters(torch, gpu)))
    steps: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    cases = SMALL_CASES if options.small else CASES
    for case in cases if options.networks is None else [cases[at] for at in options.networks]:
        if time.perf_counter() - start > options.seconds:
            print("out of time before", case)
            break
        problem = prepared(torch, *case)
        for row, found in measured(torch, gpu, problem, options.small, options.strategies):
            print({key: row[key] for key in ("strategy", "precision", "widths", "ms", "mJ")}, flush=True)
            steps.append(row)
            kernels += found
        write_rows(options.out / "gpu_training_steps.csv", STEP_COLUMNS, steps)
        write_rows(options.out / "gpu_step_kernels.csv", KERNEL_COLUMNS, kernels)
    print(f"measured on {gpu} in {time.perf_counter() - start:.0f} s")


def prepared(
    torch: Any, widths: tuple[int, ...], recurs: bool, batch: int, timesteps: int, spikes: float, share: float
) -> programs.Problem:
    """A batch of random spikes, and weights with which `share` of the hidden neurons fire at a timestep."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator().manual_seed(1)
    rows = batch * timesteps
    fired = torch.rand((rows, widths[0]), generator=draw) < spikes / widths[0]
    counts = fired.sum(1, dtype=torch.int32)
    ids = torch.argsort(fired.to(torch.int8), dim=1, descending=True, stable=True)[:, : int(counts.max())]
    weights = [torch.randn((n, m), generator=draw) / n**0.5 for n, m in pairwise(widths)]
    recurrent = [
        0.5 * torch.randn((n, n), generator=draw) / n**0.5 if recurs and layer < len(weights) - 1 else None
        for layer, n in enumerate(widths[1:])
    ]
    problem = programs.Problem(
        shape=Shape(widths=widths, timesteps=timesteps, batch=batch),
        ids=ids.to(device, torch.int32),
        counts=counts.to(device),
        weights=[w.to(device) for w in weights],
        recurrent=[None if w is None else w.to(device) for w in recurrent],
        labels=torch.randint(widths[-1], (batch,), generator=draw).to(device),
    )
    for layer in range(len(weights)):
        wanted = share if layer < len(weights) - 1 else 0.05
        low, high = 0.01, 1000.0
        for _ in range(18):
            middle = (low * high) ** 0.5
            tried = scaled(problem, layer, middle)
            own = programs.Buffers(torch, tried, torch.float32)
            programs.listed(own)()
            fire = float((own.states[layer][1:] > 1.0).float().mean())
            low, high = (middle, high) if fire < wanted else (low, middle)
        problem = scaled(problem, layer, (low * high) ** 0.5)
    return problem


def scaled(problem: programs.Problem, layer: int, factor: float) -> programs.Problem:
    def one(arrays: list[Any]) -> list[Any]:
        return [w * factor if at == layer and w is not None else w for at, w in enumerate(arrays)]

    return replace(problem, weights=one(problem.weights), recurrent=one(problem.recurrent))


def measured(
    torch: Any, gpu: str, problem: programs.Problem, small: bool, strategies: list[str]
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """(row, rows of its kernels) of every program that the network has."""
    shape = problem.shape
    recurs = any(w is not None for w in problem.recurrent)
    named = {"gpu": gpu, "widths": shape.title, "recurrent": "hidden layers" if recurs else "none"}
    described: dict[str, Any] = {**named, "batch": shape.batch, "timesteps": shape.timesteps, "source": SOURCE}
    own = programs.Buffers(torch, problem, torch.float32)
    programs.listed(own)()
    described |= activity(torch, problem, own)
    reference = [each.clone() for each in (*own.gradients, *programs.filter_none(own.recurrent_gradients))]
    for strategy, (program, build, precisions) in PROGRAMS.items():
        if strategy not in strategies or (strategy == "hoisted" and recurs):
            continue
        for precision in precisions if torch.cuda.is_available() else ("fp32",):
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            own = programs.Buffers(torch, problem, torch.float16 if precision == "fp16" else torch.float32)
            step = build(own)
            step()
            if precision == "fp32":
                print(strategy, "gradients off those of 'listed':", difference(own, reference), flush=True)
            found = [] if strategy == "graph_replay" else kernels_of(torch, step)
            run = replayed(torch, step) if torch.cuda.is_available() else step
            timed = timing(torch, run, small)
            of = {"strategy": strategy, "precision": precision}
            yield (
                {**described, **of, "program": f"{program}, PyTorch {torch.__version__}", **timed},
                [{**named, **of, "position": at, **each} for at, each in enumerate(found)],
            )
            del own, step, run
    if "as_published" in strategies:
        yield from xla_rows(torch, problem, described, small)


def difference(own: programs.Buffers, reference: list[Any]) -> str:
    """Largest difference of every weight's gradient, over its largest value."""
    mine = (*own.gradients, *programs.filter_none(own.recurrent_gradients))
    pairs = zip(mine, reference, strict=True)
    return " ".join(f"{float((one - other).abs().max() / other.abs().max()):.1e}" for one, other in pairs)


def xla_rows(
    torch: Any, problem: programs.Problem, described: dict[str, Any], small: bool
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax

        from benchmarks.gpu.xla import training_step
    except ImportError:
        return
    own = programs.Buffers(torch, problem, torch.float32)
    own.unfold()
    inputs = own.input.unflatten(0, (own.steps, own.batch)).cpu().numpy()
    weights = [w.cpu().numpy() for w in problem.weights]
    recurrent = [None if w is None else w.cpu().numpy() for w in problem.recurrent]
    del own
    graphs = "--xla_gpu_enable_command_buffer=" not in os.environ.get("XLA_FLAGS", "")
    for precision in ("tf32", "fp32"):
        step = training_step(inputs, weights, recurrent, problem.labels.cpu().numpy(), precision)
        program = f"jax.lax.scan, JAX {jax.__version__}, {'XLA as it comes' if graphs else 'without command buffers'}"
        timed = timing(torch, step, small, finish=lambda last: last.block_until_ready())
        row = {**described, "strategy": "as_published", "precision": precision, "program": program, **timed}
        yield row, []


def activity(torch: Any, problem: programs.Problem, own: programs.Buffers) -> dict[str, str]:
    """Means per timestep and sample, layer by layer with the input first: spikes, entries of the gradient's lists; and
    the longest list of spikes of a batch, mean over timesteps."""
    shape = (own.steps, own.batch)
    fired = [problem.counts.view(shape).float()] + [(s[1:] > 1.0).sum(2).float() for s in own.states]
    listed = [fired[0]] + [(s[1:] > SECOND_THRESHOLD).sum(2).float() for s in own.states[:-1]]
    return {
        "spikes": " ".join(f"{float(each.mean()):.2f}" for each in fired),
        "listed": " ".join(f"{float(each.mean()):.2f}" for each in listed),
        "longest": " ".join(f"{float(each.max(1).values.mean()):.2f}" for each in fired),
    }


def timing(
    torch: Any,
    step: Callable[[], Any],
    small: bool,
    finish: Callable[[Any], Any] | None = None,
    seconds: float = 0.8,
) -> dict[str, Any]:
    """Median ms of a step over groups of back-to-back steps, its quartiles, and mJ by the board's own counter."""
    on_gpu = torch.cuda.is_available()

    def wait(last: Any) -> float:
        if finish is not None:
            finish(last)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    last = None
    for _ in range(3):
        last = step()
    begun = wait(last)
    last = step()
    once = max(wait(last) - begun, 1e-6)
    calls = 1 if small else max(1, round(0.03 / once))
    found = []
    joules = energy_counter() if on_gpu and not small else None
    before, begun = (joules() if joules else 0.0), wait(last)
    done, until = 0, begun + (0.0 if small else seconds)
    while len(found) < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(calls):
            last = step()
        found.append((wait(last) - start) / calls)
        done += calls
    spent = (joules() - before) / done if joules else None
    quarters = statistics.quantiles(found, n=4)
    return {
        "ms": f"{1e3 * statistics.median(found):.5f}", "ms_low": f"{1e3 * quarters[0]:.5f}",
        "ms_high": f"{1e3 * quarters[2]:.5f}", "mJ": "" if spent is None else f"{1e3 * spent:.2f}",
    }  # fmt: skip


def energy_counter() -> Callable[[], float] | None:
    """Joules since the driver was loaded, or None where the board or the package has no counter."""
    try:
        import pynvml

        pynvml.nvmlInit()
        board = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(board)
    except Exception:  # whatever is missing, rows have no energy then
        return None
    return lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(board)) / 1e3


def kernels_of(torch: Any, step: Callable[[], None]) -> list[dict[str, Any]]:
    """The kernels of one step in order, each the median of five steps."""
    if not torch.cuda.is_available():
        return []
    from torch.profiler import ProfilerActivity, profile

    steps = 5
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    events = sorted(
        (each for each in seen.events() if each.device_time_total > 0), key=lambda each: each.time_range.start
    )
    each_step, odd = divmod(len(events), steps)
    if odd:
        return []
    return [
        {
            "kernel": events[at].name[:LONGEST_NAME].replace("\n", " "),
            "times": 1,
            "us": f"{statistics.median(events[at + turn * each_step].device_time_total for turn in range(steps)):.2f}",
        }
        for at in range(each_step)
    ]


def parameters(torch: Any, gpu: str) -> Iterator[dict[str, Any]]:
    """What models/*.toml states of a GPU, as far as a program without counters can see it."""

    def row(parameter: str, value: float, unit: str, how: str) -> dict[str, Any]:
        return {"gpu": gpu, "parameter": parameter, "value": f"{value:.6g}", "unit": unit, "how": how}

    def seconds(work: Callable[[], Any], calls: int, repeats: int = 15) -> float:
        work()
        found = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                work()
            torch.cuda.synchronize()
            found.append((time.perf_counter() - start) / calls)
        return statistics.median(found)

    joules = energy_counter()
    if joules is not None:
        time.sleep(1.0)
        before, begun = joules(), time.perf_counter()
        time.sleep(2.0)
        spent, passed = joules() - before, time.perf_counter() - begun
        yield row("idle_watts", spent / passed, "W", "energy counter, context idle")
    tiny = torch.zeros(1024, device="cuda")
    yield row("stream_period_seconds", seconds(lambda: tiny.add_(1.0), 2000), "s", "add_ of 1024 numbers, eager")
    graph = replayed(torch, lambda: [tiny.add_(1.0) for _ in range(1000)])
    yield row("graph_period_seconds", seconds(graph, 3) / 1000, "s", "add_ of 1024 numbers, 1000 nodes replayed")

    def waited() -> None:
        tiny.add_(1.0)
        torch.cuda.synchronize()

    yield row("launch_and_wait_seconds", seconds(waited, 500), "s", "add_ of 1024 numbers, synchronised each time")
    for megabytes in (0.25, 1, 4, 8, 16, 24, 32, 64, 256, 2048):
        count = int(megabytes * 2**20 / 12)
        a, b, c = (torch.ones(count, device="cuda") for _ in range(3))
        reps = 20 if megabytes < 256 else 2
        run = replayed(torch, lambda a=a, b=b, c=c, reps=reps: [torch.add(a, b, out=c) for _ in range(reps)])
        took = seconds(run, 3) / reps
        yield row(f"stream_{megabytes}_MiB", 12 * count / took / 1e9, "GB/s", "torch.add over so much, replayed")
    pinned = torch.ones(64 * 2**20, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(pinned, device="cuda")
    yield row(
        "host_bytes_per_second", pinned.numel() / seconds(lambda: target.copy_(pinned, non_blocking=True), 3) / 1e9,
        "GB/s", "pinned copy of 64 MiB",
    )  # fmt: skip
    paged = torch.ones(64 * 2**20, dtype=torch.uint8)
    yield row(
        "pageable_bytes_per_second", paged.numel() / seconds(lambda: target.copy_(paged), 3) / 1e9,
        "GB/s", "pageable copy of 64 MiB",
    )  # fmt: skip
    try:
        import cupy
    except ImportError:
        return
    code = r"""
    #include <cooperative_groups.h>
    extern "C" __global__ void turns(int count) {
        auto grid = cooperative_groups::this_grid();
        for (int i = 0; i < count; ++i) grid.sync();
    }"""
    try:
        kernel = cupy.RawKernel(code, "turns", backend="nvcc", enable_cooperative_groups=True)
        blocks = torch.cuda.get_device_properties(0).multi_processor_count
        period = seconds(lambda: (kernel((blocks,), (256,), (1000,)), cupy.cuda.Device().synchronize()), 1) / 1000
    except Exception as error:  # a missing compiler, say; the other rows stand
        print("grid_period_seconds not measured:", str(error).splitlines()[0])
        return
    yield row("grid_period_seconds", period, "s", "grid.sync() of one block of 256 threads a multiprocessor")


if __name__ == "__main__":
    main()
