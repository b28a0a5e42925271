"""What is read was written before: the verifier against a slow walk that keeps a set of elements for every variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mimdsim.program import (
    Codelet,
    Copy,
    Field,
    Program,
    Repeat,
    Superstep,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
    verify,
)
from mimdsim.program.repeats import Body
from mimdsim.program.written import OUTPUT_RULE, READ_RULE, STALE_RULE

COST = WorkerBundles(fixed=1, terms=(), kind="assumed", source="a test")
# name -> shape, what the first axis counts; a has no first axis that a timestep could be taken of
SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "a": ((3,), "timesteps"), "b": ((5, 3), "timesteps"), "c": ((3, 3), "segments"), "d": ((4, 3), "segment"),
    "e": ((5, 3), "timesteps"), "f": ((3, 3), "timesteps"), "g": ((3, 0), "timesteps"), "h": ((1, 3), "timesteps"),
}  # fmt: skip
Element = tuple[int, ...]


# ---- programs


@st.composite
def tables(draw: st.DrawFn, timed: bool) -> VertexTable:
    """Vertices on one tile, with boxes of which some are empty; some tables have no vertex."""
    vertices = draw(st.integers(0, 3))
    fields, operands, columns = [], {}, {}
    for place in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from("abcdefgh"))
        shape = SHAPES[name][0]
        box = []
        for axis, extent in enumerate(shape):
            if axis == 0 and len(shape) > 1 and (timed or name == "h") and draw(st.booleans()):
                box.append(draw(st.sampled_from(["@t", "@t", "@t-1", "@t+1"] if timed and name != "h" else ["@t"])))
                continue
            how = draw(st.sampled_from([":", "one", "range", "range"] if extent else [":", "range"]))
            one, two = f"s{place}{axis}", f"e{place}{axis}"
            box.append({":": ":", "one": one, "range": f"{one}:{two}"}[how])
            ends = [sorted(draw(st.tuples(*[st.integers(0, extent)] * 2))) for _ in range(vertices)]
            columns[one] = [min(start, max(extent - 1, 0)) if how == "one" else start for start, _ in ends]
            columns[two] = [stop for _, stop in ends]
        access = draw(st.sampled_from(["read", "write", "write", "update"]))
        fields.append(Field(name=f"x{place}", access=access, box=tuple(box), in_part=draw(st.integers(0, 7)) == 0))
        operands[f"x{place}"] = name
    return VertexTable(
        codelet=Codelet(name="Touch", fields=tuple(fields), columns=(), compute=lambda *_: None, cost=COST),
        tiles=np.zeros(vertices, np.int64),
        operands=operands,
        columns={name: np.array(column, np.int64) for name, column in columns.items()},
    )


@st.composite
def copies(draw: st.DrawFn, timed: bool) -> Copy:
    if not timed or draw(st.booleans()):
        source, target = draw(st.sampled_from(["be", "eb", "cf", "fc"]))
        return Copy(source=source, target=target)
    shifts = st.sampled_from([0, 0, -1, 1])
    source, target = draw(st.permutations("abcdef"))[:2]
    return Copy(
        source=source,
        target=target,
        source_shift=None if source == "a" else draw(shifts),
        target_shift=None if target == "a" else draw(shifts),
    )


@st.composite
def supersteps(draw: st.DrawFn, timed: bool) -> Superstep:
    if draw(st.integers(0, 3)) == 0:
        return Superstep(name="s", copies=(draw(copies(timed)),))
    return Superstep(name="s", tables=tuple(draw(tables(timed)) for _ in range(draw(st.integers(1, 2)))))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    body: list[Superstep | Repeat] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 3))
        if kind < 2:
            body.append(draw(supersteps(False)))
            continue
        inside: list[Superstep | Repeat] = [draw(supersteps(True)) for _ in range(draw(st.integers(1, 2)))]
        if kind == 3:
            inner = tuple(draw(supersteps(True)) for _ in range(draw(st.integers(1, 2))))
            inside.insert(draw(st.integers(0, len(inside))), Repeat(times=2, body=inner, reverse=draw(st.booleans())))
        body.append(Repeat(times=draw(st.integers(0, 2)), body=tuple(inside), reverse=draw(st.booleans())))
    names = iter(range(99))
    made = Program(tiles=1, variables={}, body=tuple(body))
    made = made.map_supersteps(lambda step: replace(step, name=f"s{next(names)}"))
    given = draw(st.sets(st.sampled_from("abcdefgh"), max_size=4))
    loaded = draw(st.sets(st.sampled_from("abcdefgh"), max_size=1))
    kept = draw(st.sets(st.sampled_from("abcdefgh"), max_size=2))
    variables = {
        name: Variable(
            name=name,
            shape=shape,
            dtype="float32",
            mapping=TileMapping.replicated(np.array([0])),
            persistent=name in kept,
            values=np.zeros(shape, np.float32) if name in loaded else None,
            entries=entries,
            segment=0 if entries == "timesteps" else 2,
        )
        for name, (shape, entries) in SHAPES.items()
    }
    outputs = draw(st.sets(st.sampled_from("abcdefgh"), max_size=2))
    return replace(made, variables=variables, inputs={n: n for n in given}, outputs={n: n for n in outputs})


# ---- the slow walk


def walk(body: Body, first: int = 0) -> Iterator[tuple[Superstep, int]]:
    for item in body:
        if isinstance(item, Superstep):
            yield item, first
            continue
        inner = [part.times for part in item.body if isinstance(part, Repeat)]
        turns = list(range(item.times))
        for turn in turns[::-1] if item.reverse else turns:
            yield from walk(item.body, first + turn * (inner[0] if inner else 1))


def entry_of(name: str, t: int, shift: int) -> int:
    return {"timesteps": t, "segments": t // 2, "segment": t % 2 + 1}[SHAPES[name][1]] + shift


def elements(name: str, entry: int | None = None) -> list[Element]:
    """All of a variable, or of one entry, in C order."""
    every = product(*(range(extent) for extent in SHAPES[name][0]))
    return [element for element in every if entry is None or element[0] == entry]


def touched(table: VertexTable, item: Field, row: int, t: int) -> set[Element]:
    name = table.operands[item.name]
    axes = []
    for axis, entry in enumerate(item.box):
        if entry[0] == "@":
            axes.append([entry_of(name, t, int(entry[2:] or 0))])
        elif entry == ":":
            axes.append(list(range(SHAPES[name][0][axis])))
        else:
            ends = [int(table.columns[part][row]) for part in entry.split(":")]
            axes.append(list(range(ends[0], ends[1] if len(ends) == 2 else ends[0] + 1)))
    return {element for element in product(*axes) if element[0] >= 0}


def slowly(made: Program) -> tuple[list[tuple[str, str, int]], dict[str, set[Element]], set[tuple[str, str]]]:
    """(superstep, variable, timestep) of unwritten reads in order, what outputs lack, and (superstep, variable) of
    loaded variables that are changed."""
    written: dict[str, set[Element]] = {name: set() for name in SHAPES}
    given = {*made.inputs.values(), *(name for name, one in made.variables.items() if one.values is not None)}
    for name in given:
        written[name] = set(elements(name))
    found, told, changed = [], set(), set()
    for step, t in walk(made.body):
        for copy in step.copies:
            source = elements(copy.source)
            target = elements(copy.target)
            if copy.target_shift is not None:
                target = elements(copy.target, entry_of(copy.target, t, copy.target_shift))
            if copy.source_shift is not None:
                entry = entry_of(copy.source, t, copy.source_shift)
                source = elements(copy.source, entry)
                if entry < 0:  # before the first timestep everything is zero
                    written[copy.target] |= set(target)
            for here, there in zip(source, target, strict=False):
                written[copy.target] |= {there} if here in written[copy.source] else set()
            changed.add((step.name, copy.target))
        for table in step.tables:
            for item in table.codelet.fields:
                name = table.operands[item.name]
                wanted = set().union(*(touched(table, item, row, t) for row in range(table.vertices)))
                if item.access != "write" and not item.in_part and not wanted <= written[name]:
                    found.append((step.name, name, t))
                    written[name], told = set(elements(name)), told | {name}
        for table in step.tables:
            for item in table.codelet.fields:
                for row in range(table.vertices if item.access != "read" else 0):
                    written[table.operands[item.name]] |= touched(table, item, row, t)
    lacking = {name: set(elements(name)) - written[name] for name in made.outputs.values() if name not in told}
    return found, {name: some for name, some in lacking.items() if some}, changed


@settings(max_examples=200, deadline=None)
@given(made=programs())
def test_it_is_what_a_slow_walk_finds(made: Program) -> None:
    problems = verify(made, 1)
    mine = {READ_RULE, OUTPUT_RULE, STALE_RULE}
    assume(len(problems) < 20 and all(problem.rule in mine for problem in problems))
    found, lacking, _ = slowly(made)
    said = []
    for problem in problems:
        if problem.rule == READ_RULE:
            place = re.search(r"reads (\w)\[.*\] in timestep (\d+), which", problem.message)
            assert place is not None
            said.append((problem.superstep, place[1], int(place[2])))
    assert said == found
    outputs = {}
    for problem in problems:
        if problem.rule == OUTPUT_RULE:
            place = re.search(r": (\d+) of .* elements of '(\w)' .*first is \w\[(.*?)\]", problem.message)
            assert place is not None
            outputs[place[2]] = (int(place[1]), tuple(int(index) for index in place[3].split(", ")))
    assert outputs == {name: (len(some), min(some)) for name, some in lacking.items()}
