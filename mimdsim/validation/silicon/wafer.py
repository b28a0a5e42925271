"""Stencils and sparse products on cores of a wafer: cycles of rows with the shape of the program.

Programs, counted from their source: star stencils (Jorineg/cerebras, commit 911a327: non-tiled-tencil/pe_program.csl
with a cell on a core, tiled-stencil/pe_program_r1.csl of radius 1, pe_program.csl of others), cycles of an iteration of
the core in the second row and column, by the vendor's simulator; sparse times dense products (pr0f3ss/SpMM_Cerebras,
commit a962552, src/), cycles of `f_comp` alone (between two time stamps, the mean over all cores), so that neither the
broadcast before nor the reduction after it is measured.

    cycles = scalar instructions, each in turn (costs.core of the machine)
           + start of every vector instruction + elements * (arithmetic + reads that meet in a bank)
           + words sent and received, which take turns in the one datapath (exchange.bytes_per_cycle)

All figures were known when the counts were made. None gave a number; which choices were made with them in view says
docs/other-machines.md.

Banks: 8 of 16 bits, successive words in successive banks; a cycle has two 32-bit reads and a write, if the reads are of
separate banks, "more specifically" of banks that differ modulo 4 (sdk.cerebras.net, CSL language guide, appendix, SIMD
mode). Separate of 8, addresses that differ by no multiple of 16 bytes, is the prediction, of 4 (8 bytes) the upper end,
no conflict the lower: stencils of 64 x 64 and 86 x 14 cells tell these apart, and were known when the first was taken.
A stencil declares its two arrays one after the other, which tells how far apart they are. Where a linker put those of
the products is not known: an element takes one cycle to two, and what the machine says of vectors (costs.core.vectors)
lies half way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.costs.core_costs import price
from mimdsim.machine import MimdMachine
from mimdsim.machine.codelet_costs import Core
from mimdsim.program.loops import Mix
from mimdsim.validation.reference_table import Asked, Cells, Fields, Reader, ReferenceTable, within_bounds

MACHINE = "wse2"
COLUMNS = {
    "program", "machine", "where_measured", "grid_width_PE", "grid_height_PE", "N_or_field_width", "K_or_field_height",
    "M", "density_percent", "tile_of_a_PE", "stencil_radius", "dtype", "cycles", "total_flops",
}  # fmt: skip
# Additions of floats in a cycle. WSE-3 is described by nothing but this: its vectors are twice as wide (8 halves
# instead of 4, the appendix above); that it multiplies floats one by one all the same is assumed.
ADDITIONS = {"WSE-2": 1, "WSE-3": 2}
MOST_ENTRIES = 1 << 24  # far more than the memory of a core holds
MEASURED_GENERATION = "WSE-2"  # that MACHINE describes
WORD_BYTES, BANK_ROW_BYTES = 4, 16  # a float; what 8 banks hold side by side

# Of all that follows: the middle, the least and the most.
# A vector instruction before its first element: assumed, the cycle in which its descriptors are read.
START = np.array([1.0, 0.0, 2.0])
# Words of 16 bits that a descriptor has (base, extent, stride, offset), 16 or 32 bits an instruction; a second
# dimension takes an extended descriptor and a stride register, too (CSL language guide, DSRs).
DESCRIPTOR = Mix(integer=3)
DESCRIPTOR_2D = DESCRIPTOR * 2 + Mix(integer=1.5)
TASK = Mix(branch=1)  # hardware picks the next one


def _cycles(core: Core, mix: Mix) -> np.ndarray:
    """Of scalar instructions."""
    found = price(mix, core)
    return np.array([found.cycles, found.cycles - found.off, found.cycles + found.off])


def _rate(machine: MimdMachine, mix: Mix) -> float:
    """Cycles of a float of a vector."""
    return price(mix, _core(machine), vectors=True).cycles / max(machine.tile.vector_bytes // WORD_BYTES, 1)


# ---- stencils

TEST = Mix(load=3, integer=2, branch=1)  # two 32-bit counters (line 82 of pe_program_r1.csl)
COUNT = Mix(load=1.5, integer=2, store=1.5)  # iteration_count += 1 (100)
CALLBACK = Mix(load=1, integer=2, store=1, branch=1)  # of a transfer that ended (137-153)
LAST = Mix(store=1, integer=1)  # of four (142-143, 151-152)
SHIFT = Mix(integer=2)  # @increment_dsd_offset (111-114 of pe_program.csl)
WEIGHT = Mix(load=1.5)
NEIGHBOURS = 4
# Operands whose descriptors the compiler loads for an instruction: the shifted one at least, all three at most.
OPERANDS = np.array([2.0, 1.0, 3.0])


def conflicts(width: int, height: int, radius: int) -> np.ndarray:
    """Instructions of an iteration whose two reads meet in a bank: [by 8 banks, none, by 4 banks]."""
    columns, rows = width + 2 * radius + 1, height + 2 * radius  # of both arrays (33-34 of pe_program.csl)
    apart = columns * rows  # words from own_values to buffer (48-49)
    steps = [step for k in range(1, radius + 1) for step in (-k * columns, k * columns, -k, k)]
    if radius > 1:
        steps = [*steps[1:], 0]  # the first only multiplies; the last adds the middle (118, 126)
    distances = WORD_BYTES * (apart + np.array(steps))
    return np.array([np.sum(distances % BANK_ROW_BYTES == 0), 0.0, np.sum(distances % (BANK_ROW_BYTES // 2) == 0)])


def tiled_cycles(width: int, height: int, radius: int, generation: str, machine: MimdMachine) -> np.ndarray:
    """An iteration of a core of width x height cells whose four neighbours are cores, too."""
    core, cells = _core(machine), width * height
    words = NEIGHBOURS * radius * (width + height)  # both sides of either length, sent and received
    total = words * WORD_BYTES / machine.exchange.bytes_per_cycle + conflicts(width, height, radius) * cells
    # Of radius 1, a WSE-3 with tiles of 4 x 4 and more computes before its halo has come (29 of pe_program_r1.csl).
    waits = radius > 1 or generation == "WSE-2" or min(width, height) < 4
    scalar = TEST + COUNT + TASK * 2 + Mix(integer=1)  # and the activation of the next task
    if waits:
        scalar += (CALLBACK + TASK) * (2 * NEIGHBOURS) + LAST * 2 + Mix(integer=1)  # and @block
    multiply = _rate(machine, Mix(multiply=1))
    if radius == 1:
        instructions = 2 + NEIGHBOURS
        scalar += DESCRIPTOR * (2 * NEIGHBOURS) + Mix(load=2)  # (210-219); the two scalars (108, 122)
        total = total + cells * (2 * multiply + NEIGHBOURS * _rate(machine, Mix(add=1)) / ADDITIONS[generation])
    else:
        instructions = NEIGHBOURS * radius + 1
        scalar += (DESCRIPTOR + DESCRIPTOR_2D) * (2 * NEIGHBOURS) + SHIFT * (instructions - 1) + WEIGHT * (radius + 1)
        total = total + OPERANDS * instructions * _cycles(core, DESCRIPTOR_2D)[0]
        total = total + cells * (multiply + (instructions - 1) * _rate(machine, Mix(multiply=1, add=1)))
    return np.asarray(total + _cycles(core, scalar) + START * (instructions + 2 * NEIGHBOURS))


def one_cell_cycles(alone: bool, machine: MimdMachine) -> np.ndarray:
    """A step of a core with one cell: six instructions of an element one after the other, or the way of a value from
    core to core, whichever is longer; alone: no neighbour waits for anything, so that only the first counts.

    Lines 94-104 of non-tiled-tencil/pe_program.csl: send, multiply, add twice two wavelets, add both sums. Steps are
    known to the compiler, so the loop is at most in the upper end.
    """
    core = _core(machine)
    each = START + _rate(machine, Mix(multiply=1))
    closed = np.array([0.0, 0.0, _cycles(core, Mix(loop=1))[0]])
    way = machine.exchange.route_cycles + machine.exchange.hop_cycles
    return np.asarray((6 * each if alone else np.maximum(6 * each, each + way + 4 * each)) + closed)


# ---- sparse products

# Scalar instructions as written, 32-bit indices in words of 16 bits; a cycle more for every load, whose value the next
# instruction waits for. The compiler leaves half of it to all of it.
STALLED_LOAD = Mix(load=1, integer=1)
INDEX = Mix(integer=7) + STALLED_LOAD * 2  # element of an array: 32-bit sum, shift, base; a value of two words
ROW = Mix(integer=10)  # row times padded width (4), to bytes (4), base, @set_dsr_base_addr
LOOP_32 = Mix(loop=1, integer=4)
ENTRY_32 = INDEX * 2 + ROW * 2 + Mix(integer=1) + LOOP_32  # both rows, one of them a word further
AS_WRITTEN = {  # by program: an entry, a row or column of the compressed format
    # spmm_coo_memcpy.csl 197-210: three elements by a 16-bit index, two rows, one of them a word further
    "coo": ((Mix(integer=2) + STALLED_LOAD * 2) * 3 + ROW * 2 + Mix(integer=1, loop=1), Mix()),
    # spmm_csc_memcpy.csl 204-231 and spmm_csr_memcpy.csl 202-227: pointers of a column or row; an index and a value
    "csc": (ENTRY_32, INDEX * 3 + Mix(add=1, integer=4) + LOOP_32),
    "csr": (ENTRY_32, INDEX * 3 + Mix(add=1, integer=4) + LOOP_32),
    # spmm_ellpack_memcpy.csl 195-210
    "ellpack": (ENTRY_32, Mix(integer=4) + LOOP_32),
    # spmm_gemm_memcpy.csl 192-203: an element of B by 16-bit indices, a column of C; a column of A
    "gemm": (Mix(integer=4, loop=1) + STALLED_LOAD * 2 + Mix(integer=3), Mix(integer=4, loop=1)),
}
STAMPS = Mix(load=6, store=6) + DESCRIPTOR * 2  # two time stamps of three words, two descriptors
COMPILED = np.array([0.75, 0.5, 1.0])
FUSED = Mix(multiply=1, add=1)


def product_cycles(
    kind: str, entries: float, lines: int, elements: int, one_bank: bool, machine: MimdMachine
) -> np.ndarray:
    """`f_comp` of a core: an instruction of so many elements for every entry of so many rows or columns.

    one_bank: both operands step by multiples of 16 bytes, so that each stays in its bank. Every element is then read
    and written in one bank, of which the other operand's is another, or by one chance in four the same.
    """
    core = _core(machine)
    entry, line = (_cycles(core, mix)[0] for mix in AS_WRITTEN[kind])
    fastest = _rate(machine, FUSED)
    if one_bank:
        each = fastest * np.array([2.25, 2.0, 3.0])
    else:
        each = np.array([_rate(machine, FUSED + Mix(load=2, store=1)), fastest, 2 * fastest])
    vectors = entries * (elements * each + START[0])
    return np.asarray(vectors + COMPILED * (entries * entry + lines * line) + _cycles(core, STAMPS))


# ---- rows


def _core(machine: MimdMachine) -> Core:
    core = machine.costs.core if machine.costs else None
    if core is None:
        raise MimdsimError(f"{machine.name} has no table of instructions (costs.core): the counted program has no cost")
    return core


def wafer_row(row: Cells, asked: Asked) -> Iterator[Fields]:
    """Fields of a measured program."""
    yield from next((read for pattern, read in PROGRAMS if re.fullmatch(pattern, row["program"])), _unknown)(row, asked)


def _named(row: Cells, shape: str, kind: str, tolerance: float) -> Iterator[Fields]:
    """What is published, and why a program of another machine or format is none of those counted."""
    where = "simulator" if "simulator" in row["where_measured"] else "silicon inferred"
    name, kind = f"{row['program']} on {row['machine']}, {shape}", f"{kind}, {row['machine']}, {where}"
    yield row.figure(name, "cycles", row.number("cycles", above=0), tolerance, kind)
    if row["machine"] not in ADDITIONS:
        raise MimdsimError(f"machine '{shortened(row['machine'])}'; known: {', '.join(ADDITIONS)}")
    if row["dtype"] != "float32":
        raise MimdsimError(f"dtype '{shortened(row['dtype'])}': the programs counted are of float32")


def _predicted(row: Cells, asked: Asked, kind: str, cycles: Callable[[MimdMachine], np.ndarray]) -> Fields:
    """cycles: the middle, the least and the most on a machine."""
    machine, measured = asked.machine_or(MACHINE), row.number("cycles", above=0)
    fields = within_bounds(*cycles(machine).tolist())
    if row["machine"] == MEASURED_GENERATION:
        fields["bearing"] = row.bearing(machine.name, measured, lambda other: float(cycles(other)[0]), formula=kind)
    return fields


def _unknown(row: Cells, _asked: Asked) -> Iterator[Fields]:
    yield from _named(row, "", "other", 0.0)
    known = ", ".join(["stencil_one_cell_a_PE", "stencil_star", *(f"spmm_{kind}" for kind in AS_WRITTEN)])
    raise MimdsimError(f"no program for '{shortened(row['program'])}'; known: {known}")


def _one_cell(row: Cells, asked: Asked) -> Iterator[Fields]:
    kind, field = "one cell a core", [row.whole(column) for column in ("N_or_field_width", "K_or_field_height")]
    yield from _named(row, f"{field[0]} x {field[1]} cells", kind, 0.2)
    # In a field of 3 x 3 all neighbours are of the border, which sends a value ahead (144-147).
    yield _predicted(row, asked, kind, partial(one_cell_cycles, max(field) <= 3))


def _stencil(row: Cells, asked: Asked) -> Iterator[Fields]:
    text, radius = row["tile_of_a_PE"], row.whole("stencil_radius")
    tile = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text)
    if tile is None:
        raise MimdsimError(f"column 'tile_of_a_PE': '{shortened(text)}' is not WIDTHxHEIGHT, cells of a core")
    width, height = int(tile[1]), int(tile[2])
    yield from _named(row, f"{width} x {height} cells a core, radius {radius}", "stencil", 0.3)
    if radius > min(width, height):
        raise MimdsimError(f"radius {radius} of {width} x {height} cells: a halo comes from the next core only")
    yield _predicted(row, asked, "stencil", partial(tiled_cycles, width, height, radius, row["machine"]))


def _product(row: Cells, asked: Asked) -> Iterator[Fields]:
    kind, _, part = row["program"].removeprefix("spmm_").partition("_")
    n, k, wide, high, elements = (
        row.whole(column)
        for column in ("N_or_field_width", "K_or_field_height", "grid_width_PE", "grid_height_PE", "M")
    )
    density, flops = row.number("density_percent", above=0), row.number("total_flops", above=0)
    shape = f"{n} x {k} x {elements}, {density:g} %, {wide} x {high} cores"
    yield from _named(row, shape, f"product {kind}", 1 / 3)
    if part == "memory_accesses_only":
        raise MimdsimError("what was left out of the program is not published")
    if n % high or k % wide or density > 100:
        raise MimdsimError(f"{n} x {k} on {wide} x {high} cores, {density:g} %: equal parts, and 100 % at most")
    rows, columns = n // high, k // wide
    # total_flops counts entries as stored, padded to the fullest core or row; the others read how many there are.
    stored, held = flops / (2 * elements * wide * high), rows * columns * density / 100
    if max(stored, held) > MOST_ENTRIES:
        raise MimdsimError(f"{max(stored, held):,.0f} entries a core: at most {MOST_ENTRIES:,} (total_flops, density)")
    entries, lines, length = {
        "coo": (stored + 1, 0, elements),  # A_len is one more than the values (run_benchmark.sh)
        "csc": (held, columns, elements),
        "csr": (held, rows, elements),
        "ellpack": (stored, rows, elements),
        "gemm": (columns * elements, columns, rows),
    }[kind]
    one_bank = kind == "gemm" and (WORD_BYTES * np.array([elements, columns]) % BANK_ROW_BYTES == 0).all()
    counted = partial(product_cycles, kind, entries, lines, length, bool(one_bank))
    yield _predicted(row, asked, f"product {kind}", counted)


PROGRAMS: tuple[tuple[str, Reader], ...] = (
    ("stencil_one_cell_a_PE", _one_cell),
    ("stencil_star", _stencil),
    (f"spmm_({'|'.join(AS_WRITTEN)})(_total|_memory_accesses_only)?", _product),
)
WAFERS = ReferenceTable(
    needed=COLUMNS,
    also={"source"},
    ignored={"cycles_min", "cycles_max", "relative_accesses", "absolute_accesses"},
    read_row=wafer_row,
)
