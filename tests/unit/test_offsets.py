"""Counters that say which entry of a sequence a device takes: left out, moved, swapped or miscounted, they are found
where they are read, though the values of a run on one array per sequence stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from networks import compiled, given_values, small_network

from mimdsim.base.errors import MappingError
from mimdsim.checking import check_kernel
from mimdsim.codelets.dense import slice_codelet
from mimdsim.execution import Executor, execute_strictly
from mimdsim.kernels import Kernel
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.program import Codelet, Field, Program, Repeat, Superstep, VertexTable, WorkerBundles, verify
from mimdsim.workload import MappingOptions

COST = WorkerBundles(fixed=1000, terms=(), kind="assumed", source="a test")
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "published": ({}, {}),
    "best": ({}, {"program": "best"}),
    "segments": ({"timesteps": 4}, {"stash": "every:2"}),
    "carry": ({"recurrence": "all_to_all"}, {"stash": "carry"}),
    "dense": ({"spikes": "dense"}, {}),
}


@cache
def program_of(name: str) -> tuple[Program, dict[str, Any]]:
    """A small training step, and what the host writes."""
    network_changes, options = NETWORKS[name]
    network = small_network((7, 6, 3), **({"timesteps": 3, "batch": 2} | network_changes))
    given = given_values(network, 3).for_program(network)
    return compiled(network, options=MappingOptions(neurons_per_tile=2, **options)).program, given


def said(program: Program, given: dict[str, Any], *, strict: bool = False) -> str:
    """What a run that checks says, empty when it runs to its end."""
    executor = Executor(program)
    executor.write(given)
    try:
        if strict:
            execute_strictly(executor)
        else:
            executor.run(observe=lambda *_: None)
    except MappingError as failure:
        return str(failure)
    return ""


def counters(program: Program) -> set[str]:
    """Variables that only fills and counting write and slices read."""
    tables = [table for step, _, _ in program.supersteps() for table in step.tables]
    counted = {"CountTimestep", "PreviousTimestep"}
    return {name for table in tables if table.codelet.name in counted for name in table.operands.values()}


def replaced(program: Program, old: VertexTable, *new: VertexTable) -> Program:
    return program.map_supersteps(
        lambda step: replace(
            step, tables=tuple(one for table in step.tables for one in (new if table is old else (table,)))
        )
    )


def at_the_end(body: tuple[Any, ...], moved: VertexTable) -> tuple[Any, ...]:
    """The body with a table of one of its supersteps in a superstep of its own, the last one."""
    made: list[Any] = []
    last: list[Superstep] = []
    for item in body:
        if isinstance(item, Repeat):
            made.append(replace(item, body=at_the_end(item.body, moved)))
            continue
        rest = tuple(table for table in item.tables if table is not moved)
        made.append(replace(item, tables=rest))
        last += [replace(item, tables=(moved,))] if len(rest) < len(item.tables) else []
    return (*made, *last)


def tile_reading(program: Program, counter: str) -> int:
    """The last tile with a slice or an update at a counter."""
    tables = [table for step, _, _ in program.supersteps() for table in step.tables]
    reading = [table for table in tables if table.operands.get("timestep") == counter and "sequence" in table.operands]
    return max(int(table.tiles.max()) for table in reading)


def mutants(program: Program) -> Iterator[tuple[str, Program]]:
    """Every counter left out, on its last tile alone, late, and miscounted; every reader of one with every other."""
    names = counters(program)
    for step, _, _ in program.supersteps():
        for table in step.tables:
            read = [item.name for item in table.codelet.fields if table.operands[item.name] in names]
            if not read:
                continue
            what = f"{step.name}: {table.codelet.name}"
            if table.codelet.fields[0].name not in read:  # a slice or an update
                for other in sorted(names - {table.operands[read[0]]}):
                    swapped = replace(table, operands=table.operands | {read[0]: other})
                    yield f"{what} reads {other}", replaced(program, table, swapped)
                continue
            yield f"{what} left out", replaced(program, table)
            there = table.tiles != tile_reading(program, table.operands[read[0]])
            yield f"{what} left out on a tile", replaced(program, table, table.some(np.flatnonzero(there)))
            yield f"{what} at the end", replace(program, body=at_the_end(program.body, table))
            for name, number in table.constants.items():
                assert isinstance(number, int)
                for new in (number + 1, number - 1):
                    changed = replace(table, constants={name: new})
                    yield f"{what} {name} {new} for {number}", replaced(program, table, changed)


@pytest.mark.first(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_counters_that_say_another_entry_are_found(name: str) -> None:
    program, given = program_of(name)
    assert not said(program, given)
    found = list(mutants(program))
    assert len(found) >= 20
    for what, mutant in found:
        text = said(mutant, given)
        assert "takes the entry of" in text, what
        assert "the entry of timestep" in text, what


@pytest.mark.parametrize("name", ["published", "segments"])
def test_counters_are_found_vertex_by_vertex(name: str) -> None:
    program, given = program_of(name)
    assert not said(program, given, strict=True)
    for what, mutant in list(mutants(program))[::5]:
        assert "takes the entry of" in said(mutant, given, strict=True), what


@pytest.mark.parametrize(("outer", "inner"), [(False, False), (False, True), (True, False), (True, True)])
def test_repeats_within_repeats_count_as_one(outer: bool, inner: bool) -> None:
    """Timesteps in two segments; where either goes from the last to the first, counters that count on are wrong."""
    made = compiled(small_network((9, 8, 4), timesteps=6, batch=3))

    def in_segments(item: Any) -> Any:
        if not isinstance(item, Repeat) or item.reverse:
            return item
        return Repeat(times=2, body=(replace(item, times=3, reverse=inner),), reverse=outer)

    executors = [
        Executor(replace(made.program, body=body))
        for body in (made.program.body, tuple(in_segments(item) for item in made.program.body))
    ]
    for executor in executors:
        executor.write(given_values(made.network, 2, dyadic=False, activity=0.3).for_program(made.network))
    executors[0].run()
    if outer or inner:
        with pytest.raises(MappingError, match="was the counter set and counted before"):
            executors[1].run()
        return
    executors[1].run()
    for name in made.program.outputs:
        assert executors[1].read(name).tobytes() == executors[0].read(name).tobytes(), name


def test_who_reads_what_is_told() -> None:
    program, given = program_of("published")
    count = next(table for step, _, _ in program.supersteps() for table in step.tables if step.name == "count timestep")
    text = said(replaced(program, count), given)
    assert text.startswith("superstep 'slice ids.input', timestep 0: vertex 0 of DynamicSliceSlots on tile ")
    assert "holds -1; the entry of timestep 0 is 0: was the counter set and counted before" in text


# ---- a kernel of one's own


def small_machine() -> MimdMachine:
    found = load_machine("tiny", {"chip.tiles": 4})
    assert isinstance(found, MimdMachine)
    return found


def taking(compute: Callable[..., None], entry_of: str = "rows", access: str = "read") -> Codelet:
    return Codelet(
        name="Take",
        fields=(
            Field(name="sum", access="update", box=("start:stop",)),
            Field(name="rows", access="read", box=("@t", "start:stop")),
            Field(name="place", access=access, box=("tile:end",), entry_of=entry_of),
        ),
        form="vertex",
        columns=(),
        compute=compute,
        cost=COST,
    )


def summed(first: int, by: int, dtype: str = "int32") -> Any:
    """The sum of five rows, a row a turn; every tile counts for itself, in two words."""

    def add(total: np.ndarray, row: np.ndarray, _place: np.ndarray) -> None:
        total += row

    def count(place: np.ndarray) -> None:
        place += by

    counting = Codelet(
        name="Count", fields=(Field(name="place", access="update", box=("tile:end",)),), form="vertex", columns=(),
        compute=count, cost=COST,
    )  # fmt: skip

    def build(on: MimdMachine) -> Program:
        k = Kernel("own", on)
        rows, total = k.input(k.variable("rows", (5, 8), spread=1)), k.output(k.variable("total", 8))
        k.fill(total, 0)
        place = k.variable("place", 8, dtype)
        k.fill(place, first)
        columns = {"start": np.arange(4) * 2, "stop": np.arange(4) * 2 + 2}
        words = {"tile": np.arange(4) * 2, "end": np.arange(4) * 2 + 2}
        with k.repeat(5):
            k.vertices(counting, tiles=np.arange(4), operands={"place": place}, columns=words)
            operands = {"sum": total, "rows": rows, "place": place}
            k.vertices(taking(add), tiles=np.arange(4), operands=operands, columns=columns | words)
        return k.program()

    return build


@pytest.mark.parametrize("strict", [False, True])
def test_a_kernel_may_say_which_field_holds_an_entry(*, strict: bool) -> None:
    def check(*given: Any) -> str:
        return str(
            check_kernel(summed(*given), small_machine(), reference=lambda rows: rows.sum(axis=0), strict=strict)
        )

    assert "FAIL" not in check(-1, 1)
    for first, by, held in ((0, 1, 1), (-1, 2, 1), (-2, 1, -1)):
        text = check(first, by)
        assert f"place[0:2] holds {held}; the entry of timestep 0 is 0" in text
        assert "vertex 0 of Take on tile 0 takes the entry of 'rows' that its field 'place' says" in text
    assert "(float32, which is no index)" in check(-1, 1, "float32")


@pytest.mark.parametrize(
    ("entry_of", "access"), [("nothing", "read"), ("sum", "read"), ("place", "read"), ("rows", "write")]
)
def test_an_entry_of_what_takes_none_is_refused(entry_of: str, access: str) -> None:
    with pytest.raises(
        MappingError, match=r"must be read, and name a field taken at \"@t\", of which there are \['rows"
    ):
        taking(lambda *_: None, entry_of, access)


def test_every_codelet_of_the_library_that_reads_a_counter_says_of_what() -> None:
    for along in ("rows", "slots", "boxes"):
        assert slice_codelet(along, -1).field("timestep").entry_of == "sequence"
    for name in NETWORKS:
        program, _ = program_of(name)
        assert not verify(program, program.tiles)
        names = counters(program)
        for step, _, _ in program.supersteps():
            for table in step.tables:
                read = [item for item in table.codelet.fields if item.access == "read"]
                held = [item.entry_of for item in read if table.operands[item.name] in names]
                assert all(held) or table.codelet.name == "PreviousTimestep", table.codelet.name
