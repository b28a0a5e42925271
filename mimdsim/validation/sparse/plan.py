"""Sparse times dense on the tiled machine: which tile does what, and what dominates the cycles.

`plan_sparse_product` answers for one shape; `SparsePlan.terms` says where the cycles go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

from mimdsim.base.errors import DoesNotFit
from mimdsim.base.units import show_bytes
from mimdsim.machine import MimdMachine
from mimdsim.validation.sparse.dynamic import DynamicChoice, plan_dynamic
from mimdsim.validation.sparse.shapes import SparseShape, ceil_divide
from mimdsim.validation.sparse.static import StaticChoice, plan_static


@dataclass(frozen=True, kw_only=True)
class SparsePlan:
    """A planned product of sparse [rows, columns] and dense [columns, batch] matrices.

    row_parts, column_parts, batch_parts: into how many parts each extent is cut; static: parts of the rows are the
    tiles of one band of columns. busiest_blocks: room for nonzero blocks of the fullest tile. terms: cycles by name, in
    order; syncs and the fixed part of exchanges are terms too. planner_cycles: the sum by which the partition was
    chosen. memory_bytes: of the fullest tile, operands and code included.
    """

    machine: str
    rows: int
    columns: int
    batch: int
    block: int
    density: float
    dtype: str
    static: bool
    row_parts: int
    column_parts: int
    batch_parts: int
    busiest_blocks: int
    terms: Mapping[str, int]
    planner_cycles: int
    memory_bytes: int
    flops: int
    clock_hz: float

    @property
    def tiles(self) -> int:
        """Tiles that take part."""
        return self.row_parts * self.column_parts * self.batch_parts

    @property
    def cycles(self) -> int:
        """All terms, one after the other: phases of the machine do not overlap."""
        return sum(self.terms.values())

    @property
    def seconds(self) -> float:
        return self.cycles / self.clock_hz

    @property
    def nonzero_flops_per_second(self) -> float:
        """Multiplies and adds of nonzeros only, per second."""
        return self.flops / self.seconds


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
    seed: int = 1,
) -> SparsePlan:
    """Plan sparse [rows, columns] times dense [columns, batch], nonzeros in random `block` x `block` squares.

    block: 1, 4, 8 or 16. dtype: "f16" or "f32". static: positions are known at compile time; else they arrive at run
    time in buckets. seed: draws the random pattern whose excess the buckets of dynamic sparsity must pass on.
    Raises NoCycleFormula (block, dtype), DescriptionError (extents, density) and DoesNotFit.
    """
    shape = SparseShape(rows=rows, columns=columns, batch=batch, block=block, density=density, dtype=dtype)
    choice = plan_static(shape, machine) if static else plan_dynamic(shape, machine, seed)
    kind = "static" if static else "dynamic"
    what = (
        f"{kind} sparse product [{rows}, {columns}] x [{columns}, {batch}], block {block}, density {density:g}, {dtype}"
    )
    if choice is None:
        _refuse(what, shape, machine, f"no partition over {machine.chip.tiles} tiles has temporaries that fit a tile")
    if isinstance(choice, DynamicChoice) and choice.propagation is None:
        _refuse(what, shape, machine, f"a random pattern overflows all buckets ({choice.bucket_blocks} blocks each)")
    operands = ceil_divide(shape.operand_bytes, machine.chip.tiles)
    memory = choice.temporary_bytes + operands + machine.tile.code_bytes
    if memory > machine.tile.sram_bytes:
        parts = f"temporaries {choice.temporary_bytes:,}, operands {operands:,}, code {machine.tile.code_bytes:,} bytes"
        _refuse(what, shape, machine, f"the fullest tile needs {memory:,} bytes ({parts})")
    terms = {
        **choice.terms,
        "exchange setup": machine.exchange.fixed_cycles * _planned_phases(choice),
        "sync": machine.sync.internal_cycles * choice.phases,
    }
    return SparsePlan(
        machine=machine.name,
        rows=rows,
        columns=columns,
        batch=batch,
        block=block,
        density=density,
        dtype=dtype,
        static=static,
        row_parts=choice.parts[0],
        column_parts=choice.parts[1],
        batch_parts=choice.parts[2],
        busiest_blocks=choice.busiest_blocks,
        terms=MappingProxyType(terms),
        planner_cycles=choice.estimate_cycles,
        memory_bytes=memory,
        flops=shape.flops,
        clock_hz=machine.chip.clock_hz,
    )


def _planned_phases(choice: StaticChoice | DynamicChoice) -> int:
    """Exchanges whose fixed part is not yet in a term; each step of a propagation has its own."""
    if isinstance(choice, DynamicChoice) and choice.propagation is not None:
        return choice.phases - choice.propagation.steps
    return choice.phases


def _refuse(what: str, shape: SparseShape, machine: MimdMachine, why: str) -> NoReturn:
    available = machine.tile.sram_bytes
    whole = shape.operand_bytes
    raise DoesNotFit(
        f"{what} does not fit {machine.name}: {why}; a tile has {available:,} bytes ({show_bytes(available)}). "
        f"Operands and result are {show_bytes(whole)} of {show_bytes(available * machine.chip.tiles)} on the chip.\n"
        f"  Cut the batch (now {shape.batch}), use f16, a lower density, or a machine with more tiles or memory."
    )
