"""Kernels of a small training step on GPUs, what is said of measured rows, and plans of dense and sparse products on
tiles, as they are: `pinned_plans.csv`; as with figures, `python tests/golden/test_pinned_plans.py` writes it anew."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import astuple, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from networks import ADAM, small_network
from pins import assert_as_pinned

from mimdsim.base.errors import MimdsimError
from mimdsim.compiler.place.product_plan import ProductPlan, plan_product
from mimdsim.gpu import STRATEGIES, time_on_gpu
from mimdsim.graph import training_graph
from mimdsim.graph.losses import Loss
from mimdsim.machine import GpuMachine, MimdMachine, load_machine
from mimdsim.validation.gpus.networks import predict_snn_row
from mimdsim.validation.gpus.products import predict_gemm_row
from mimdsim.validation.sparse.codelets import SparseShape
from mimdsim.validation.sparse.plan import plan_sparse_product
from mimdsim.validation.sparse.static import place_reductions
from mimdsim.workload import filled_activity

TABLE = Path(__file__).resolve().parent / "pinned_plans.csv"
COLUMNS = ("of", "what", "figures")
SHAPES = ((256, 128, 24), (64, 512, 100), (1024, 512, 300), (3072, 1536, 1000), (48, 2400, 3), (1600, 32, 1))
WIRINGS: dict[str, dict[str, Any]] = {
    "forward": {},
    "recurrent": {"recurrence": "all_to_all", "bias": True, "optimiser": ADAM},
    "dense": {"spikes": "dense", "delay": 0},
    "read out": {"loss": Loss(kind="mean_squared_error", neurons_per_class=2, firing_strength=0.5)},
    "greatest potential": {"loss": Loss(reading="max")},
    "every potential": {"loss": Loss(reading="every"), "spikes": "dense"},
}
DENSE = ((64, 48, 32, "f16", None), (512, 300, 77, "f16", "f32"), (100, 2000, 16, "f32", None), (3, 5, 7, "f32", None))
SPARSE = (
    {"block": 1, "density": 0.1, "static": True},
    {"block": 4, "density": 0.25, "static": True, "dtype": "f32"},
    {"block": 16, "density": 0.5, "static": True},
    {"block": 1, "density": 0.1, "static": False, "dtype": "f32"},
    {"block": 8, "density": 0.25, "static": False},
    {"block": 16, "density": 0.05, "static": False},
    {"block": 1, "density": 0.02, "static": True, "dtype": "f32"},
)


def on_gpu(name: str, precision: Any, wiring: str) -> Iterator[tuple[str, str, str]]:
    """A line per kind of kernel of every strategy, and one of the whole; a refusal is a line as well."""
    gpu = load_machine(name)
    assert isinstance(gpu, GpuMachine)
    network = small_network((200, 120, 90, 10), timesteps=7, batch=24, capacities=(30, 20, 8), **WIRINGS[wiring])
    if "potential" in wiring:
        network = replace(network, layers=(*network.layers[:-1], replace(network.layers[-1], spiking=False)))
    graph, activity = training_graph(network), filled_activity(network, 0.5)
    for strategy in STRATEGIES:
        of = f"{name} {precision}, {wiring}, {strategy}"
        try:
            found = time_on_gpu(graph, gpu, strategy=strategy, precision=precision, activity=activity)
        except MimdsimError as refused:
            yield of, "refused", str(refused).splitlines()[0]
            continue
        kinds = dict.fromkeys((span.phase, span.op, span.bound) for span in found.spans)
        for kind in kinds:
            alike = [span for span in found.spans if (span.phase, span.op, span.bound) == kind]
            counted = (sum(getattr(span, name) for span in alike) for name in ("times", "flops", "bytes_moved"))
            yield of, " ".join(kind), " ".join([f"{sum(span.seconds for span in alike):.6g}", *map(str, counted)])
        joules = found.energy.joules if found.energy else 0.0
        times = (found.seconds_low, found.seconds_high, found.host_seconds, found.host_exposed_seconds, joules)
        yield of, "whole", " ".join([*(f"{number:.6g}" for number in times), str(found.bytes_needed)])


def on_tiles(name: str) -> Iterator[tuple[str, str, str]]:
    """A line per plan."""
    machine = load_machine(name)
    assert isinstance(machine, MimdMachine)
    for m, k, n, dtype, partials in DENSE:
        plan = plan_product(machine, m, k, n, dtype, partials)
        told = " ".join(f"{field.name}={getattr(plan, field.name)}" for field in fields(ProductPlan))
        yield name, f"product {m} {k} {n}", told
    for changes in SPARSE:
        for rows, columns, batch in SHAPES:
            try:
                plan_of = plan_sparse_product(machine, rows, columns, batch, **changes)
            except MimdsimError as refused:
                yield name, f"sparse {rows} {columns} {batch} {changes}", str(refused).splitlines()[0]
                continue
            parts = (*plan_of.parts, plan_of.busiest_blocks)
            told = f"{parts} {plan_of.estimate_cycles} {plan_of.memory_bytes} {plan_of.flops} {dict(plan_of.terms)}"
            yield name, f"sparse {rows} {columns} {batch} {changes}", told
    for rows, bands, tiles_per_band, row_share in product((64, 1600), (1, 2, 9), (1, 4), (1.0, 0.3)):
        for batch, block, pieces in ((16, 1, 2), (200, 4, 1), (2048, 1, 1)):
            shape = SparseShape(rows=rows, columns=64, batch=batch * pieces, block=block, density=0.5, dtype="f32")
            given = {"bands": bands, "pieces": pieces, "batch": batch, "tiles_per_band": tiles_per_band}
            found = place_reductions(shape, machine, row_share=row_share, **given)
            yield (
                name,
                f"reductions {rows} {row_share} {' '.join(map(str, given.values()))} {block}",
                str(astuple(found)),
            )


MEASURED: dict[str, tuple[tuple[str, str, str], ...]] = {  # task: framework, style, device
    "lstm": (("cudnn", "standard", "V100-SXM2"), ("cudnn", "persistent", "A100"), ("flashrnn", "fused", "H100")),
    "gru": (("haste", "", "RTX 2080 Ti"), ("flashrnn", "alternating", "T4"), ("flashrnn", "loop", "A100")),
    "rnn": (("cudnn", "persistent dynamic", "V100 PCIe"),),
    "lif with linear": (
        ("snntorch", "eager loop", "RTX 2070"), ("sinabs", "eager loop", "RTX3090"), ("norse", "loop", "A100(DGX)"),
        ("rockpool", "python loop", "H200"), ("spikingjelly", "loop", "RTX 4090"), ("spikingjelly cupy", "", "T4"),
        ("sinabs exodus", "loop", "A100"), ("norse", "compiled", "A100"), ("slayer", "loop", "A100 laptop"),
    ),
    "lif, no linear": (("spikingjelly", "loop", "A100 80GB PCIe"), ("spikingjelly cupy", "", "RTX 2080Ti"),
                       ("norse", "loop", "GH200")),
}  # fmt: skip
PASSES = ("forward", "forward+backward", "backward", "backward wrt inputs", "backward wrt weights", "sideways")


def on_references() -> Iterator[tuple[str, str, str]]:
    """A line per row of measurements as published tables have them, of layers and of products."""
    for task, measured in MEASURED.items():
        for framework, style, device in measured:
            for metric, size in product(PASSES, ((64, 16, 10), (2048, 64, 100))):
                row = {"gpu": device, "framework": framework, "exec_style": style, "metric": metric, "task": task}
                row |= dict(zip(("neurons_or_layers", "batch_B", "steps_T"), map(str, size), strict=True))
                try:
                    found = predict_snn_row(row)
                    said = f"{found.seconds:.6g} {found.tolerance} {found.spread} {found.note}"
                except MimdsimError as refusal:
                    said = f"none {refusal}"
                yield "measured rows", " ".join(row.values()), said
    for device, dtype, overhead in (
        ("V100", "fp32", ""), ("A100 80GB", "tf32", "~3"), ("RTX 3090", "fp16/fp32acc", "~20 (around eager op)"),
        ("H100", "bf16", "eager, 5"), ("TPU v3", "bf16", ""), ("TPU v4", "fp32", ""), ("V100S", "int8", ""),
    ):  # fmt: skip
        for shape in ("1 64 64 64 nn", "8 100 300 77 tn", "1 4096 1024 2048 x_tn", "1 0 5 5 nn"):
            row = dict(zip(("batch", "M", "N", "K", "kernel"), shape.split(), strict=True))
            row |= {"gpu": device, "dtype": dtype, "includes_host_overhead_us": overhead}
            try:
                predicted, note = predict_gemm_row(row)
                said = f"{predicted:.6g} {note}"
            except MimdsimError as refusal:
                said = f"None {refusal}"
            yield "measured rows", " ".join(row.values()), said


CASES = (
    ("measured rows",),
    ("a100", "tf32", "forward"),
    ("a100", "tf32", "recurrent"),
    ("h100", "fp16", "recurrent"),
    ("v100", "fp32", "dense"),
    ("tpu-v3", "bf16", "forward"),
    ("a100", "fp32", "read out"),
    ("v100", "fp16", "greatest potential"),
    ("h100", "tf32", "every potential"),
    ("tiny",),
    ("bow",),
)


def lines(case: tuple[str, ...]) -> list[tuple[str, str, str]]:
    if case == ("measured rows",):
        return list(on_references())
    return list(on_gpu(*case) if len(case) > 1 else on_tiles(*case))


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_plans_are_as_pinned(case: tuple[str, ...]) -> None:
    with TABLE.open(newline="", encoding="utf-8") as file:
        table = [(row["of"], row["what"], row["figures"]) for row in csv.DictReader(file)]
    start = f"{case[0]} {case[1]}, {case[2]}, " if len(case) > 1 else case[0]
    expected = [line for line in table if (line[0].startswith(start) if len(case) > 1 else line[0] == start)]
    assert_as_pinned(lines(case), expected, __file__)


def main() -> None:
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for case in CASES:
            writer.writerows(lines(case))


if __name__ == "__main__":
    main()
