"""Predictions of dense products on tiled machines, one row of a table at a time.

Columns: operation (matmul, matvec), machine, m, k, n, dtype, variant, metric, value, unit; and if given clock_hz (of
the machine unless given), partials (as dtype unless given), tolerance and source. C[m, n] = A[m, k] B[k, n]; a matvec
has m rows and k columns.

A matmul costs what its plan says. Published rates divide by the intervals of compute and of exchange, syncs left out
(matmul_bench.py of graphcore-research/sparsity-benchmarks), and so do `tflops`, `cycles` and `microseconds` here;
`total_cycles` has the syncs. A matvec is the timed program of the tutorial, its compute cycles means over tiles as in
the vendor's profiles: `compute_cycles` with idle contexts, `busy_cycles` without.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MimdsimError, suggest
from mimdsim.base.units import UNCERTAINTY
from mimdsim.compiler import measure_memory
from mimdsim.compiler.place.product_plan import plan_product
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.program import Program, RecordedActivity, WorkerBundles, extents_of
from mimdsim.timing import time_program
from mimdsim.validation.products.matrix_vector import matrix_vector_program
from mimdsim.validation.sensitivity import Bearing

NEEDED = {"operation", "machine", "m", "k", "n", "dtype", "variant", "metric", "value", "unit"}
PREDICTED = ("matmul", "matvec")
Cycles = dict[str, float]
# The table's name of a device -> the machine whose clock its figures must come from: 60 TFLOP/s in fp32 would be 96 %
# of what a GC200 can at 1.33 GHz, exchange included, so the chips were Bow (1.85 GHz).
DEVICES = {"IPU(GC200)": "bow"}
DTYPES = {"fp16": "f16", "fp32": "f32"}  # their names there


def predict_tiled_gemm(m: int, k: int, n: int, dtype: str, machine: str = "bow") -> float:
    """Microseconds of C[m, n] = A[m, k] B[k, n] in "f16" or "f32", A held by the matrix units; syncs left out."""
    return _microseconds(_machine(machine, None), m, k, n, dtype)


def _microseconds(machine: MimdMachine, m: int, k: int, n: int, dtype: str) -> float:
    return _matmul(machine, m, k, n, dtype, dtype)["microseconds"]


def tiled_gemm_bearing(row: dict[str, str], line: int, measured: float) -> Bearing:
    """Of a row that is predicted, in microseconds."""
    m, n, k = (int(row[name]) for name in ("M", "N", "K"))
    dtype = DTYPES[row["dtype"].lower()]
    return Bearing(
        line=line,
        machine=DEVICES[row["gpu"]],
        measured=measured,
        again=lambda machine: _microseconds(machine, n, k, m, dtype),
        formula=f"product in {dtype}",
    )


def predict_tiled_gemm_row(row: dict[str, str]) -> tuple[float | None, str]:
    """Seconds of a row with the columns gpu, dtype, batch, M, N, K, and a note; seconds None: the note says why.

    C[M, N] = A[M, K] B[K, N] with B as the weights: its transpose is planned, N by K times K by M.
    """
    if row["gpu"] not in DEVICES:
        return None, f"no description of device '{row['gpu']}'; known: {', '.join(DEVICES)}"
    dtype = DTYPES.get(row["dtype"].lower())
    if dtype is None:
        return None, f"no tiled product for dtype '{row['dtype']}'; known: fp16, fp32"
    try:
        m, n, k, batch = (int(row.get(name) or 1) for name in ("M", "N", "K", "batch"))
        if batch != 1:
            return None, f"batch = {batch}: only single products are planned on tiled machines"
        machine = DEVICES[row["gpu"]]
        return 1e-6 * predict_tiled_gemm(n, k, m, dtype, machine), f"{machine}, planned product, syncs left out"
    except ValueError:
        return None, f"M={row['M']} N={row['N']} K={row['K']} batch={row.get('batch')}: must be whole numbers"
    except MimdsimError as problem:
        return None, str(problem)


def predict_tiled_product(row: dict[str, str]) -> tuple[float | None, float, float, str]:
    """(prediction, low, high, note) of one row of the table; prediction None: the note says why."""
    try:
        for name in ("m", "k", "n"):
            int(row[name])
        _clock_of(row)
    except ValueError:
        return None, 0.0, 0.0, f"m={row['m']} k={row['k']} n={row['n']} clock_hz={row.get('clock_hz')}: not numbers"
    if row["operation"] == "matmul" and row["variant"] != "poplibs":
        return None, 0.0, 0.0, f"'{row['variant']}' is another software stack; only PopLibs' planner is described"
    if row["operation"] not in PREDICTED:
        return None, 0.0, 0.0, f"no operation '{row['operation']}'{suggest(row['operation'], PREDICTED)}"
    try:
        found = _predicted(row, _machine(row["machine"], _clock_of(row)))
    except MimdsimError as problem:
        return None, 0.0, 0.0, str(problem)
    metric = row["metric"]
    known = sorted(name for name in found if not name.endswith((".low", ".high")))
    if metric not in known:
        return None, 0.0, 0.0, f"no metric '{metric}' of a {row['operation']}{suggest(metric, known)}"
    return found[metric], found[f"{metric}.low"], found[f"{metric}.high"], ""


def tiled_product_bearing(row: dict[str, str], line: int, measured: float) -> Bearing:
    """Of a row that is predicted."""
    clock = _clock_of(row)
    changes = {} if clock is None else {"chip.clock_hz": clock}
    return Bearing(
        line=line,
        machine=row["machine"],
        measured=measured,
        again=lambda machine: _predicted(row, changed_machine(machine, changes))[row["metric"]],
        formula=f"{row['operation']} in {row['dtype']}, {row['variant']}: {row['metric']}",
    )


def _clock_of(row: dict[str, str]) -> float | None:
    return float(row["clock_hz"]) if row.get("clock_hz") else None


def _predicted(row: dict[str, str], machine: MimdMachine) -> Cycles:
    m, k, n = (int(row[name]) for name in ("m", "k", "n"))
    if row["operation"] == "matmul":
        return _matmul(machine, m, k, n, row["dtype"], row.get("partials") or row["dtype"])
    return _matvec(machine, m, k, n, row["dtype"], row["variant"])


def _machine(name: str, clock_hz: float | None) -> MimdMachine:
    machine = load_machine(name, {} if clock_hz is None else {"chip.clock_hz": clock_hz})
    if not isinstance(machine, MimdMachine):
        raise DescriptionError(f"machine '{name}'", ["is not a tiled machine; tiled products need one"])
    return machine


def _with_interval(found: Cycles, name: str, middle: float, low: float, high: float) -> None:
    found[name], found[f"{name}.low"], found[f"{name}.high"] = middle, low, high


@lru_cache(maxsize=256)
def _matmul(machine: MimdMachine, m: int, k: int, n: int, dtype: str, partials_dtype: str) -> Cycles:
    plan = plan_product(machine, m, k, n, dtype, partials_dtype)
    compute, exchange, sync = plan.compute_cycles, plan.exchange_cycles, plan.sync_cycles
    compute_off, exchange_off = UNCERTAINTY["published"] * compute, UNCERTAINTY["derived"] * exchange
    sync_off = UNCERTAINTY["derived"] * sync
    cycles, off = compute + exchange, compute_off + exchange_off
    clock = machine.chip.clock_hz
    found: Cycles = {}
    _with_interval(found, "compute_cycles", compute, compute - compute_off, compute + compute_off)
    _with_interval(found, "exchange_cycles", exchange, exchange - exchange_off, exchange + exchange_off)
    _with_interval(found, "cycles", cycles, cycles - off, cycles + off)
    total, total_off = cycles + sync, off + sync_off
    _with_interval(found, "total_cycles", total, total - total_off, total + total_off)
    in_us = 1e6 / clock
    _with_interval(found, "microseconds", cycles * in_us, (cycles - off) * in_us, (cycles + off) * in_us)
    rate = 2e-12 * m * k * n * clock
    _with_interval(found, "tflops", rate / cycles, rate / (cycles + off), rate / (cycles - off))
    return found


@lru_cache(maxsize=16)
def _matvec(machine: MimdMachine, rows: int, columns: int, n: int, dtype: str, variant: str) -> Cycles:
    if dtype != "f32" or n != 1:
        raise DescriptionError("matrix-vector product", [f"dtype '{dtype}', n = {n}: the tutorial has f32 and n = 1"])
    program = matrix_vector_program(machine, rows, columns, variant)
    memory = memory_profile(program, measure_memory(program, machine), machine)
    profile = time_program(program, machine, RecordedActivity(ids={}, counts={}, dropped={}), memory)
    kind = UNCERTAINTY["derived" if variant == "c++" else "published"]
    found: Cycles = {}
    compute = sum(span.busy_cycles for span in profile.spans) / program.tiles
    busy = _bundles(program) / program.tiles
    exchange = sum(span.exchange_cycles for span in profile.spans)
    total = sum(span.cycles for span in profile.spans)
    for name, middle, off in (
        ("compute_cycles", compute, kind),
        ("busy_cycles", busy, kind),
        ("exchange_cycles", exchange, UNCERTAINTY["assumed"]),
        ("total_cycles", total, kind),
    ):
        _with_interval(found, name, middle, middle * (1 - off), middle * (1 + off))
    return found


def _bundles(program: Program) -> float:
    """Bundles of all vertices: issue slots that are not idle."""
    total = 0.0
    for superstep, times, _ in program.supersteps():
        for table in superstep.tables:
            cost: Any = table.codelet.cost
            assert isinstance(cost, WorkerBundles)
            total += times * cost.fixed * table.vertices
            every: Any = extents_of(program, table)
            for term in cost.terms:
                extents = [every[name] for name in term.extents]
                total += times * term.bundles * float(np.prod(extents, axis=0).sum())
    return total
