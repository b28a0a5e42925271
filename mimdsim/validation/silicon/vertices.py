"""One vertex on a tile between two reads of its cycle counter: predicted cycles of a row.

    cycles = two timers (unless subtracted) + launch of a compute set without exchange + vertex

Columns: id, vertex, operation, dtype, N, in_channels, out_channels, tiles, cycles, what_cycles_cover, certainty, and
source_path if given. A vertex of the library costs what the vendor's formula says, with the matrix unit's loop as it
is written; vertices of the measuring program are counted from its source. Nothing is taken from a row but, for the
launch, the distance of two timers. Of certainty `upper_bound`, the figure is a bound: a prediction may be lower, not
higher.

Vertices that are not the library's, from graphcore-research/tessellate-ipu, commit 3ab241f, tessellate_ipu/core/vertex:
tile_small_dot.hpp, tile_qr_vertex.cpp, tile_jacobi_vertex.cpp, tile_prim_vertex.cpp. Their loops are written so that
bundles can be read off. Code outside loops is an instruction count of our own; leaf functions without a stack frame,
one load for a pointer without length. All figures of `references/tessellate_cycles.csv` were known when the counts were
made; the width of a copy and the middle of common and separate bundles were chosen among what the source allows so that
no bound is exceeded.

    worker = straight-line code + bundles of the loop * ceil(64-bit vectors / contexts)

Straight-line arithmetic may or may not share bundles with loads and integer code: the middle is taken. Loops of scalar
code issue every instruction alone (`tile.compiled_dual_issue` of the machines).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.residuals import combined
from mimdsim.base.units import UNCERTAINTY
from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES, binary_1d_cycles, unary_1d_cycles
from mimdsim.machine import tiled_machine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, whole_numbers, within_bounds
from mimdsim.validation.vendor import scaled_add_1d_cycles

VECTOR = 2  # floats in 64 bits
SQUARE_ROOT = 4  # PopLibs' loop over square roots takes 10 bundles for two, a load and a store included
DIVIDE_LEAST, DIVIDE_MOST = 1, 3  # f32div takes one to three issue slots, by its operands (popnn/PerformanceEstimation)
DIVIDE = (DIVIDE_LEAST + DIVIDE_MOST) / 2


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Bundles of the busiest worker. main, aux: straight-line instructions of the two pipes; loops: what loops take."""

    main: float
    loops: float
    aux: float = 0.0

    @property
    def bundles(self) -> float:
        """Straight-line code between all instructions alone and as many as possible in common bundles."""
        return self.loops + (self.main + self.aux + max(self.main, self.aux)) / 2


def vectors_of_worker(elements: int, contexts: int) -> int:
    """The largest share when the 64-bit vectors of `elements` floats are dealt out, rounded up, to the contexts."""
    vectors = -(-elements // VECTOR)
    return -(-vectors // contexts)


ENTRY = 2  # number of the context: read the status register, mask it
SHARE = 5  # pointer to the offsets, add the context's number, load two offsets, subtract
EXIT = 2  # result, exit


def householder(elements: int, contexts: int) -> Counted:
    """x -= s1 s2 v in place: two loads and a store a vector, two multiply-adds beside them (QRHouseholderRowUpdate)."""
    trips = vectors_of_worker(elements, contexts) - 1
    scale = 7  # two pointers, two loads, multiply, negate, put into the register of the multiply-add
    test = 2
    pointers = 9  # x, its first index, v; both scaled and added to the share
    around = 4 + 5  # first two loads and the count of the loop; two multiply-adds and a store drain it
    return Counted(main=ENTRY + SHARE + scale + test + pointers + around + EXIT, loops=3 * trips)


def rotation(elements: int, contexts: int, bundles_per_vector: int = 2) -> Counted:
    """Two passes of z = a x + b y; 2 bundles a vector in assembly, 3 as compiled before (Rotation2d)."""
    pointers = 9  # four rows, scaled share
    # Of one pass: put b into the register of the multiply-add, copy a, move three pointers; then fill the pipeline.
    one_pass = 5 + (6 + 1 + 1 if bundles_per_vector == 2 else 3 + 2)
    negate = 1
    trips = vectors_of_worker(elements, contexts)
    return Counted(
        main=ENTRY + SHARE + 2 + pointers + negate + 2 * one_pass + EXIT, loops=2 * bundles_per_vector * trips
    )


def dot_product(elements: int, contexts: int) -> Counted:
    """Two loads a vector, multiplication and sum beside them; a partial sum per context (DotProduct1d)."""
    straight = ENTRY + SHARE + 7 + 2 + 3 + 1 + EXIT  # pointers, test, loop with its first sum, store
    return Counted(main=straight, loops=2 * vectors_of_worker(elements, contexts))


def correction_vector(elements: int, contexts: int, column: int) -> Counted:
    """Householder vector of a column: zeros, a copy with its squares summed, then one context ends (QRCorrection)."""
    zeros = 3 * vectors_of_worker(column, contexts)  # store, compare, branch
    copied = 5 * vectors_of_worker(elements - column, contexts)  # load, multiply-add, store, compare, branch
    waiting = 5 * (contexts - 1)  # load, compare, branch; load again, add
    main = ENTRY + 6 + 3 + 1 + 3 + 6 + 2 + EXIT  # fields, parity of the column, shared value, pointers, test
    ending = 1 + 1 + 1  # sign of the diagonal, two stores
    aux = 2 + 2 + 2 + SQUARE_ROOT + 2 + 3 + DIVIDE  # squares, partial sum, norm, new entry, its square, rescaling
    return Counted(main=main + ending, aux=aux, loops=zeros + copied + waiting)


# Decomposition of a symmetric 2 x 2 matrix: arithmetic of sym_schur2 with its comparisons, and its two branches.
SCHUR_AUX = 2 + 2 + 2 + 2 + 1 + SQUARE_ROOT + 2 + 1 + DIVIDE + 2 + 2 + SQUARE_ROOT + DIVIDE + 1
SCHUR_MAIN = 3


def schur(elements: int, contexts: int) -> Counted:
    """The decomposition alone, by one context: four pointers, two indices, three entries, two results."""
    return Counted(main=4 + 2 + 3 + SCHUR_MAIN + 2 + EXIT, aux=SCHUR_AUX, loops=0)


def schur_and_rotation(elements: int, contexts: int) -> Counted:
    """Every context decomposes for itself and rotates its share of two columns (JacobiUpdateFirstStep)."""
    turned = rotation(elements, contexts)
    prefix = 2 + 4 + 6 + 2  # indices, forwarded entries, order of columns and pointers, sorted indices
    return Counted(
        main=turned.main + prefix + 3 + SCHUR_MAIN + 2 + 4 + 6, aux=SCHUR_AUX + 14, loops=turned.loops
    )  # 14: three products of two or three factors for either diagonal entry, their sums; 4 stores, 6 addresses


def rotation_of_columns(elements: int, contexts: int) -> Counted:
    """A rotation with its columns in order (JacobiUpdateEigenvectors)."""
    turned = rotation(elements, contexts)
    return Counted(main=turned.main + 2 + 4 + 6, loops=turned.loops)


def copy_by_one(elements: int, contexts: int) -> Counted:
    """One context copies; rows lie on 8 bytes, so load and store of the compiled loop are taken as 64 bits wide."""
    return Counted(main=ENTRY + 2 + 4 + 3 + EXIT, loops=2 * -(-elements // VECTOR))


TIMER_CYCLES = 45  # tessellate_ipu/core/tile_interpreter_hw_primitives.py, "overhead of measuring a cycle count"
# Load the pointer, read the lower half of the counter, 4 cycles until the pointer has arrived, store, read the upper
# half, store, return value, return (6). Instruction count of our own for CycleCountBarrier in hw_vertex.cpp.
TIMER_OWN_CYCLES = 1 + 1 + 4 + 1 + 1 + 1 + 1 + 6
# Reading the counter may stall like writing a special register (put $CCCSLOAD, 6), and the pointer may be loaded only
# when it is needed: read, load and wait, store, read, store, return value, return.
TIMER_OWN_MOST = 6 + 6 + 1 + 6 + 1 + 1 + 6
# Without any wait for the pointer: the compiler may load it after it has read the counter, and store both at the end.
TIMER_OWN_LEAST = TIMER_OWN_CYCLES - 4
LAUNCH_CYCLES = TIMER_CYCLES - TIMER_OWN_CYCLES
LAUNCH_LEAST = TIMER_CYCLES - TIMER_OWN_MOST
LAUNCH_MOST = TIMER_CYCLES - TIMER_OWN_LEAST


COLUMNS = {"id", "vertex", "operation", "dtype", "N", "cycles", "what_cycles_cover", "certainty"}
MACHINE = "bow"  # cycles; Mk2 and Bow differ in their clock only
DTYPES = {"float32": "f32", "float16": "f16"}
MOST_ELEMENTS = 1 << 20  # a vertex with more would not fit into the memory of a tile
BINARY = {
    **{"add": "ADD", "sub": "SUBTRACT", "mul": "MULTIPLY", "div": "DIVIDE", "rem": "REMAINDER", "pow": "POWER"},
    **{"max": "MAXIMUM", "min": "MINIMUM", "atan2": "ATAN2"},
    **{"eq": "EQUAL", "ne": "NOT_EQUAL", "lt": "LESS_THAN", "le": "LESS_THAN_EQUAL"},
    **{"gt": "GREATER_THAN", "ge": "GREATER_THAN_EQUAL"},
}
SCALED = {"add": "ADD", "sub": "SUBTRACT"}
UNARY = {
    **{"neg": "NEGATE", "exp": "EXPONENT", "log": "LOGARITHM", "tanh": "TANH", "sqrt": "SQRT", "rsqrt": "RSQRT"},
    **{"abs": "ABSOLUTE", "sin": "SIN", "cos": "COS", "sign": "SIGNUM", "logistic": "SIGMOID"},
}


class Case:
    """A row read: elements or rows N, number format, channels, and the contexts that share the work; found: what of its
    text says which vertex it is."""

    def __init__(self, row: Mapping[str, str], found: re.Match[str]):
        if row["dtype"] not in DTYPES:
            raise MimdsimError(f"dtype '{shortened(row['dtype'])}' is none of {', '.join(DTYPES)}")
        self.n, *channels = whole_numbers(row, "N", "in_channels", "out_channels", default=0)
        if not 1 <= self.n <= MOST_ELEMENTS or not all(0 <= count <= MOST_ELEMENTS for count in channels):
            raise MimdsimError(f"N = {self.n}, channels {channels}: a vertex has 1 to {MOST_ELEMENTS:,} elements")
        self.dtype, self.channels, self.found = DTYPES[row["dtype"]], channels, found
        self.in_place = bool(re.search(r"in[ -]?place", found.string, re.IGNORECASE))
        self.contexts = tiled_machine(MACHINE, "").tile.worker_contexts


@dataclass(frozen=True)
class Group:
    """Vertices counted alike: its name, the kind of source of their cycles (UNCERTAINTY), tolerance, a remark.

    launches: 0 if all that is measured are the two timers.
    """

    name: str
    kind: str
    tolerance: float
    remark: str
    launches: int = 1


AS_WRITTEN = "the vendor's loop as it is written, with the 128-bit weight load of the measuring program and a launch"
MATRIX_UNIT = Group("matrix unit", "published", 0.02, AS_WRITTEN)
ELEMENT_WISE = Group("element-wise", "published", 0.05, "vendor's formula, a launch and two timers")
OWN = Group("own vertices", "derived", 0.10, "bundles counted from the program's source, a launch and two timers")
TIMER = Group("timer", "published", 0.0, "distance of two timers, a constant of the measuring program", launches=0)


def _matrix_unit(case: Case) -> float:
    depth = 8 if case.found[1] == "32" else 16
    units = 16 if (case.found[1], case.found[2]) == ("16", "16") else 8
    into, out = case.channels
    if into != depth or out % 8 or out < 8:
        raise MimdsimError(f"{into} x {out} channels: the measuring program has {depth} in and multiples of 8 out")
    return amp_1x1_cycles(
        case.n,
        out_channels_per_group=out,
        in_channels_per_group=into,
        dtype=f"f{case.found[1]}",
        partials_dtype=f"f{case.found[2]}",
        conv_units=units,
        load_bytes_per_cycle=16,
        worker_contexts=case.contexts,
        assembler=True,
    )


def _element_wise(cycles_of: Callable[..., Any], known: dict[str, str], *, in_place: bool) -> Callable[[Case], float]:
    """By the library's formula; known: its operations by their names in the table; in_place: whether it asks."""

    def cycles(case: Case) -> float:
        name = case.found[1].lower()
        if name not in known:
            raise MimdsimError(f"no formula for '{shortened(name)}'; known: {', '.join(known)}")
        more = {"in_place": case.in_place} if in_place else {}
        return float(cycles_of(case.n, op=known[name], dtype=case.dtype, worker_contexts=case.contexts, **more))

    return cycles


def _counted(count: Callable[..., Counted], **more: int) -> Callable[[Case], float]:
    def cycles(case: Case) -> float:
        if case.dtype != "f32":
            raise MimdsimError(f"dtype '{case.dtype}': the source counted is that for float32")
        columns = {"column": int(case.found["column"])} if "column" in case.found.groupdict() else {}
        if columns and columns["column"] >= case.n:
            raise MimdsimError(f"column {columns['column']} of {case.n} does not exist")
        worker = count(case.n, case.contexts, **more, **columns)
        return SUPERVISOR_CYCLES + case.contexts * worker.bundles

    return cycles


# What "vertex | operation" of a row says -> its group and cycles. The first that is found counts.
VERTICES: tuple[tuple[str, Group, Callable[[Case], float]], ...] = (
    (r"^poplin ConvPartial1x1\b.*\bf(16|32) in, f(16|32) partials", MATRIX_UNIT, _matrix_unit),
    (r"^popops BinaryElementwise1D (\w+)", ELEMENT_WISE, _element_wise(binary_1d_cycles, BINARY, in_place=True)),
    (r"^popops UnaryElementwise1D (\w+)", ELEMENT_WISE, _element_wise(unary_1d_cycles, UNARY, in_place=True)),
    (r"^popops scaled (add|sub)\b", ELEMENT_WISE, _element_wise(scaled_add_1d_cycles, SCALED, in_place=False)),
    (r"^CycleCountBarrier\b", TIMER, lambda _: 0.0),
    (r"\| *x -= s1\*s2\*v\b", OWN, _counted(householder)),
    (r"\(2 bundles a vector\).*\| *two outputs a\*x\+b\*y", OWN, _counted(rotation, bundles_per_vector=2)),
    (r"\(3 bundles a vector\).*\| *two outputs a\*x\+b\*y", OWN, _counted(rotation, bundles_per_vector=3)),
    (r"\| *dot product\b", OWN, _counted(dot_product)),
    (r"\| *QR correction vector, column (?P<column>\d{1,6})\b", OWN, _counted(correction_vector)),
    (r"\| *2x2 symmetric Schur\b", OWN, _counted(schur)),
    (r"\| *Schur \+ rotation of two columns", OWN, _counted(schur_and_rotation)),
    (r"\| *rotation of two columns", OWN, _counted(rotation_of_columns)),
    (r"^TileMemcpyVertex\b", OWN, _counted(copy_by_one)),
)
WHOLE_PROGRAM = "a program of many compute sets, not one vertex: which of its copies share an exchange is not known"
UNKNOWN = "no formula and no count for this vertex"
THE_LAUNCH_ITSELF = "the launch of every other row is derived from this figure: nothing to compare"


def vertex_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of a measured vertex."""
    bound = row["certainty"] == "upper_bound"
    kind = "upper bounds" if bound else "other"
    yield row.figure(row["id"], "cycles", row.number("cycles", above=0), 0.0, kind, upper_bound=bound)
    group, cycles = _counted_as(row, bound)
    timers = 0 if "subtracted" in row["what_cycles_cover"].lower() else TIMER_CYCLES
    off = UNCERTAINTY[group.kind] * cycles
    launches = (group.launches * launch for launch in (LAUNCH_CYCLES, LAUNCH_LEAST, LAUNCH_MOST))
    middle, least, most = (timers + launch + cycles for launch in launches)
    yield {
        **within_bounds(middle, middle - combined((middle - least, off)), middle + combined((most - middle, off))),
        "tolerance": 0.0 if bound else group.tolerance,
        "kind": "upper bounds" if bound else group.name,
        "note": group.remark,
    }


def _counted_as(row: dict[str, str], bound: bool) -> tuple[Group, float]:
    """The group of the row's vertex and its cycles on a tile; raises MimdsimError with the reason if there are none."""
    text = f"{row['vertex'].strip()} | {row['operation'].strip()}"
    if "iterations" in text.lower():
        raise MimdsimError(WHOLE_PROGRAM)
    every = ((re.search(pattern, text), group, cycles) for pattern, group, cycles in VERTICES)
    matches = ((found, group, cycles) for found, group, cycles in every if found)
    if (first := next(matches, None)) is None:
        raise MimdsimError(UNKNOWN)
    found, group, cycles = first
    if group is TIMER and not bound:
        raise MimdsimError(THE_LAUNCH_ITSELF)
    return group, cycles(Case(row, found))


TILE_VERTICES = ReferenceTable(
    needed=COLUMNS,
    also={"in_channels", "out_channels", "source_path"},
    ignored={"tiles", "source_value"},
    read_row=vertex_row,
    figures="vertex",
    on="bow",
)
