"""Programs by hand and of matrix products as they are, vertices, boxes, places and cycles, and tables that explain a
superstep: `pinned_programs.txt`; as with figures, `python tests/golden/test_pinned_programs.py` writes it anew.

Sums over columns and places stand beside the first and the last, so that no number between them changes unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import tiny
from networks import small_network
from padded_products import product_program
from pins import assert_as_pinned

from mimdsim.compiler import compile_graph, measure_memory
from mimdsim.compiler.place.product_plan import plan_product
from mimdsim.graph import training_graph
from mimdsim.kernels import Codelet, Field, Kernel, Length, Term, WorkerBundles
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.program import Program, RecordedActivity
from mimdsim.program.printer import listing
from mimdsim.timing import explain, time_program
from mimdsim.validation.products import matrix_vector_program
from mimdsim.workload import MappingOptions, filled_activity

TABLE = Path(__file__).resolve().parent / "pinned_programs.txt"
NOTHING = RecordedActivity(ids={}, counts={}, dropped={})
Made = tuple[Program, MimdMachine]


def variable(k: Kernel, name: str, *shape: int, **where: Any) -> Any:
    return k.input(k.variable(name, shape, **where))


def elements() -> Made:
    k = Kernel("elements", tiny())
    x, y = variable(k, "x", 7, 13, spread=1, tiles=5), variable(k, "y", 7, 13, tiles=np.arange(3, 8))
    half, whole = k.variable("half", (7, 13), "float16"), variable(k, "whole", 7, 13, dtype="int32")
    k.cast(x, to=half)
    k.copy(x, to=k.variable("copied", (7, 13), tiles=4))
    k.fill(half, 0.5)
    with k.repeat(3, reverse=True):
        k.elementwise("add", x, y, out=x)
        k.elementwise("multiply", half, 2.0, out=half)
        k.elementwise("exponent", x, out=x)
    k.elementwise("less_than", x, y, out=k.output(k.variable("less", (7, 13), "bool")))
    k.elementwise("bitwise_and", whole, 3, out=whole)
    k.broadcast(k.constant("few", np.arange(5.0), tiles=2), to=k.variable("all", (5,), mapping=k.everywhere))
    k.sort(variable(k, "rows", 6, 9, spread=0))
    k.sort(variable(k, "row", 40, tiles=9))
    return k.program(), k.machine


def reductions() -> Made:
    k = Kernel("reductions", tiny())
    x, cube = variable(k, "x", 7, 40, spread=1), variable(k, "cube", 5, 12, 6, spread=1, tiles=7)
    k.reduce(x, 0, out=k.variable("columns", (40,)))
    k.reduce(x, 1, out=k.variable("rows", (7,), tiles=3), op="max")
    k.reduce(cube, 1, out=k.variable("middle", (5, 6), spread=1))
    k.reduce(cube, out=k.variable("all", (1,), tiles=11), op="min")
    k.reduce(variable(k, "halves", 90, 3, dtype="float16"), 0, out=k.variable("of halves", (3,), "float16"))
    k.reduce(variable(k, "numbers", 16, dtype="int32"), out=k.output(k.variable("number", (1,), "int32")))
    return k.program(), k.machine


def stages() -> Made:
    k = Kernel("stages", load_machine("bow", {"chip.tiles": 200, "links.chips": 2}))  # type: ignore[arg-type]
    k.reduce(variable(k, "x", 400, 3), 0, out=k.output(k.variable("sums", (3,), tiles=[5, 210])))
    k.all_reduce(variable(k, "y", 400, 2), out=k.variable("everywhere", (2,), mapping=k.everywhere), op="max")
    k.reduce(variable(k, "wide", 90, 300, spread=0), 0, out=k.variable("one", (300,)))
    return k.program(), k.machine


def numbered() -> Made:
    k = Kernel("numbered", tiny())
    indices = k.constant("indices", np.array([3, 0, 11, 3, 7]))
    for spread, there, dtype in ((0, 0, "float32"), (1, 1, "float32"), (1, 0, "float16"), (0, 1, "int32")):
        table = variable(k, f"table{spread}{there}", 12, 9, spread=spread, dtype=dtype)
        out = k.variable(f"out{spread}{there}", (5, 9), dtype, spread=there)
        k.gather(table, indices, out=out)
        k.scatter_add(table, indices, out)
    return k.program(), k.machine


def multiplied() -> Made:
    k = Kernel("multiplied", tiny())
    for m, inner, n, dtype in ((20, 70, 9, "float32"), (33, 5, 40, "float16")):
        a, b = variable(k, f"a{m}", m, inner, dtype=dtype), variable(k, f"b{m}", inner, n, dtype=dtype, spread=1)
        k.matmul(a, b, out=k.output(k.variable(f"c{m}", (m, n), dtype)))
    return k.program(), k.machine


def own() -> Made:
    """A codelet of one's own, of which some vertices stand on one tile, in a loop on slow links."""
    k = Kernel("own", tiny(links_chips=2, chip_tiles=4, tile_issue_cycles=3))
    x, y = variable(k, "x", 40), k.output(k.variable("y", (10,), tiles=[1, 2, 5]))
    codelet = Codelet(
        name="Fours",
        fields=(Field(name="x", access="read", box=("a:b",)), Field(name="y", access="write", box=("place",))),
        columns=("place",),
        compute=lambda x, y, _place, factor: np.multiply(x.sum(), factor, out=y),
        form="vertex",
        constants=("factor",),
        cost=WorkerBundles(fixed=9, terms=(Term(bundles=2.5, extents=("fours",)),), kind="assumed", source="a guess"),
        flops=(Term(bundles=1, extents=("fours",)),),
        extents={"fours": Length("x", 0)},
    )
    first = np.arange(10) * 4
    with k.repeat(2), k.superstep("fours"):
        columns = {"a": first, "b": first + 4, "place": np.arange(10)}
        tiles = np.repeat([1, 2, 5], [3, 3, 4])
        k.vertices(codelet, tiles=tiles, operands={"x": x, "y": y}, columns=columns, constants={"factor": 2.0})
    return k.program(), k.machine


def product(m: int, k: int, n: int, dtype: str, partials: str, **changes: Any) -> Made:
    machine = tiny(**changes)
    return product_program(plan_product(machine, m, k, n, dtype, partials), machine), machine


def network(options: dict[str, Any], changes: dict[str, Any], **of: Any) -> tuple[Made, RecordedActivity]:
    machine = load_machine("tiny", {"chip.tiles": 32, **changes})
    assert isinstance(machine, MimdMachine)
    given = small_network((14, 9, 4), timesteps=3, batch=4, capacities=(6, 4), **of)
    made = compile_graph(training_graph(given), given, machine, MappingOptions(**options))
    return (made.program, machine), filled_activity(given, 0.5)


PROGRAMS: dict[str, Callable[[], Made]] = {
    "elements": elements,
    "reductions": reductions,
    "stages": stages,
    "numbered": numbered,
    "multiplied": multiplied,
    "own": own,
    "product": lambda: product(40, 100, 24, "f16", "f32"),
    "product in steps": lambda: product(300, 100, 70, "f32", "f32", tile_sram_bytes=60000),
    "compiled": lambda: (matrix_vector_program(tiny(), 37, 61), tiny()),
    "assembler": lambda: (matrix_vector_program(tiny(), 9, 300, "assembler"), tiny()),
}
EVERY = 4  # of the supersteps is explained
EXPLAINED: dict[str, Callable[[], tuple[Made, RecordedActivity]]] = {
    "published": lambda: network({}, {}),
    "two chips, planner": lambda: network(
        {"neurons_per_tile": 2}, {"links.chips": 2, "chip.tiles": 12, "exchange.model": "planner"}
    ),
    "recurrent": lambda: network({"neurons_unit": 1}, {}, recurrence="all_to_all", reset_gradient="mask"),
    "own": lambda: (own(), NOTHING),
    "product": lambda: (product(40, 100, 24, "f16", "f32"), NOTHING),
}


def told(name: str) -> Iterator[str]:
    """The listing, and of every superstep and variable what a listing leaves out."""
    program, machine = PROGRAMS[name]()
    memory = memory_profile(program, measure_memory(program, machine), machine)
    profile = time_program(program, machine, NOTHING, memory)
    yield from listing(program, [span.cycles for span in profile.spans]).splitlines()[4:]
    yield "spans"
    for span, (superstep, _, _) in zip(profile.spans, program.supersteps(), strict=False):
        figures = (
            span.times, span.compute_cycles, span.exchange_cycles, span.sync_cycles, span.link_cycles, span.flops,
            span.busy_cycles, span.bytes_received, span.slowest_tile,
        )  # fmt: skip
        yield f"  {span.name}: {' '.join(map(str, figures))}; {' '.join(sums(superstep))}"
    yield "places"
    for variable_name, held in sorted(program.variables.items()):
        mapping = held.mapping
        ends = (weighted(each) for each in (mapping.tiles, mapping.starts, mapping.stops))
        yield f"  {variable_name}: {' '.join(map(str, ends))}"
    yield f"memory {memory.peak_tile} {memory.peak_bytes} {sum(profile.tile_columns.always_live_bytes)}"


def weighted(column: Any) -> int:
    """Every number times its place, so that none changes places unseen."""
    numbers = np.asarray(column, np.int64).ravel()
    return int((numbers * (1 + np.arange(len(numbers)))).sum())


def sums(superstep: Any) -> Iterator[str]:
    for table in superstep.tables:
        columns = (f"{name}={weighted(column)}" for name, column in table.columns.items())
        yield " ".join([f"tiles={weighted(table.tiles)}", *columns, *(f"{n}={v}" for n, v in table.constants.items())])


def explained(name: str) -> Iterator[str]:
    (program, machine), activity = EXPLAINED[name]()
    count = len(list(program.supersteps()))
    for number in range(1, count, EVERY) if count > 10 else range(count):
        yield from (line.rstrip() for line in str(explain(program, machine, number, activity=activity)).splitlines())


CASES = [*PROGRAMS, *(f"{name}, explained" for name in EXPLAINED)]


def lines(case: str) -> list[str]:
    name = case.removesuffix(", explained")
    return list(told(name) if name == case else explained(name))


@cache
def pinned() -> dict[str, list[str]]:
    sections = TABLE.read_text(encoding="utf-8").split("==== ")[1:]
    return {title: body.splitlines() for title, _, body in (section.partition("\n") for section in sections)}


@pytest.mark.parametrize("case", CASES)
def test_programs_are_as_pinned(case: str) -> None:
    assert_as_pinned(lines(case), pinned().get(case, []), __file__)


def main() -> None:
    text = "".join("\n".join([f"==== {case}", *lines(case)]) + "\n" for case in CASES)
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
