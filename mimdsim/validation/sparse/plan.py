"""Sparse times dense on the tiled machine: which tile does what, what dominates the cycles, and the published rates.

`plan_sparse_product` answers for one shape; `SparsePlan.terms` says where the cycles go.

The published cycles are the sum of compute and exchange intervals of a profile (matmul_bench.py and reptil of
graphcore-research/sparsity-benchmarks), so syncs are left out of the rows. "best" is the best batch among powers of two
that fit; the measured program keeps fp32 copies of the dense operand and the result on the chip, as it casts on the
device.

Through PyTorch (graphcore-research/notebooks, sparsity_benchmarks/SpMM.ipynb) the dense operand comes, and the result
leaves, row by row, as PopART maps what has no layout of its own; the library has blocks of rows side by side
(StaticMatMul.cpp, createSparseDenseMatMulRHSGivenPlan). From one to the other every element of a block's column is a
piece of its own, which costs what any piece costs that is gathered (`exchange.arrange_fragment_bundles`), once for the
operand and once for the result. Without blocks both are rows, and only move. That this is how the compiler copies them
is assumed. It was looked for because rows with blocks of 16 were 310,000 cycles too fast at any density.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import NoReturn

from mimdsim.base.errors import DoesNotFit, MimdsimError, shortened
from mimdsim.base.units import show_bytes
from mimdsim.costs.fabric import fabric_of
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.dense_plan import plan_dense_product
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, around
from mimdsim.validation.sparse.codelets import Choice, SparseShape, ceil_divide
from mimdsim.validation.sparse.dynamic import plan_dynamic
from mimdsim.validation.sparse.static import plan_static


@dataclass(frozen=True, kw_only=True)
class SparsePlan(Choice):
    """A planned product of sparse [rows, columns] and dense [columns, batch] matrices, with syncs and the fixed part of
    exchanges among its terms. memory_bytes: of the fullest tile, operands and code included."""

    shape: SparseShape
    memory_bytes: int
    clock_hz: float

    @property
    def flops(self) -> int:
        """Multiplies and adds of nonzeros only."""
        return self.shape.flops

    @property
    def cycles(self) -> int:
        """All terms, one after the other: phases of the machine do not overlap."""
        return sum(self.terms.values())


def plan_sparse_product(
    machine: MimdMachine,
    rows: int,
    columns: int,
    batch: int,
    *,
    block: int = 1,
    density: float,
    dtype: str = "f16",
    static: bool = True,
) -> SparsePlan:
    """Plan sparse [rows, columns] times dense [columns, batch], nonzeros in random `block` x `block` squares.

    block: 1, 4, 8 or 16. dtype: "f16" or "f32". static: positions are known at compile time; else they arrive at run
    time in buckets. Raises NoCycleFormula (block, dtype), DescriptionError (extents, density) and DoesNotFit.
    """
    shape = SparseShape(rows=rows, columns=columns, batch=batch, block=block, density=density, dtype=dtype)
    choice = plan_static(shape, machine) if static else plan_dynamic(shape, machine)
    kind = "static" if static else "dynamic"
    what = (
        f"{kind} sparse product [{rows}, {columns}] x [{columns}, {batch}], block {block}, density {density:g}, {dtype}"
    )
    if choice is None or choice.refused:
        none = f"no partition over {machine.chip.tiles} tiles has temporaries that fit a tile"
        _refuse(what, shape, machine, choice.refused if choice else none)
    operands = ceil_divide(shape.operand_bytes, machine.chip.tiles)
    memory = choice.temporary_bytes + operands + machine.tile.code_bytes
    if memory > machine.tile.sram_bytes:
        parts = f"temporaries {choice.temporary_bytes:,}, operands {operands:,}, code {machine.tile.code_bytes:,} bytes"
        _refuse(what, shape, machine, f"the fullest tile needs {memory:,} bytes ({parts})")
    terms = {
        **choice.terms,
        "exchange setup": machine.exchange.fixed_cycles * choice.exchanges,
        "sync": machine.sync.internal_cycles * (choice.exchanges + choice.steps),
    }
    found = vars(choice) | {"terms": MappingProxyType(terms)}
    return SparsePlan(**found, shape=shape, memory_bytes=memory, clock_hz=machine.chip.clock_hz)


def _refuse(what: str, shape: SparseShape, machine: MimdMachine, why: str) -> NoReturn:
    available = machine.tile.sram_bytes
    whole = shape.operand_bytes
    raise DoesNotFit(
        f"{what} does not fit {machine.name}: {why}; a tile has {available:,} bytes ({show_bytes(available)}). "
        f"Operands and result are {show_bytes(whole)} of {show_bytes(available * machine.chip.tiles)} on the chip.\n"
        f"  Cut the batch (now {shape.batch}), use f16, a lower density, or a machine with more tiles or memory."
    )


COLUMNS = {"operation", "machine", "dtype", "m", "k", "n", "block", "density", "kind", "metric", "value", "unit"}
LARGEST_BATCH = 1 << 16
BATCHES = tuple(1 << power for power in range(LARGEST_BATCH.bit_length()))  # of which the fastest is looked for
COPY_BYTES = 4
RATE, RATIO, CYCLES = "nonzero_flops_per_second", "speed_over_dense", "cycles"
UNITS = {RATE: "TFLOP/s", RATIO: "x", CYCLES: "cycles"}
LIBRARY, FRAMEWORK = "poplar", "poptorch"
Shape = tuple[int, int, int, float]  # rows, columns, block, density
ARRANGED = "operand and result arranged for PyTorch, as is assumed"
NOTE = "a plan's terms are the vendor's; random pattern drawn with a fixed seed"


def sparse_product_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of a published figure."""
    published, tolerance = row.number("value"), row.number("tolerance", default=0.25)
    shape = row.whole("m"), row.whole("k"), row.whole("block"), row.number("density", above=0)
    batch = 0 if row["n"] == "best" else row.whole("n")
    framework = _through(row) == FRAMEWORK
    name = f"{row['kind']} {row['dtype']} {shape[0]}x{shape[1]} n={row['n']} block {shape[2]} density {shape[3]:g}"
    name += " over dense" * (row["metric"] == RATIO) + " through PyTorch" * framework
    yield row.figure(name, row["unit"], published, tolerance)
    again = partial(_predict, row, shape, batch)
    formula = f"{row['kind']}, {row['dtype']}, block {shape[2]}: {row['metric']}"
    yield {
        **around(again(row["machine"]), 0.2),
        "note": NOTE + (f"; {ARRANGED}" if framework else ""),
        "bearing": row.bearing(row["machine"], published, again, formula=formula),
    }


def _through(row: Cells) -> str:
    """Who calls the library, by the column `through` or, without one, by the source; rows of the notebook after its
    first have the source "same"."""
    source = row.get("source", "")
    found = row.get("through") or (FRAMEWORK if "PopTorch" in source or source == "same" else LIBRARY)
    if found not in (LIBRARY, FRAMEWORK):
        raise MimdsimError(f"column 'through': '{shortened(found)}' is neither {LIBRARY} nor {FRAMEWORK}")
    return found


def rows_to_blocks(machine: MimdMachine, shape: SparseShape) -> float:
    """Cycles in which a framework's dense operand and result are brought from rows to blocks and back."""
    cycles = 0.0
    for width in (shape.rows, shape.columns):
        held = ceil_divide(width * shape.batch, machine.chip.tiles)
        bundles = held * machine.exchange.arrange_fragment_bundles if shape.block > 1 else 0
        copied = bundles + held * shape.element_bytes / machine.tile.copy_bytes_per_cycle
        cycles += copied * machine.tile.issue_cycles / machine.tile.working_contexts
        cycles += float(fabric_of(machine).estimate(held * shape.element_bytes, 1, 1))
    return cycles


def _predict(row: Cells, shape: Shape, batch: int, on: MimdMachine | str) -> float:
    """On a machine, given itself or by name; raises MimdsimError where there is no prediction."""
    kind, metric = row["kind"], row["metric"]
    if row["operation"] != "sparse_dense_product" or kind not in ("static", "dynamic", "dense"):
        known = "static, dynamic, dense sparse_dense_product"
        raise MimdsimError(f"no plan for {kind} {row['operation']}; known: {known}")
    if metric not in (RATE, RATIO, CYCLES) or (kind == "dense" and metric != RATE):
        known = f"{RATE} (all), {RATIO}, {CYCLES} (static, dynamic)"
        raise MimdsimError(f"unknown metric '{metric}' of {kind}; known: {known}")
    row.check_unit(metric, UNITS[metric])
    machine = load_machine(on) if isinstance(on, str) else on
    if not isinstance(machine, MimdMachine):
        raise MimdsimError(f"{row['machine']} is not a tiled machine")
    if kind == "dense":  # all elements multiplied, those that would be nonzero counted
        return shape[3] * _dense_flops_per_second(machine, row["dtype"], batch, *shape[:2]) / 1e12
    plan = _plan(machine, row["dtype"], kind == "static", batch, *shape)
    arranged = rows_to_blocks(machine, plan.shape) if _through(row) == FRAMEWORK else 0
    if metric == CYCLES:
        return plan.cycles - plan.terms["sync"] + arranged
    rate = plan.flops / (_profiled_seconds(plan) + arranged / plan.clock_hz)
    if metric == RATE:
        return rate / 1e12
    return rate / (_dense_flops_per_second(machine, row["dtype"], batch, *shape[:2]) * shape[3])


def _profiled_seconds(plan: SparsePlan) -> float:
    return (plan.cycles - plan.terms["sync"]) / plan.clock_hz


@lru_cache(maxsize=64)
def _dense_flops_per_second(machine: MimdMachine, dtype: str, batch: int, rows: int, columns: int) -> float:
    """The dense product's rate at `batch`, or at its fastest batch when that is 0."""
    rates = []
    for tried in (batch,) if batch else BATCHES:
        try:
            dense = plan_dense_product(machine, rows, columns, tried, dtype)
        except DoesNotFit:
            if batch:
                raise
            break
        rates.append(
            2 * rows * columns * tried * machine.chip.clock_hz / (dense.compute_cycles + dense.exchange_cycles)
        )
    if not rates:
        raise DoesNotFit(f"dense product [{rows}, {columns}] does not fit {machine.name} at any batch")
    return max(rates)


@lru_cache(maxsize=256)
def _plan(
    machine: MimdMachine, dtype: str, static: bool, batch: int, rows: int, columns: int, block: int, density: float
) -> SparsePlan:
    """The plan for `batch`, or for the fastest batch when that is 0; raises DoesNotFit when none fits."""
    plan_of = partial(plan_sparse_product, block=block, density=density, dtype=dtype, static=static)
    if batch:
        return plan_of(machine, rows, columns, batch)
    fitting: list[SparsePlan] = []
    refusal: DoesNotFit | None = None
    for tried in BATCHES:
        copies = COPY_BYTES * (rows + columns) * tried // machine.chip.tiles if dtype == "f16" else 0
        try:
            plan = plan_of(machine, rows, columns, tried)
            if plan.memory_bytes + copies <= machine.tile.sram_bytes:
                fitting.append(plan)
        except DoesNotFit as problem:
            refusal = problem
    if not fitting:
        raise refusal or DoesNotFit(f"no batch up to {LARGEST_BATCH} leaves room for fp32 copies on {machine.name}")
    return max(fitting, key=lambda plan: plan.flops / _profiled_seconds(plan))


SPARSE_PRODUCTS = ReferenceTable(
    needed=COLUMNS,
    also={"through", "tolerance", "source"},
    read_row=sparse_product_row,
    doing="sparse products",
    figures="sparse product on tiles",
)
