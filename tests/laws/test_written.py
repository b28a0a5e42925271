"""What is read was written before: the verifier against a slow walk that keeps a set of elements for every variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
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
from mimdsim.program.checks.initialised import OUTPUT_RULE, READ_RULE, STALE_RULE, WRITER_RULE, check_written
from mimdsim.program.program import Body

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


def moved(copy: Copy, t: int) -> tuple[list[Element], list[Element], bool]:
    """Elements of the source and of the target of a copy, and whether the source lies before the first timestep."""
    ends = []
    for name, shift in ((copy.source, copy.source_shift), (copy.target, copy.target_shift)):
        ends.append(elements(name, None if shift is None else entry_of(name, t, shift)))
    return *ends, copy.source_shift is not None and entry_of(copy.source, t, copy.source_shift) < 0


class Walk:
    """Sets of elements that are written, and that were read as they were loaded, turn by turn."""

    def __init__(self, made: Program):
        one_of = made.variables
        self.given = {
            *made.inputs.values(),
            *(n for n, one in one_of.items() if one.values is not None and one.persistent),
        }
        self.loaded = {name for name, one in one_of.items() if one.values is not None} - self.given
        self.written = {name: set(elements(name)) if name in self.given else set() for name in SHAPES}
        self.leant: dict[str, set[Element]] = {name: set() for name in SHAPES}
        self.told: set[str] = set()
        self.found: list[tuple[str, str, str, int]] = []  # rule, superstep, variable, timestep (-1: not said)
        self.lacking: list[set[Element]] = []
        for superstep, t in walk(made.body):
            for copy in superstep.copies:
                self.copy(superstep.name, copy, t)
            accesses = [(table, item) for table in superstep.tables for item in table.codelet.fields]
            for table, item in accesses:
                if item.access != "write":
                    self.read(superstep.name, table, item, t)
            for table, item in accesses:
                if item.access != "read":
                    self.write(superstep.name, table.operands[item.name], self.all_touched(table, item, t))
        outputs = set(made.outputs.values()) - self.told - self.loaded
        left = {name: set(elements(name)) - self.written[name] for name in outputs}
        self.outputs = {name: (len(some), min(some)) for name, some in left.items() if some}

    def all_touched(self, table: VertexTable, item: Field, t: int) -> set[Element]:
        return set().union(*(touched(table, item, row, t) for row in range(table.vertices)))

    def tell(self, rule: str, where: str, name: str, t: int, lacking: set[Element]) -> None:
        self.found.append((rule, where, name, t))
        self.lacking.append(lacking)
        self.written[name] = set(elements(name))
        self.told.add(name)

    def read(self, where: str, table: VertexTable, item: Field, t: int) -> None:
        name = table.operands[item.name]
        lacking = self.all_touched(table, item, t) - self.written[name]
        if name in self.loaded:
            self.leant[name] |= lacking
        elif lacking and not item.in_part:
            self.tell(READ_RULE, where, name, t, lacking)

    def write(self, where: str, name: str, some: set[Element]) -> None:
        if some & self.leant[name] and name not in self.told:
            self.tell(STALE_RULE, where, name, -1, set())
        self.written[name] |= some

    def copy(self, where: str, copy: Copy, t: int) -> None:
        source, target, is_before = moved(copy, t)
        defined = set(source) if is_before or copy.source in self.loaded else self.written[copy.source]
        if copy.source in self.loaded:
            self.leant[copy.source] |= set(source) - self.written[copy.source]
        if set(target) & self.leant[copy.target] and copy.target not in self.told:
            self.tell(STALE_RULE, where, copy.target, -1, set())
            return
        held = set(target) if copy.target in self.loaded | self.given else self.written[copy.target]
        if is_before:
            self.written[copy.target] |= set(target)
            return
        pairs = list(zip(source, target, strict=True))
        spoilt = {here for here, there in pairs if here not in defined and there in held}
        if spoilt:
            self.tell(READ_RULE, where, copy.source, t, spoilt)
        else:
            self.written[copy.target] |= {there for here, there in pairs if here in defined}


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(made=programs())
def test_it_is_what_a_slow_walk_finds(made: Program) -> None:
    mine = {READ_RULE, OUTPUT_RULE, STALE_RULE}
    others = [problem for problem in verify(made, 1) if problem.rule not in mine | {WRITER_RULE}]
    assume(not others)
    expected = Walk(made)
    said, outputs = [], {}
    for problem in check_written(made, 1):
        if problem.rule == READ_RULE:
            place = re.search(r"(?:reads|copies) (\w)\[(.*?)\] .*in timestep (\d+), which", problem.message)
            assert place is not None
            element = tuple(int(index) for index in place[2].split(", "))
            assert element in expected.lacking[len(said)]
            said.append((READ_RULE, problem.superstep, place[1], int(place[3])))
            if problem.vertex >= 0:
                step = next(step for step, _, _ in made.supersteps() if step.name == problem.superstep)
                reads = [(table, item) for table in step.tables for item in table.codelet.fields if item.reads]
                assert any(
                    element in touched(table, item, problem.vertex, int(place[3]))
                    for table, item in reads
                    if table.operands[item.name] == place[1] and problem.vertex < table.vertices
                )
        elif problem.rule == STALE_RULE:
            place = re.search(r"changes '(\w)', which is loaded", problem.message)
            assert place is not None
            said.append((STALE_RULE, problem.superstep, place[1], -1))
        else:
            place = re.search(r": (\d+) of .* elements of '(\w)' .*first is \w\[(.*?)\]", problem.message)
            assert place is not None
            outputs[place[2]] = (int(place[1]), tuple(int(index) for index in place[3].split(", ")))
    assert said == expected.found
    assert outputs == expected.outputs
