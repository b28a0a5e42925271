"""Published rates of sparse products, predicted row by row.

The published cycles are the sum of compute and exchange intervals of a profile (matmul_bench.py and reptil of
graphcore-research/sparsity-benchmarks), so syncs are left out here. "best" is the best batch among powers of two that
fit; the measured program keeps fp32 copies of the dense operand and the result on the chip, as it casts on the device.
"""

from __future__ import annotations

from functools import lru_cache, partial

from mimdsim.base.errors import DoesNotFit, MimdsimError
from mimdsim.compiler.place.product_plan import plan_product
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, around
from mimdsim.validation.sensitivity import Bearing
from mimdsim.validation.sparse.plan import SparsePlan, plan_sparse_product

COLUMNS = {"operation", "machine", "dtype", "m", "k", "n", "block", "density", "kind", "metric", "value", "unit"}
LARGEST_BATCH = 1 << 16
COPY_BYTES = 4
RATE, RATIO, CYCLES = "nonzero_flops_per_second", "speed_over_dense", "cycles"
Shape = tuple[int, int, int, float]  # rows, columns, block, density
NOTE = "a plan's terms are the vendor's; random pattern drawn with a fixed seed; interval: the usual error, 20 %"


def sparse_product_row(row: Cells, _asked: Asked) -> Fields:
    """Fields of a published figure."""
    published, tolerance = row.number("value"), row.number("tolerance", default=0.25)
    shape = row.whole("m"), row.whole("k"), row.whole("block"), row.number("density", above=0)
    batch = 0 if row["n"] == "best" else row.whole("n")
    predicted, note = _predict(row, shape, batch)
    return {
        **around(predicted, 0.2),
        "bearing": Bearing(
            line=row.line,
            machine=row["machine"],
            measured=published,
            again=partial(_again, row, shape, batch),
            formula=f"{row['kind']}, {row['dtype']}, block {shape[2]}: {row['metric']}",
        ),
        "name": f"{row['kind']} {row['dtype']} {shape[0]}x{shape[1]} n={row['n']} block {shape[2]} "
        f"density {shape[3]:g} {'over dense' if row['metric'] == RATIO else ''}".rstrip(),
        "unit": row["unit"],
        "published": published,
        "tolerance": tolerance,
        "source": row.get("source", ""),
        "note": note,
    }


def _again(row: dict[str, str], shape: Shape, batch: int, machine: MimdMachine) -> float:
    predicted, note = _predict(row, shape, batch, machine)
    if predicted is None:
        raise MimdsimError(note)
    return predicted


def _predict(
    row: dict[str, str], shape: Shape, batch: int, described: MimdMachine | None = None
) -> tuple[float | None, str]:
    """(prediction on the machine described, or that of the row's name; None: the note says why)."""
    kind, metric = row["kind"], row["metric"]
    if row["operation"] != "sparse_dense_product" or kind not in ("static", "dynamic", "dense"):
        return None, f"no plan for {kind} {row['operation']}; known: static, dynamic, dense sparse_dense_product"
    if metric not in (RATE, RATIO, CYCLES) or (kind == "dense" and metric != RATE):
        return None, f"unknown metric '{metric}' of {kind}; known: {RATE} (all), {RATIO}, {CYCLES} (static, dynamic)"
    try:
        machine = described or load_machine(row["machine"])
        if not isinstance(machine, MimdMachine):
            return None, f"{row['machine']} is not a tiled machine"
        if kind == "dense":  # all elements multiplied, those that would be nonzero counted
            return shape[3] * _dense_flops_per_second(machine, row["dtype"], batch, *shape[:2]) / 1e12, NOTE
        plan = _plan(machine, row["dtype"], kind == "static", batch, *shape)
        if metric == CYCLES:
            return float(plan.cycles - plan.terms["sync"]), NOTE
        rate = plan.flops / _profiled_seconds(plan)
        if metric == RATE:
            return rate / 1e12, NOTE
        dense = _dense_flops_per_second(machine, row["dtype"], batch, *shape[:2])
        return rate / (dense * shape[3]), NOTE
    except MimdsimError as refusal:
        return None, str(refusal)


def _profiled_seconds(plan: SparsePlan) -> float:
    return (plan.cycles - plan.terms["sync"]) / plan.clock_hz


@lru_cache(maxsize=64)
def _dense_flops_per_second(machine: MimdMachine, dtype: str, batch: int, rows: int, columns: int) -> float:
    """The dense product's rate at `batch`, or at its fastest batch when that is 0."""
    rates = []
    tried = batch or 1
    while tried <= (batch or LARGEST_BATCH):
        try:
            dense = plan_product(machine, rows, columns, tried, dtype)
        except DoesNotFit:
            if batch:
                raise
            break
        rates.append(
            2 * rows * columns * tried * machine.chip.clock_hz / (dense.compute_cycles + dense.exchange_cycles)
        )
        tried *= 2
    if not rates:
        raise DoesNotFit(f"dense product [{rows}, {columns}] does not fit {machine.name} at any batch")
    return max(rates)


@lru_cache(maxsize=256)
def _plan(
    machine: MimdMachine, dtype: str, static: bool, batch: int, rows: int, columns: int, block: int, density: float
) -> SparsePlan:
    """The plan for `batch`, or for the fastest batch when that is 0; raises DoesNotFit when none fits."""
    if batch:
        return plan_sparse_product(
            machine, rows, columns, batch, block=block, density=density, dtype=dtype, static=static
        )
    best: SparsePlan | None = None
    refusal: DoesNotFit | None = None
    tried = 1
    while tried <= LARGEST_BATCH:
        copies = COPY_BYTES * (rows + columns) * tried // machine.chip.tiles if dtype == "f16" else 0
        try:
            plan = plan_sparse_product(
                machine, rows, columns, tried, block=block, density=density, dtype=dtype, static=static
            )
            fits = plan.memory_bytes + copies <= machine.tile.sram_bytes
            if fits and (best is None or plan.flops / _profiled_seconds(plan) > best.flops / _profiled_seconds(best)):
                best = plan
        except DoesNotFit as problem:
            refusal = problem
        tried *= 2
    if best is None:
        raise refusal or DoesNotFit(f"no batch up to {LARGEST_BATCH} leaves room for fp32 copies on {machine.name}")
    return best


SPARSE_PRODUCTS = ReferenceTable(
    needed=COLUMNS, also={"tolerance", "source"}, predict_row=sparse_product_row, doing="sparse products"
)
