"""The plan of a dense product: how rows, inner dimension and columns are split over tiles and over time.

C[m, n] = A[m, k] B[k, n]. A is the operand that the matrix units hold as coefficients (PopLibs' weights), the columns
of B are the positions that stream past them. Rows are cut into groups of as many rows as there are units, the inner
dimension into groups of as many inputs as a pass takes. As in PopLibs' convolution planner (lib/poplin/ConvModel.cpp),
every split of the three extents, and serial steps over the rows when memory is short, is priced with the cycles of the
program it leads to, compute and exchange added up; the lowest wins.

Left out of the vendor's model: transforms of the operands (they are stored as the plan wants them, as
createMatMulInput does), dynamic slices of serial steps (the steps are written out), reductions in several stages (they
save code, not cycles), serial splits of the inner dimension. What the library itself takes, with its stages, slices and
own choice of splits, is told by validation/dense_plan.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, DoesNotFit
from mimdsim.base.units import show_bytes
from mimdsim.codelets.products import SUM_PARTS, block_product, partial_product_cycles, partial_sum_cycles
from mimdsim.costs.fabric import fabric_of
from mimdsim.costs.isa_costs import with_machine_cost
from mimdsim.costs.library.elementwise import cast_1d_cycles
from mimdsim.machine import MimdMachine
from mimdsim.machine.codelet_costs import NATIVE
from mimdsim.machine.mimd import MatrixUnit
from mimdsim.program import Codelet, Length, Size, TileFormula


def operand_phase_cycles(machine: MimdMachine, left: Any, right: Any, rows: Any, columns: Any) -> Any:
    """int64: cycles of the phase that brings both operands; `left` and `right` are the bytes of one piece.

    A tile receives the pieces it does not hold. Tiles next to each other differ in their rows, so both want the same
    block of B; where the rows are not split they want the same block of A. What neither of a pair holds arrives over
    both their buses, so twice as fast, when pairs do not straddle blocks (an even split).
    """
    received = (columns - 1) * left + (rows - 1) * right
    if machine.exchange.tiles_per_bus == 2:
        alike = np.where(rows % 2 == 0, (rows - 2) * right, 0)
        alike = np.where((rows == 1) & (columns % 2 == 0), (columns - 2) * left, alike)
        received = received - alike // 2
    sent = np.where(columns > 1, left, 0) + np.where(rows > 1, right, 0)
    pieces_sent = (columns > 1).astype(np.int64) + (rows > 1)
    return fabric_of(machine).estimate(np.maximum(sent, received), pieces_sent, columns + rows - 2)


ITEM_BYTES = {"f16": 2, "f32": 4}
# Share of a tile's memory for operands and sums in flight: availableMemoryProportion of PopLibs (MatMul.cpp), default.
MEMORY_SHARE = 0.6
MAX_EXTENT = 1 << 24
# (elements, fragments) of the largest piece of a block's rows and columns that is summed in so many pieces
Pieces = Callable[[int, int, int], tuple[int, int]]
MAX_STEPS = 64
NEVER = np.iinfo(np.int64).max
CODELET_BYTES, STEP_BYTES = 1536, 64  # the two codelets of a tile, and the state of the two vertices of a step


@dataclass(frozen=True, kw_only=True)
class ProductPlan:
    """Splits of a product and the cycles they lead to.

    steps: serial steps over the rows; row_splits, inner_splits, column_splits: tiles along each extent; row_groups,
    inner_groups: groups of one tile in one step; columns: positions of one tile. *_piece: elements of an operand that
    one tile holds of each block; share: elements of C that one tile sums. Cycles are those of all steps.
    """

    m: int
    k: int
    n: int
    dtype: str
    partials_dtype: str
    units: int
    channels: int
    steps: int
    row_splits: int
    inner_splits: int
    column_splits: int
    row_groups: int
    inner_groups: int
    columns: int
    left_piece: int
    right_piece: int
    share: int
    multiply_cycles: int
    sum_cycles: int
    operand_exchange_cycles: int
    sum_exchange_cycles: int
    sync_cycles: int
    tile_bytes: int

    @property
    def tiles(self) -> int:
        return self.row_splits * self.inner_splits * self.column_splits

    @property
    def rows(self) -> int:
        """Rows of one tile in one step, padding included."""
        return self.row_groups * self.units

    @property
    def inner(self) -> int:
        """Extent of the inner dimension on one tile, padding included."""
        return self.inner_groups * self.channels

    @property
    def compute_cycles(self) -> int:
        return self.multiply_cycles + self.sum_cycles

    @property
    def exchange_cycles(self) -> int:
        return self.operand_exchange_cycles + self.sum_exchange_cycles

    @property
    def cycles(self) -> int:
        """Compute, exchange and syncs, one after the other."""
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles


def plan_product(
    machine: MimdMachine,
    m: int,
    k: int,
    n: int,
    dtype: str,
    partials_dtype: str | None = None,
    memory_share: float = MEMORY_SHARE,
    pieces: Pieces | None = None,
) -> ProductPlan:
    """The plan with the fewest cycles of C[m, n] = A[m, k] B[k, n] on one chip of `machine`.

    dtype "f16" or "f32"; partials_dtype as dtype unless given; pieces: how the tiles that hold partial sums of a block
    share it (None: in even shares of one fragment each, as the library does). Raises DescriptionError for a bad shape,
    format or a machine without [matrix], DoesNotFit when no split fits the memory.
    """
    partials_dtype = dtype if partials_dtype is None else partials_dtype
    unit = check_product(machine, {"m": m, "k": k, "n": n}, dtype, partials_dtype, memory_share)
    found = _candidates(machine, unit, m, k, n, dtype, partials_dtype)
    fits = (found["in_flight"] <= memory_share * machine.tile.sram_bytes) & (
        found["tile_bytes"] <= machine.tile.sram_bytes
    )
    if not fits.any():
        least, flying = int(found["tile_bytes"].min()), int(found["in_flight"].min())
        sram = machine.tile.sram_bytes
        raise DoesNotFit(
            f"product {m} x {k} x {n} ({dtype}): no split over {machine.chip.tiles} tiles of {machine.name} fits; of "
            f"the {show_bytes(sram)} of a tile the smallest needs {show_bytes(least)} in all and {show_bytes(flying)} "
            f"for operands and sums in flight, which may take {show_bytes(memory_share * sram)}: take smaller "
            "extents, f16, a larger memory_share or a larger machine"
        )
    cycles = found["multiply_cycles"] + found["sum_cycles"] + found["sync_cycles"]
    cycles = cycles + found["operand_exchange_cycles"] + found["sum_exchange_cycles"]
    # equal cycles: fewer tiles, then fewer bytes
    order = np.lexsort((found["tile_bytes"], found["tiles"], np.where(fits, cycles, NEVER)))
    best = int(order[0]) if pieces is None else _best_of_pieces(machine, found, cycles, order[: fits.sum()], pieces)
    chosen = {item.name: int(found[item.name][best]) for item in fields(ProductPlan) if item.name in found}
    given = {"m": m, "k": k, "n": n, "dtype": dtype, "partials_dtype": partials_dtype}
    units, channels = unit.units(dtype, partials_dtype), unit.channels(dtype)
    return ProductPlan(**given, units=units, channels=channels, **chosen)  # type: ignore[arg-type]


def _best_of_pieces(
    machine: MimdMachine, found: dict[str, Any], cycles: np.ndarray, order: np.ndarray, pieces: Pieces
) -> int:
    """The split with the fewest cycles when blocks are summed in pieces, whose exchange replaces that of even shares
    in `found`; these are never slower, so the search ends where they alone are as slow as the best."""
    best, least = int(order[0]), NEVER
    for at in map(int, order):
        if cycles[at] >= least:
            break
        exact, inner = int(cycles[at]), int(found["inner_splits"][at])
        if inner > 1:
            elements, fragments = pieces(int(found["rows"][at]), int(found["columns"][at]), inner)
            size = found["sum_bytes"][at] // found["share"][at]  # of one element of every other part
            moved = (inner - 1) * fragments
            sums = int(found["steps"][at]) * int(fabric_of(machine).estimate(size * elements, moved, moved))
            exact += sums - int(found["sum_exchange_cycles"][at])
            found["sum_exchange_cycles"][at] = sums
        if exact < least:
            best, least = at, exact
    return best


def check_product(
    machine: MimdMachine, extents: dict[str, int], dtype: str, partials_dtype: str, memory_share: float
) -> MatrixUnit:
    problems = [
        f"'{name}' is {extent!r}; a whole number from 1 to {MAX_EXTENT} is needed"
        for name, extent in extents.items()
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or not 1 <= extent <= MAX_EXTENT
    ]
    for name, given in (("dtype", dtype), ("partials_dtype", partials_dtype)):
        if given not in ITEM_BYTES:
            problems.append(f"'{name}' is {given!r}; write f16 or f32")
    if (dtype, partials_dtype) == ("f32", "f16"):
        problems.append("'partials_dtype' is f16 for data in f32; sums are never narrower than the data, write f32")
    if not 0 < memory_share <= 1:
        problems.append(f"'memory_share' is {memory_share!r}; it must be above 0 and at most 1")
    unit = machine.product_unit
    if unit is None:
        problems.append(f"machine '{machine.name}' has no matrix unit; add a [matrix] section to its description")
    if problems:
        raise DescriptionError("product of matrices", problems)
    assert unit is not None
    return unit


def split_choices(parts: int, most: int) -> np.ndarray:
    """int64: the fewest splits for every largest share of `parts`, and the fewest even ones, up to `most` splits."""
    splits = np.arange(1, min(parts, most) + 1)
    keys = -(-parts // splits) * 2 + splits % 2
    return np.sort(splits[np.unique(keys, return_index=True)[1]])


def _splits(groups: int, inner_groups: int, n: int, tiles: int) -> tuple[np.ndarray, ...]:
    """(steps, row, inner, column splits) of every candidate; every step but the last of the rows is full."""
    inner, columns = (axis.ravel() for axis in np.meshgrid(split_choices(inner_groups, tiles), split_choices(n, tiles)))
    kept = inner * columns <= tiles
    inner, columns = inner[kept], columns[kept]
    found = []
    steps = 1
    while steps <= min(MAX_STEPS, groups):
        for rows in split_choices(-(-groups // steps), tiles):
            taken = inner * columns * rows <= tiles
            share = -(-groups // (rows * steps))
            if share * (rows * steps - 1) >= groups and steps > 1:
                continue
            count = int(taken.sum())
            found.append(np.stack([np.full(count, steps), np.full(count, rows), inner[taken], columns[taken]]))
        steps *= 2
    return tuple(np.concatenate(found, axis=1).astype(np.int64))


def _sum_cycles(
    machine: MimdMachine, inner: np.ndarray, share: np.ndarray, sums: np.ndarray, dtype: str, partials_dtype: str
) -> np.ndarray:
    """int64[splits]: cycles of adding up the parts of the inner extent, or of casting sums that have one part."""
    formats: dict[str, Any] = {
        "worker_contexts": machine.tile.working_contexts,
        "vector_bytes": machine.tile.vector_bytes,
    }
    cycles, reduced = np.zeros_like(sums), inner > 1
    cycles[reduced] = partial_sum_cycles(
        share[reduced], inner[reduced], dtype=partials_dtype, out_dtype=dtype, **formats
    )
    if dtype != partials_dtype:
        cycles = np.where(reduced, cycles, cast_1d_cycles(sums, source=partials_dtype, target=dtype, **formats))
    return cycles


def _on_its_core(machine: MimdMachine, codelet: Codelet, boxes: dict[str, tuple[Any, ...]]) -> Any:
    """Cycles of a product or sum, as of one that all contexts share, on tiles of another instruction set; boxes: the
    extents of its fields."""
    made, extents, contexts = with_machine_cost(codelet, machine), {}, machine.tile.working_contexts
    for name, one in made.extents.items():
        assert isinstance(one, Length | Size)
        box = boxes[one.field]
        extents[name] = -(-np.asarray(box[one.axis] if isinstance(one, Length) else math.prod(box)) // one.per)
    if isinstance(made.cost, TileFormula):
        return made.cost.cycles(extents, contexts, machine.tile.vector_bytes)
    turns = (term.bundles * math.prod(extents[name] for name in term.extents) for term in made.cost.terms)
    return contexts * (made.cost.fixed + sum(turns))  # counted for the machine: on one of them


def _candidates(
    machine: MimdMachine, unit: MatrixUnit, m: int, k: int, n: int, dtype: str, partials_dtype: str
) -> dict[str, Any]:
    """Columns of a table with one row for every split, named as the fields of ProductPlan."""
    units, channels = unit.units(dtype, partials_dtype), unit.channels(dtype)
    size, sum_size = ITEM_BYTES[dtype], ITEM_BYTES[partials_dtype]
    groups, inner_total = -(-m // units), -(-k // channels)
    steps, rows, inner, columns = _splits(groups, inner_total, n, machine.chip.tiles)
    row_groups, inner_groups, positions = -(-groups // (rows * steps)), -(-inner_total // inner), -(-n // columns)
    sums = row_groups * units * positions
    left = -(-row_groups * units * inner_groups * channels // columns)  # every block lies evenly on its readers
    right = -(-inner_groups * channels * positions // rows)
    share = -(-sums // inner)
    reduced, casts = inner > 1, (inner == 1) & (dtype != partials_dtype)
    exchange, fabric = operand_phase_cycles(machine, left * size, right * size, rows, columns), machine.exchange
    sum_bytes = (inner - 1) * share * sum_size
    sum_exchange = fabric_of(machine).estimate(sum_bytes, inner - 1, inner - 1)
    if machine.tile.instruction_set == NATIVE:
        shared = (dtype, partials_dtype, units, channels, unit.coefficient_load_bytes_per_cycle)
        contexts = machine.tile.working_contexts
        multiply = partial_product_cycles(positions, row_groups, inner_groups, shared=shared, worker_contexts=contexts)
        adding = _sum_cycles(machine, inner, share, sums, dtype, partials_dtype)
    else:
        left_block, right_block = (row_groups * units, inner_groups * channels), (inner_groups * channels, positions)
        block = {"left": left_block, "right": right_block, "partial": (left_block[0], positions)}
        load_bytes = unit.coefficient_load_bytes_per_cycle
        multiply = _on_its_core(machine, block_product("forward", True, units, channels, load_bytes), block)
        adding = np.where(reduced, _on_its_core(machine, SUM_PARTS, {"partial": (inner, share), "total": (share,)}), 0)
    scale = machine.tile.issue_cycles / machine.tile.working_contexts
    phases = (exchange > 0).astype(np.int64) + (sum_exchange > 0)
    # What lies on a tile all the time: its pieces of both operands and of the result. In flight, as PopLibs counts it:
    # whole blocks of the operands, and sums. On top of the pieces come only the other pieces of the blocks, or of sums.
    resident = steps * left * size + right * size + steps * share * size
    sums_bytes = inner * share * sum_size
    in_flight = columns * left * size + rows * right * size + sums_bytes
    own_sums = np.where(reduced | casts, sums_bytes, 0)
    arriving = np.maximum((columns - 1) * left * size + (rows - 1) * right * size, sum_bytes)
    exchange_code = steps * (rows + columns + 2 * inner + 4) * fabric.fragment_code_bytes
    code = machine.tile.code_bytes + CODELET_BYTES + steps * STEP_BYTES + exchange_code
    return {
        "steps": steps,
        "row_splits": rows,
        "inner_splits": inner,
        "column_splits": columns,
        "rows": row_groups * units,
        "row_groups": row_groups,
        "inner_groups": inner_groups,
        "columns": positions,
        "left_piece": left,
        "right_piece": right,
        "share": share,
        "sum_bytes": sum_bytes,
        "tiles": rows * inner * columns,
        "multiply_cycles": np.rint(steps * multiply * scale).astype(np.int64),
        "sum_cycles": np.rint(steps * adding * scale).astype(np.int64),
        "operand_exchange_cycles": steps * exchange,
        "sum_exchange_cycles": steps * sum_exchange,
        "sync_cycles": steps * phases * machine.barrier_cycles(all_chips=False),
        "in_flight": in_flight,
        "tile_bytes": resident + own_sums + arriving + code,
    }
