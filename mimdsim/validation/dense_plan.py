"""A dense product as PopLibs plans and runs it: which splits its planner takes, and what their phases cost.

C[m, n] = A[m, k] B[k, n], A held by the matrix units. The planner of convolutions takes the splits of lowest estimate
(lib/poplin/ConvModel.cpp, ConvPlan.cpp): bytes over the exchange, its own formulas for vertices, nothing for launches
and fixed parts. What the splits cost is told apart from that:

    copy      the part of an operand that a tile keeps, into the piece that its vertex reads
    exchange  the other parts of both operands; B once for all steps where that is estimated to be shorter
    multiply  ConvPartial1x1Out, its loop as it is written
    reduce    in one, two or three stages (ConvReducePlan.cpp), each an exchange and ReduceAdd, whose results are dealt
              out in whole groups of output channels (ConvReduce.cpp): with few columns, few tiles add
    slice     where there are steps, the rows of A from and of C to their places

and a launch for every vertex. The copy is assumed: no public source shows what the compiler does with such parts.

Left out: other vertices than the matrix unit's, steps over the inner dimension, operands the other way round, and
regrouping of results for a next layer, an estimate that is nearly the same for all splits.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import DoesNotFit
from mimdsim.base.units import show_bytes
from mimdsim.codelets.products import partial_product_cycles
from mimdsim.compiler.place.product_plan import ITEM_BYTES, MEMORY_SHARE, check_product
from mimdsim.costs.fabric import fabric_of
from mimdsim.costs.library.elementwise import cast_1d_cycles
from mimdsim.costs.library.reductions import dynamic_slice_1d_cycles, reduce_add_cycles
from mimdsim.machine import MimdMachine
from mimdsim.validation.silicon.vertices import LAUNCH_CYCLES
from mimdsim.validation.sparse.codelets import ceil_divide, fewest_parts
from mimdsim.validation.stencil.boxes import CALL_BUNDLES

TWO_STAGES, THREE_STAGES = 16, 125  # partial sums from which on a reduction has as many stages
MEMORY_ELEMENT_BYTES, SINGLE_INPUT_SHARE = 1 << 14, 16  # checkPartialsSizeForSingleInputReduce of ConvReducePlan.hpp
LEAST_BYTES = {"a": 128, "b": 256}  # of an operand on a tile (mapActivationsOrWeights of Convolution.cpp)


class _Product:
    """C[m, n] = A[m, k] B[k, n] on a machine, and cycles of its vertices. size, sum_size: bytes of an element and of a
    partial sum; resident: of a tile for operands, result and code."""

    def __init__(self, machine: MimdMachine, m: int, k: int, n: int, dtype: str, partials: str):
        unit = check_product(machine, {"m": m, "k": k, "n": n}, dtype, partials, MEMORY_SHARE)
        self.machine, self.tile, self.m, self.k, self.n = machine, machine.tile, m, k, n
        self.dtype, self.partials, self.size, self.sum_size = dtype, partials, ITEM_BYTES[dtype], ITEM_BYTES[partials]
        self.units, self.channels = unit.units(dtype, partials), unit.channels(dtype)
        self.load_bytes = unit.coefficient_load_bytes_per_cycle
        operands = (m * k + k * n + m * n) * self.size
        self.resident = machine.tile.code_bytes + ceil_divide(operands, machine.chip.tiles)
        contexts, vector_bytes = machine.tile.working_contexts, machine.tile.vector_bytes
        self._vertex: dict[str, Any] = {"worker_contexts": contexts, "vector_bytes": vector_bytes}

    def multiply(self, positions: Any, out_groups: Any, in_groups: Any, *, assembler: bool) -> Any:
        shared = self.dtype, self.partials, self.units, self.channels, self.load_bytes
        return partial_product_cycles(
            positions,
            out_groups,
            in_groups,
            shared=shared,
            worker_contexts=self.tile.working_contexts,
            assembler=assembler,
        )

    def reduce(self, outputs: Any, added: int, last: bool) -> Any:
        """`outputs` sums of `added` partial sums; without a list of pointers where the own partial sum lies apart."""
        arriving = (added - 1) * outputs * self.sum_size
        elements = ceil_divide(arriving, MEMORY_ELEMENT_BYTES) * MEMORY_ELEMENT_BYTES
        single = (outputs % (16 // self.sum_size) == 0) & (elements < self.tile.sram_bytes / SINGLE_INPUT_SHARE)
        formats = {"dtype": self.partials, "out_dtype": self.dtype if last else self.partials, **self._vertex}
        alone = reduce_add_cycles(outputs, added - 1, single_input=True, **formats)
        return np.where(single, alone, reduce_add_cycles(outputs, added, **formats))

    def slice(self, elements: Any, dtype: str) -> Any:
        return dynamic_slice_1d_cycles(elements, 1, dtype=dtype, **self._vertex)

    def cast(self, elements: Any) -> Any:
        return cast_1d_cycles(elements, source=self.partials, target=self.dtype, **self._vertex)


@lru_cache(maxsize=4096)
def stages(depth: int) -> tuple[int, ...]:
    """How many partial sums of every output are left after each stage of a reduction; the last leaves one."""
    number = 3 if depth >= THREE_STAGES else 2 if depth >= TWO_STAGES else 1
    return (*_fewest_messages(depth, number)[0], 1) if depth > 1 else ()


def _fewest_messages(depth: int, number: int) -> tuple[tuple[int, ...], float]:
    """(what is left after all stages but the last, messages to a tile)."""
    if number == 1:
        return (), float(depth)
    down = int(depth ** ((number - 1) / number))
    tried = []
    for left in (down + 1, down):
        later, messages = _fewest_messages(left, number - 1)
        tried.append(((left, *later), messages + depth / left))
    return min(tried, key=lambda plan: plan[1])


def plan_dense_product(
    machine: MimdMachine, m: int, k: int, n: int, dtype: str, partials_dtype: str | None = None
) -> DensePlan:
    """The plan of C[m, n] = A[m, k] B[k, n] on one chip of `machine`; raises as `plan_product` does."""
    product = _Product(machine, m, k, n, dtype, dtype if partials_dtype is None else partials_dtype)
    found = _estimates(product)
    limit = MEMORY_SHARE * machine.tile.sram_bytes
    if found["bytes"].min() > limit or product.resident > machine.tile.sram_bytes:
        raise DoesNotFit(
            f"product {m} x {k} x {n} ({dtype}): no split over {machine.chip.tiles} tiles of {machine.name} fits; of "
            f"the {show_bytes(machine.tile.sram_bytes)} of a tile the smallest needs "
            f"{show_bytes(int(found['bytes'].min()))} for operands and sums in flight, which may take "
            f"{show_bytes(limit)}, and operands and result {show_bytes(product.resident)}: take "
            "smaller extents, f16 or a larger machine"
        )
    best = int(np.where(found["bytes"] <= limit, found["cycles"], np.inf).argmin())
    return DensePlan(product, {name: int(column[best]) for name, column in found.items()})


def _candidates(groups: int, inner_groups: int, n: int, tiles: int) -> tuple[Any, ...]:
    """(steps, row, inner, column splits); rows are in even shares of all steps."""
    every = fewest_parts(groups, groups)
    pairs = [(s, total // s) for total in every for s in range(1, total + 1) if total % s == 0 and total // s <= tiles]
    of_rows = np.array(pairs, np.int64)
    at, inner, columns = (
        axis.ravel()
        for axis in np.meshgrid(
            np.arange(len(of_rows)), fewest_parts(inner_groups, tiles), fewest_parts(n, tiles), indexing="ij"
        )
    )
    steps, rows = of_rows[at].T
    kept = rows * inner * columns <= tiles
    return steps[kept], rows[kept], inner[kept], columns[kept]


def _estimates(product: _Product) -> dict[str, Any]:
    """Columns of a table with a row for every split, B moved in every step or before them: the planner's estimate."""
    machine, units, channels = product.machine, product.units, product.channels
    groups, inner_groups = ceil_divide(product.m, units), ceil_divide(product.k, channels)
    steps, rows, inner, columns = _candidates(groups, inner_groups, product.n, machine.chip.tiles)
    out_groups: Any = ceil_divide(groups, steps * rows)
    in_groups: Any = ceil_divide(inner_groups, inner)
    positions: Any = ceil_divide(product.n, columns)
    a, b = out_groups * units * in_groups * channels, in_groups * channels * positions
    sums, rate = out_groups * units * positions, machine.exchange.bytes_per_cycle
    shared = np.where(rows % machine.exchange.tiles_per_bus == 0, machine.exchange.tiles_per_bus, 1)
    moving_b = np.ceil((b - b // rows) * product.size / (rate * shared))
    above = int(sums.max()) + 1
    different, which = np.unique(inner * above + sums, return_inverse=True)
    depths, held = np.divmod(different, above)
    several, first = np.unique(depths, return_index=True)
    by_depth = zip(several, np.split(held, first[1:]), strict=True)
    each = [_estimated_reduction(product, alike, int(depth)) for depth, alike in by_depth]
    body = np.ceil((a - a // columns) * product.size / rate) + np.concatenate(each)[which]
    body += product.multiply(positions, out_groups, in_groups, assembler=False)
    slices = product.slice(ceil_divide(a, columns), product.dtype)
    slices = slices + product.slice(ceil_divide(ceil_divide(sums, inner), steps), product.partials)
    body += np.where(steps > 1, slices, 0)
    table = {"steps": steps, "row_splits": rows, "inner_splits": inner, "column_splits": columns}
    table |= {"out_groups": out_groups, "in_groups": in_groups, "positions": positions, "a": a, "b": b, "sums": sums}
    again = np.flatnonzero(steps > 1)
    at = np.concatenate([np.arange(len(steps)), again])
    early = np.arange(len(at)) >= len(steps)
    cycles = body[at] * steps[at] + moving_b[at] * np.where(early, 1, steps[at])
    held_bytes = (a + b)[at] * product.size + sums[at] * product.sum_size
    found = {name: column[at] for name, column in table.items()}
    return found | {"early": early, "cycles": cycles, "bytes": held_bytes}


def _estimated_reduction(product: _Product, sums: Any, depth: int) -> np.ndarray:
    """The planner's cycles to exchange and add partial sums (estimateConvReduceCycles)."""
    rate = product.machine.exchange.bytes_per_cycle
    outputs: Any = ceil_divide(sums, depth) * depth
    cycles, before = np.ceil(sums * product.sum_size / rate), depth
    if depth == 1 and product.dtype != product.partials:
        return np.asarray(cycles + product.cast(sums))
    moved: Any = sums
    for number, left in enumerate(stages(depth)):
        cycles += np.ceil(moved * product.sum_size / rate) if number else 0
        added = ceil_divide(before, left)
        before, outputs, moved = ceil_divide(before, added), ceil_divide(outputs, added), ceil_divide(moved, added)
        cycles += product.reduce(outputs, added, left == 1)
    return np.asarray(cycles)


class DensePlan:
    """Splits: steps and row_splits of the rows of A, inner_splits, column_splits; early: B moves before the steps.

    Cycles of all steps; copy_cycles: of the compute cycles, those that are assumed; estimate_cycles: of the planner.
    """

    def __init__(self, product: _Product, at: dict[str, int]):
        machine, size = product.machine, product.size
        self.steps = steps = at["steps"]
        self.row_splits, self.inner_splits, self.column_splits = (
            at["row_splits"],
            at["inner_splits"],
            at["column_splits"],
        )
        rows, columns = self.row_splits, self.column_splits
        grains = {"a": product.channels, "b": product.channels * product.units}
        own, moving = {}, {}
        for name, readers in (("a", columns), ("b", rows)):
            least = max(grains[name], LEAST_BYTES[name] // size)
            share = max(ceil_divide(at[name], readers), min(least, at[name]))
            own[name] = share * size if readers > 1 else 0
            per_bus = (
                machine.exchange.tiles_per_bus if name == "b" and rows % machine.exchange.tiles_per_bus == 0 else 1
            )
            arriving = (at[name] - at[name] // readers) * size // per_bus
            moving[name] = max(own[name], arriving), min(readers, ceil_divide(at[name], share)) if readers > 1 else 0
        self.early = bool(at["early"] and moving["b"][1] > 0)
        copied, exchange, phases, exchanged = 0, 0, 0, fabric_of(machine).estimate
        turns = [(("b",), 1), (("a",), steps)] if self.early else [(("a", "b"), steps)]
        for names, times in turns:
            pieces = sum(moving[name][1] for name in names)
            if pieces:
                exchange += times * int(exchanged(sum(moving[name][0] for name in names), len(names), pieces))
                copy = sum(own[name] for name in names) / machine.tile.copy_bytes_per_cycle
                copied += times * math.ceil(CALL_BUNDLES * machine.tile.issue_cycles + copy)
                phases += times
        multiply = product.multiply(at["positions"], at["out_groups"], at["in_groups"], assembler=True)
        added, moved, reductions = _reduction(product, at)
        each = int(multiply) + LAUNCH_CYCLES + added
        if steps > 1:
            share, result = ceil_divide(at["a"], columns), ceil_divide(at["sums"], at["inner_splits"])
            sliced = product.slice(share, product.dtype) + product.slice(result, product.dtype)
            each += int(sliced) + 2 * LAUNCH_CYCLES
        scale = machine.tile.issue_cycles / machine.tile.working_contexts
        self.estimate_cycles, self.copy_cycles = at["cycles"], copied
        self.compute_cycles, self.exchange_cycles = copied + round(steps * each * scale), exchange + steps * moved
        self.sync_cycles = (phases + steps * reductions) * machine.barrier_cycles(all_chips=False)


def _reduction(product: _Product, at: dict[str, int]) -> tuple[int, int, int]:
    """(compute, exchange, exchanges) of one step."""
    sums, before = at["sums"], at["inner_splits"]
    if before == 1:
        return (int(product.cast(sums)) + LAUNCH_CYCLES if product.dtype != product.partials else 0), 0, 0
    compute, exchange, held = 0, 0, sums
    for left in stages(before):
        added = ceil_divide(before, left)
        adding = max(at["inner_splits"] // left, 1)  # tiles that share the outputs of one that is left
        outputs = ceil_divide(ceil_divide(sums, product.units), adding) * product.units
        wire = max(held - outputs, (added - 1) * outputs) * product.sum_size
        exchange += int(fabric_of(product.machine).estimate(wire, added - 1, added - 1))
        compute += int(product.reduce(outputs, added, left == 1)) + LAUNCH_CYCLES
        before, held = left, outputs
    return compute, exchange, len(stages(at["inner_splits"]))
