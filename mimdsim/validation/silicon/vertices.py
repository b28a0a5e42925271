"""One vertex on a tile between two reads of its cycle counter: predicted cycles of a row.

    cycles = two timers (unless subtracted) + launch of a compute set without exchange + vertex

Columns: id, vertex, operation, dtype, N, in_channels, out_channels, tiles, cycles, what_cycles_cover, certainty, and
source_path if given. A vertex of the library costs what the vendor's formula says; vertices of the measuring program
are counted from its source (handwritten_vertices.py). Nothing is taken from a row but, for the launch, the distance of
two timers. Of certainty `upper_bound`, the figure is a bound: a prediction may be lower, not higher.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.units import UNCERTAINTY
from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES, binary_1d_cycles, unary_1d_cycles
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable
from mimdsim.validation.silicon import handwritten_vertices
from mimdsim.validation.vendor.popops import scaled_add_1d_cycles

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
UNARY = {
    **{"neg": "NEGATE", "exp": "EXPONENT", "log": "LOGARITHM", "tanh": "TANH", "sqrt": "SQRT", "rsqrt": "RSQRT"},
    **{"abs": "ABSOLUTE", "sin": "SIN", "cos": "COS", "sign": "SIGNUM", "logistic": "SIGMOID"},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row read: elements or rows N, number format, channels, and the contexts that share the work."""

    n: int
    dtype: str
    channels: tuple[int, int]
    in_place: bool
    contexts: int
    found: re.Match[str]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Tile cycles of the vertex, the kind of their source (UNCERTAINTY), the group of the row, tolerance, a remark.

    launches: 0 if all that is measured are the two timers.
    """

    cycles: float
    kind: str
    group: str
    tolerance: float
    remark: str
    launches: int = 1


def _matrix_unit(case: Case) -> Answer:
    depth = 8 if case.found[1] == "32" else 16
    units = 16 if (case.found[1], case.found[2]) == ("16", "16") else 8
    into, out = case.channels
    if into != depth or out % 8 or out < 8:
        raise MimdsimError(f"{into} x {out} channels: the measuring program has {depth} in and multiples of 8 out")
    cycles = amp_1x1_cycles(
        case.n,
        out_channels_per_group=out,
        in_channels_per_group=into,
        dtype=f"f{case.found[1]}",
        partials_dtype=f"f{case.found[2]}",
        conv_units=units,
        load_bytes_per_cycle=16,
        worker_contexts=case.contexts,
    )
    # With one or two positions for a context, the formula adds the supervisor's 14 cycles to contexts that end later.
    short = case.n // case.contexts < 3
    return Answer(
        cycles=cycles,
        kind="published",
        group="matrix unit",
        tolerance=0.06 if short else 0.02,
        remark="vendor's formula with the 128-bit weight load that the program asks for, and a launch"
        + ("; the formula's branch for two positions and fewer counts the supervisor twice" if short else ""),
    )


def _element_wise(cycles: Any) -> Answer:
    remark = "vendor's formula, a launch and two timers"
    return Answer(cycles=float(cycles), kind="published", group="element-wise", tolerance=0.05, remark=remark)


def _operation(case: Case, known: dict[str, str]) -> str:
    name = case.found[1].lower()
    if name not in known:
        raise MimdsimError(f"no formula for '{shortened(name)}'; known: {', '.join(known)}")
    return known[name]


def _binary(case: Case) -> Answer:
    op = _operation(case, BINARY)
    return _element_wise(
        binary_1d_cycles(case.n, op=op, dtype=case.dtype, in_place=case.in_place, worker_contexts=case.contexts)
    )


def _unary(case: Case) -> Answer:
    op = _operation(case, UNARY)
    return _element_wise(
        unary_1d_cycles(case.n, op=op, dtype=case.dtype, in_place=case.in_place, worker_contexts=case.contexts)
    )


def _scaled(case: Case) -> Answer:
    op = {"add": "ADD", "sub": "SUBTRACT"}[case.found[1]]
    return _element_wise(scaled_add_1d_cycles(case.n, op=op, dtype=case.dtype, worker_contexts=case.contexts))


def _counted(count: Callable[..., handwritten_vertices.Counted], **more: int) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        if case.dtype != "f32":
            raise MimdsimError(f"dtype '{case.dtype}': the source counted is that for float32")
        columns = {"column": int(case.found["column"])} if "column" in case.found.groupdict() else {}
        if columns and columns["column"] >= case.n:
            raise MimdsimError(f"column {columns['column']} of {case.n} does not exist")
        worker = count(case.n, case.contexts, **more, **columns)
        return Answer(
            cycles=SUPERVISOR_CYCLES + case.contexts * worker.bundles,
            kind="derived",
            group="own vertices",
            tolerance=0.10,
            remark="bundles counted from the program's source, a launch and two timers",
        )

    return answer


def _timer(case: Case) -> Answer:
    remark = "distance of two timers, a constant of the measuring program"
    return Answer(cycles=0.0, kind="published", group="timer", tolerance=0.0, remark=remark, launches=0)


# What "vertex | operation" of a row says -> its cost. The first that is found counts.
VERTICES: tuple[tuple[str, Callable[[Case], Answer]], ...] = (
    (r"^poplin ConvPartial1x1\b.*\bf(16|32) in, f(16|32) partials", _matrix_unit),
    (r"^popops BinaryElementwise1D (\w+)", _binary),
    (r"^popops UnaryElementwise1D (\w+)", _unary),
    (r"^popops scaled (add|sub)\b", _scaled),
    (r"^CycleCountBarrier\b", _timer),
    (r"\| *x -= s1\*s2\*v\b", _counted(handwritten_vertices.householder)),
    (
        r"\(2 bundles a vector\).*\| *two outputs a\*x\+b\*y",
        _counted(handwritten_vertices.rotation, bundles_per_vector=2),
    ),
    (
        r"\(3 bundles a vector\).*\| *two outputs a\*x\+b\*y",
        _counted(handwritten_vertices.rotation, bundles_per_vector=3),
    ),
    (r"\| *dot product\b", _counted(handwritten_vertices.dot_product)),
    (r"\| *QR correction vector, column (?P<column>\d{1,6})\b", _counted(handwritten_vertices.correction_vector)),
    (r"\| *2x2 symmetric Schur\b", _counted(handwritten_vertices.schur)),
    (r"\| *Schur \+ rotation of two columns", _counted(handwritten_vertices.schur_and_rotation)),
    (r"\| *rotation of two columns", _counted(handwritten_vertices.rotation_of_columns)),
    (r"^TileMemcpyVertex\b", _counted(handwritten_vertices.copy_by_one)),
)
WHOLE_PROGRAM = "a program of many compute sets, not one vertex: which of its copies share an exchange is not known"
UNKNOWN = "no formula and no count for this vertex"
THE_LAUNCH_ITSELF = "the launch of every other row is derived from this figure: nothing to compare"


@lru_cache(maxsize=1)
def _contexts() -> int:
    machine = load_machine(MACHINE)
    assert isinstance(machine, MimdMachine)
    return machine.tile.worker_contexts


def vertex_row(row: Cells, _asked: Asked) -> Fields:
    """Fields of a measured vertex."""
    published = row.number("cycles", above=0)
    bound = row["certainty"] == "upper_bound"
    fields: Fields = {
        "name": row["id"],
        "unit": "cycles",
        "published": published,
        "source": row.get("source_path", ""),
        "kind": "upper bounds" if bound else "other",
        "upper_bound": bound,
    }
    try:
        answer = _answer(row, bound)
    except MimdsimError as refusal:
        return {**fields, "note": str(refusal)}
    timers = 0 if "subtracted" in row["what_cycles_cover"].lower() else TIMER_CYCLES
    off = UNCERTAINTY[answer.kind] * answer.cycles
    return {
        **fields,
        "predicted": timers + answer.launches * LAUNCH_CYCLES + answer.cycles,
        "tolerance": 0.0 if bound else answer.tolerance,
        "low": timers + answer.launches * LAUNCH_LEAST + answer.cycles - off,
        "high": timers + answer.launches * LAUNCH_MOST + answer.cycles + off,
        "kind": "upper bounds" if bound else answer.group,
        "note": answer.remark,
    }


def _answer(row: dict[str, str], bound: bool) -> Answer:
    """What the row's vertex costs; raises MimdsimError with the reason if that cannot be told."""
    text = f"{row['vertex'].strip()} | {row['operation'].strip()}"
    if "iterations" in text.lower():
        raise MimdsimError(WHOLE_PROGRAM)
    matches = ((re.search(pattern, text), cost) for pattern, cost in VERTICES)
    found, cost = next((pair for pair in matches if pair[0]), (None, None))
    if found is None or cost is None:
        raise MimdsimError(UNKNOWN)
    if cost is _timer and not bound:
        raise MimdsimError(THE_LAUNCH_ITSELF)
    if row["dtype"] not in DTYPES:
        raise MimdsimError(f"dtype '{shortened(row['dtype'])}' is none of {', '.join(DTYPES)}")
    try:
        n = int(row["N"])
        channels = int(row.get("in_channels") or 0), int(row.get("out_channels") or 0)
    except ValueError:
        raise MimdsimError("N, in_channels and out_channels must be whole numbers") from None
    if not 1 <= n <= MOST_ELEMENTS or not all(0 <= count <= MOST_ELEMENTS for count in channels):
        raise MimdsimError(f"N = {n}, channels {channels}: a vertex has 1 to {MOST_ELEMENTS:,} elements")
    return cost(
        Case(
            n=n,
            dtype=DTYPES[row["dtype"]],
            channels=channels,
            in_place=bool(re.search(r"in[ -]?place", text, re.IGNORECASE)),
            contexts=_contexts(),
            found=found,
        )
    )


TILE_VERTICES = ReferenceTable(
    needed=COLUMNS,
    also={"in_channels", "out_channels", "source_path"},
    ignored={"tiles", "source_value"},
    predict_row=vertex_row,
    on="bow",
)
