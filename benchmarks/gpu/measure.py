"""Measure matrix products and training steps on an available GPU, in formats that `mimdsim validate` reads.

    python benchmarks/gpu/measure.py --out measured/

writes measured/gemm_measurements.csv and measured/gpu_snn_measurements.csv; then

    mimdsim validate measured/gemm_measurements.csv measured/gpu_snn_measurements.csv

compares the model with them. Needs PyTorch (pip install torch). Without a GPU it runs small sizes on the processor, to
show that it works; such rows say CPU and are meaningless for a GPU.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.bptt import Shape, given, hoisted, looped
from mimdsim.base.errors import MissingExtra
from mimdsim.base.files import write_atomically

PRODUCTS = [(48, 1466, 2312), (48, 1466, 1466), (48, 2312, 1466), (128, 1024, 1024), (512, 1466, 1466)]
PRODUCTS += [(4800, 1466, 2312), (4800, 2312, 1466), (1466, 1466, 4800), (4096, 4096, 4096), (48, 5874, 5870)]
# rows that start at multiples of 16 bytes, and of fewer
PRODUCTS += [(48, 1472, 2304), (48, 1472, 1472), (48, 2304, 1472), (4800, 1472, 2304), (1472, 1472, 4800)]
PRODUCTS += [(4800, 1468, 2304), (4800, 1465, 2304), (48, 1465, 2304), (512, 1472, 1472), (48, 512, 512)]
PRODUCTS += [(512, 512, 512), (48, 5888, 5888), (256, 1472, 1472), (48, 256, 256), (4800, 592, 592)]
SMALL_PRODUCTS = [(48, 64, 128), (128, 128, 128)]
SHAPES = (
    Shape(widths=(2312, 1466, 1466, 10), timesteps=100, batch=48),
    Shape(widths=(2312, 588, 588, 588, 588, 10), timesteps=100, batch=48),
    Shape(widths=(700, 1461, 1460, 20), timesteps=100, batch=48),
)
SMALL_SHAPES = (Shape(widths=(40, 30, 20, 5), timesteps=10, batch=8),)
GEMM_COLUMNS = ("source", "gpu", "dtype", "batch", "M", "N", "K", "time_us", "includes_host_overhead_us", "kernel")
SNN_COLUMNS = (
    "source", "gpu", "gpu_basis", "framework", "exec_style", "task", "batch_B", "steps_T", "neurons_or_layers", "dtype",
    "metric", "value_s", "peak_mem_bytes", "timing_valid", "notes",
)  # fmt: skip
SOURCE = "mimdsim benchmarks/gpu/measure.py"
VALID = "ok (device synchronised around every repetition, median)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("measured"), help="folder to write")
    parser.add_argument("--repeats", type=int, default=20, help="repetitions of every measurement")
    parser.add_argument("--small", action="store_true", help="small sizes, also on a GPU")
    options = parser.parse_args()
    torch = _torch()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = options.small or device == "cpu"
    gpu = torch.cuda.get_device_name() if device == "cuda" else "CPU (no GPU at hand)"
    write_rows(
        options.out / "gemm_measurements.csv", GEMM_COLUMNS, products(torch, device, gpu, options.repeats, small)
    )
    write_rows(options.out / "gpu_snn_measurements.csv", SNN_COLUMNS, steps(torch, device, gpu, options.repeats, small))
    print(f"measured on {gpu}; written: {options.out}/gemm_measurements.csv, {options.out}/gpu_snn_measurements.csv")


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch", "measuring on a GPU") from None
    return torch


def write_rows(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def median_seconds(torch: Any, device: str, work: Callable[[], Any], repeats: int, calls: int = 1) -> float:
    """Median over `repeats` of the seconds of one call, `calls` of them between two synchronisations."""

    def finished() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    for _ in range(2):
        work()
    found = []
    for _ in range(repeats):
        start = finished()
        for _ in range(calls):
            work()
        found.append((finished() - start) / calls)
    return statistics.median(found)


def replayed(torch: Any, work: Callable[[], Any]) -> Callable[[], Any]:
    """`work` captured once as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], Any] = graph.replay
    return replay


def formats(torch: Any, device: str) -> list[tuple[str, Any, bool]]:
    """(name in the table, element type, TF32 allowed)"""
    found = [("fp32 SIMT", torch.float32, False)]
    if device == "cuda":
        found += [("TF32", torch.float32, True), ("FP16", torch.float16, False), ("BF16", torch.bfloat16, False)]
    return found


def products(torch: Any, device: str, gpu: str, repeats: int, small: bool) -> list[dict[str, Any]]:
    """Every product many times back to back, so that launches hide behind products longer than a launch."""
    rows = []
    for name, dtype, tf32 in formats(torch, device):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for m, n, k in SMALL_PRODUCTS if small else PRODUCTS:
            a, b = torch.randn((m, k), device=device, dtype=dtype), torch.randn((k, n), device=device, dtype=dtype)
            out = torch.empty((m, n), device=device, dtype=dtype)

            def once(a: Any = a, b: Any = b, out: Any = out) -> None:
                torch.mm(a, b, out=out)

            work = replayed(torch, lambda run=once: [run() for _ in range(20)]) if device == "cuda" else once
            seconds = median_seconds(torch, device, work, repeats) / (20 if device == "cuda" else 1)
            rows.append(
                {
                    "source": SOURCE, "gpu": gpu, "dtype": name, "batch": 1, "M": m, "N": n, "K": k,
                    "time_us": f"{1e6 * seconds:.3f}", "includes_host_overhead_us": "0 (replayed graph of 20)",
                    "kernel": "",
                }
            )  # fmt: skip
    return rows


def steps(torch: Any, device: str, gpu: str, repeats: int, small: bool) -> list[dict[str, Any]]:
    """Forward, backward and gradients of whole training steps, without the update."""
    rows = []
    for shape in SMALL_SHAPES if small else SHAPES:
        for name, dtype, tf32 in formats(torch, device):
            if dtype not in (torch.float32, torch.float16):
                continue
            torch.backends.cuda.matmul.allow_tf32 = tf32
            spikes, weights, labels = given(torch, shape, device, dtype)
            for way, order in (("time loop", looped), ("products of all timesteps at once", hoisted)):

                def once(order: Any = order, spikes: Any = spikes, weights: Any = weights, labels: Any = labels) -> Any:
                    return order(torch, spikes, weights, labels)

                styles = [(f"eager PyTorch, {way}", once)]
                if device == "cuda":
                    styles.append((f"CUDA graph replay, {way}", replayed(torch, once)))
                for style, work in styles:
                    if device == "cuda":
                        torch.cuda.reset_peak_memory_stats()
                    seconds = median_seconds(torch, device, work, repeats)
                    peak = torch.cuda.max_memory_allocated() if device == "cuda" else ""
                    rows.append(
                        {
                            "source": SOURCE, "gpu": gpu, "gpu_basis": "torch.cuda.get_device_name",
                            "framework": f"written out, PyTorch {torch.__version__}", "exec_style": style,
                            "task": f"BPTT of {shape.title}, delay of one timestep, dense", "batch_B": shape.batch,
                            "steps_T": shape.timesteps, "neurons_or_layers": shape.title, "dtype": name,
                            "metric": "forward+backward", "value_s": f"{seconds:.9f}", "peak_mem_bytes": peak,
                            "timing_valid": VALID, "notes": "",
                        }
                    )  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
