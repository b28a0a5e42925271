"""Kernels of a small training step on GPUs, and plans of dense and sparse products on tiles, as they are:
`pinned_plans.csv`; as with figures, `python tests/test_pinned_plans.py >tests/pinned_plans.csv` writes it anew."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from networks import ADAM, small_network

from mimdsim.base.errors import MimdsimError
from mimdsim.check.published.sparse.plan import plan_sparse_product
from mimdsim.compiler.product_plan import ProductPlan, plan_product
from mimdsim.gpu import STRATEGIES, time_on_gpu
from mimdsim.graph import training_graph
from mimdsim.machine import GpuMachine, MimdMachine, load_machine
from mimdsim.workload import filled_activity

TABLE = Path(__file__).resolve().parent / "pinned_plans.csv"
COLUMNS = ("of", "what", "figures")
WIRINGS: dict[str, dict[str, Any]] = {
    "forward": {},
    "recurrent": {"recurrence": "all_to_all", "bias": True, "optimiser": ADAM},
    "dense": {"spikes": "dense", "delay": 0},
}
DENSE = ((64, 48, 32, "f16", None), (512, 300, 77, "f16", "f32"), (100, 2000, 16, "f32", None), (3, 5, 7, "f32", None))
SPARSE = (
    {"block": 1, "density": 0.1, "static": True},
    {"block": 4, "density": 0.25, "static": True, "dtype": "f32"},
    {"block": 16, "density": 0.5, "static": True},
    {"block": 1, "density": 0.1, "static": False, "dtype": "f32"},
    {"block": 8, "density": 0.25, "static": False},
    {"block": 16, "density": 0.05, "static": False},
)


def on_gpu(name: str, precision: Any, wiring: str) -> Iterator[tuple[str, str, str]]:
    """A line per kind of kernel of every strategy, and one of the whole; a refusal is a line as well."""
    gpu = load_machine(name)
    assert isinstance(gpu, GpuMachine)
    network = small_network((200, 120, 90, 10), timesteps=7, batch=24, capacities=(30, 20, 8), **WIRINGS[wiring])
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
        for rows, columns, batch in ((256, 128, 24), (64, 512, 100)):
            plan_of = plan_sparse_product(machine, rows, columns, batch, **changes)  # type: ignore[arg-type]
            parts = (plan_of.row_parts, plan_of.column_parts, plan_of.batch_parts, plan_of.busiest_blocks)
            told = f"{parts} {plan_of.planner_cycles} {plan_of.memory_bytes} {plan_of.flops} {dict(plan_of.terms)}"
            yield name, f"sparse {rows} {columns} {batch} {changes}", told


CASES = (
    ("a100", "tf32", "forward"),
    ("a100", "tf32", "recurrent"),
    ("h100", "fp16", "recurrent"),
    ("v100", "fp32", "dense"),
    ("tpu-v3", "bf16", "forward"),
    ("tiny",),
    ("bow",),
)


def lines(case: tuple[str, ...]) -> list[tuple[str, str, str]]:
    return list(on_gpu(*case) if len(case) > 1 else on_tiles(*case))


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_plans_are_as_pinned(case: tuple[str, ...]) -> None:
    with TABLE.open(newline="", encoding="utf-8") as file:
        table = [(row["of"], row["what"], row["figures"]) for row in csv.DictReader(file)]
    start = f"{case[0]} {case[1]}, {case[2]}, " if len(case) > 1 else case[0]
    expected = [line for line in table if (line[0].startswith(start) if len(case) > 1 else line[0] == start)]
    assert lines(case) == expected


def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for case in CASES:
        writer.writerows(lines(case))


if __name__ == "__main__":
    main()
