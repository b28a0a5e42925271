"""Rules that odd programs break: timesteps taken in part, empty tables and boxes, elements on no tile, copies."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import MappingError
from mimdsim.compiler import plan_exchanges
from mimdsim.execution import Executor
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
from mimdsim.program.mapping import FLAT, PER_TIMESTEP
from mimdsim.program.program import Body

COST = WorkerBundles(fixed=1, terms=(), kind="assumed", source="a test")
Fields = list[tuple[str, str, tuple[str, ...]]]  # variable, access, box


def variable(name: str, shape: tuple[int, ...], mapping: TileMapping, entries: str = "timesteps") -> Variable:
    segment = 0 if entries == "timesteps" else 2
    return Variable(
        name=name, shape=shape, dtype="float32", mapping=mapping, category="gradients", entries=entries, segment=segment
    )


def table(fields: Fields, tiles: list[int], **columns: list[int]) -> VertexTable:
    """Vertices that touch these boxes and compute nothing."""
    made = tuple(Field(name=f"{name}{k}", access=access, box=box) for k, (name, access, box) in enumerate(fields))
    return VertexTable(
        codelet=Codelet(name="Touch", fields=made, columns=(), compute=lambda *_: None, cost=COST),
        layer="",
        tiles=np.array(tiles, np.int64),
        operands={item.name: name for item, (name, _, _) in zip(made, fields, strict=True)},
        columns={name: np.array(column, np.int64) for name, column in columns.items()},
    )


def step(*tables: VertexTable, copies: tuple[Copy, ...] = ()) -> Superstep:
    return Superstep(name="s", op="", phase="forward", stage="s", tables=tables, copies=copies)


def program(variables: list[Variable], *body: Superstep | Repeat, inputs: str = "", outputs: str = "") -> Program:
    """What is read and not written is to be given: `inputs`."""
    held = {each.name: each for each in variables}
    given, taken = ({name: name for name in names} for names in (inputs, outputs))
    return Program(tiles=2, variables=held, body=body, layers=(), inputs=given, outputs=taken)


def problems(made: Program) -> list[tuple[str, str]]:
    return [(problem.rule, problem.message) for problem in verify(made, 2)]


def rules(made: Program) -> set[str]:
    return {rule for rule, _ in problems(made)}


# ---- read while written

TWICE, MEANWHILE = "nothing is written twice", "nothing is read while written"


def test_a_vertex_that_reads_what_it_writes_hides_no_other_reader() -> None:
    x = variable("x", (4,), TileMapping.on(0, 0, 4))
    both = table([("x", "read", ("r",)), ("x", "write", ("w",))], [0, 0], r=[0, 0], w=[0, 1])
    ((rule, message),) = problems(program([x], step(both)))
    assert rule == MEANWHILE
    assert "vertex 1 of Touch on tile 0 reads x[0] while vertex 0 of Touch on tile 0 writes it" in message


WHEN = [("@t",), ("@t+1",), (":",), ("c:d",)]
RANGES = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)


@st.composite
def touching(draw: st.DrawFn) -> list[VertexTable]:
    """Tables that touch x [3, 4], all on one tile; some boxes are empty, some tables have no vertex."""
    made = []
    for _ in range(draw(st.integers(1, 2))):
        vertices = draw(st.integers(0, 3))
        fields: Fields = []
        columns: dict[str, list[int]] = {}
        for place in range(draw(st.integers(1, 3))):
            access = draw(st.sampled_from(["read", "read", "write", "update"]))
            first = draw(st.sampled_from([*WHEN, ("@t-1",)] if access == "read" else WHEN))[0]
            fields.append(("x", access, (first.replace("c:d", f"c{place}:d{place}"), f"a{place}:b{place}")))
            for ends, extent in (("ab", 4), ("cd", 3)):
                intervals = [draw(RANGES) for _ in range(vertices)]
                for end, name in enumerate(ends):
                    columns[f"{name}{place}"] = [min(interval[end], extent) for interval in intervals]
        made.append(table(fields, [0] * vertices, **columns))
    return made


def plainly(tables: list[VertexTable], timesteps: int) -> set[str]:
    """The rules broken, found element by element in every timestep."""
    broken = set()
    for t in range(timesteps):
        written: list[tuple[tuple[int, int], set[tuple[int, int]]]] = []
        read = []
        for number, vertices in enumerate(tables):
            for item, row in product(vertices.codelet.fields, range(vertices.vertices)):
                first, second = (
                    [t + int(entry[2:] or 0)] if entry[0] == "@" else range(3) if entry == ":"
                    else range(*(int(vertices.columns[name][row]) for name in entry.split(":")))
                    for entry in item.box
                )  # fmt: skip
                touched = {(i, j) for i in first for j in second if i >= 0}
                (written if item.writes else read).append(((number, row), touched))
        for place, (_, mine) in enumerate(written):
            broken |= {TWICE for _, theirs in written[:place] if mine & theirs}
        for (writer, mine), (reader, theirs) in product(written, read):
            broken |= {MEANWHILE} if writer != reader and mine & theirs else set()
    return broken


@pytest.mark.parametrize("examples", [80, 300])
def test_conflicts_are_those_of_some_timestep(examples: int) -> None:
    @settings(deadline=None, max_examples=examples)
    @given(tables=touching())
    def law(tables: list[VertexTable]) -> None:
        x = variable("x", (3, 4), TileMapping.on(0, 1, 4))
        made = program([x], Repeat(times=2, body=(step(*tables),)), inputs="x")
        assert rules(made) == plainly(tables, 2)

    law()


def test_writing_a_timestep_beside_reading_another_is_no_conflict() -> None:
    x = variable("x", (3, 4), TileMapping.on(0, 1, 4))
    both = [("x", "read", ("@t-1", "a:b")), ("x", "write", ("@t", "c:d"))]
    made = table(both, [0, 0], a=[2, 0], b=[4, 2], c=[0, 2], d=[2, 4])
    assert problems(program([x], Repeat(times=3, body=(step(made),)))) == []


def test_a_delivery_of_the_whole_is_none_of_a_timestep() -> None:
    """Boxes [0:2, 2:4] of the whole do not hold [0:2] of a timestep, though 0:2 is their first axis."""
    x, y = variable("x", (2, 4), TileMapping.on(0, 1, 4)), variable("y", (2,), TileMapping.on(1, 0, 2))
    now = table([("x", "read", ("@t", "a:b")), ("y", "write", ("k",))], [1], a=[0], b=[2], k=[0])
    whole = table([("x", "read", (":", "a:b")), ("y", "write", ("k",))], [1], a=[2], b=[4], k=[1])
    planned = plan_exchanges(program([x, y], Repeat(times=2, body=(step(now, whole),)), inputs="x"))
    assert problems(planned) == []

    def without(axes: int) -> Program:
        def less(superstep: Superstep) -> Superstep:
            assert superstep.exchange is not None
            kept = tuple(part for part in superstep.exchange.deliveries if part.boxes.shape[1] != axes)
            return replace(superstep, exchange=replace(superstep.exchange, deliveries=kept))

        return planned.map_supersteps(less)

    for axes, box in ((1, "x[0:2]"), (2, "x[0:2, 2:4]")):
        ((rule, message),) = problems(without(axes))
        assert rule == "reads are local or delivered"
        assert f"reads {box}, which lies on tile 0 and is not delivered" in message


def in_runs(axis: int, edges: list[int]) -> TileMapping:
    ends = np.array(edges)
    return TileMapping.split(axis, np.arange(len(edges) - 1), ends[:-1], ends[1:])


@pytest.mark.parametrize(
    ("mapping", "shape", "box", "said"),
    [
        (in_runs(0, [0, 2, 6]), (6, 2), ("a:b", ":"), "x[2, 0] on "),
        (in_runs(FLAT, [0, 5, 12]), (6, 2), ("a:b", ":"), "x[2, 1] on "),
        (TileMapping.on(1, 0, 6), (6, 2), ("a:b", ":"), ""),
    ],
)
def test_what_is_not_delivered_is_told_from_its_first_element_on_another_tile(
    mapping: TileMapping, shape: tuple[int, ...], box: tuple[str, ...], said: str
) -> None:
    reading = table([("x", "read", box), ("y", "write", ("k",))], [0], a=[0], b=[6], k=[0])
    made = program([variable("x", shape, mapping), variable("y", (1,), TileMapping.on(0, 0, 1))], step(reading))
    ((rule, message),) = problems(made)
    assert rule == "reads are local or delivered"
    assert f"reads x[0:6, 0:2], which {'from ' if said else ''}{said}lies on tile 1 and is not delivered" in message


# ---- timesteps


def taking(entry: str, access: str = "write", name: str = "x") -> Superstep:
    return step(table([(name, access, (entry, ":"))], [0]))


def beside(entry: str, access: str = "write") -> Body:
    """Three segments of two timesteps; what stands beside the inner repeat runs in 0, 2 and 4."""
    return (Repeat(times=3, body=(taking(entry, access), Repeat(times=2, body=(step(),)))),)


def within(entry: str, access: str = "write") -> Body:
    return (Repeat(times=3, body=(step(), Repeat(times=2, body=(taking(entry, access),)))),)


@pytest.mark.parametrize(
    ("body", "entries", "enough"),
    [
        (beside("@t"), "timesteps", 5),
        (within("@t"), "timesteps", 6),
        (beside("@t"), "segments", 3),
        (within("@t"), "segments", 3),
        (within("@t"), "segment", 3),
        (beside("@t"), "segment", 2),
        (within("@t-1", "read"), "segment", 2),
        ((Repeat(times=3, body=(taking("@t+1"),)),), "timesteps", 4),
        ((Repeat(times=3, body=(taking("@t+1", "read"),)),), "timesteps", 4),
        ((Repeat(times=3, body=(taking("@t-1", "read"),)),), "timesteps", 2),
        ((taking("@t"),), "timesteps", 1),
    ],
)
def test_a_sequence_needs_as_many_entries_as_are_taken(body: Body, entries: str, enough: int) -> None:
    """No more and no less, and whoever runs the program agrees."""
    for count in (enough, enough - 1):
        made = program([variable("x", (count, 4), TileMapping.on(0, 1, 4), entries)], *body, inputs="x")
        if count == enough:
            assert problems(made) == []
            Executor(made).run()
            continue
        ((rule, message),) = problems(made)
        assert rule == "timestep in repeat"
        assert "outside a repeat; it has 0" in message or f"takes entry {count} of 'x' within its repeat" in message
        with pytest.raises(IndexError):
            Executor(made).run()


@pytest.mark.parametrize(("access", "entries"), [("write", "timesteps"), ("read", "segments"), ("update", "segment")])
def test_what_is_before_the_first_entry_is_only_read_and_only_of_timesteps(access: str, entries: str) -> None:
    shift = "@t-2" if entries == "segment" else "@t-1"
    made = program([variable("x", (9, 4), TileMapping.on(0, 1, 4), entries)], *within(shift, access))
    ((rule, message),) = problems(made)
    assert rule == "timestep in repeat"
    assert f"{'reads' if access == 'read' else 'writes'} entry -1 of 'x', which has none before 0" in message


def test_entries_of_an_output_that_no_timestep_writes_are_reported() -> None:
    made = program([variable("x", (6, 4), TileMapping.on(0, 1, 4))], *beside("@t"), outputs="x")
    ((rule, message),) = problems(made)
    assert rule == "outputs are written whole"
    assert "output 'x': 12 of 24 elements of 'x' are never written, the first is x[1, 0]" in message
    assert problems(replace(made, body=within("@t"))) == []


def test_a_timestep_of_what_is_spread_by_timesteps_is_a_broken_rule() -> None:
    each = np.arange(2)
    x = variable("x", (2, 4), TileMapping.split(0, each, each, each + 1))
    for superstep in (taking("@t"), step(copies=(Copy(source="x", target="y", source_shift=0),))):
        y = variable("y", (4,), TileMapping.on(0, 0, 4))
        made = program([x, y], Repeat(times=2, body=(superstep,)))
        ((rule, message),) = problems(made)
        assert rule == "box fits variable"
        with pytest.raises(MappingError, match=re.escape(message)):
            plan_exchanges(made)


# ---- elements on tiles


def spread(axis: int, *intervals: tuple[int, int]) -> TileMapping:
    starts, stops = np.array(intervals, np.int64).T.reshape(2, -1)
    return TileMapping(axis=axis, tiles=np.arange(len(starts)), starts=starts, stops=stops)


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        (spread(0, (0, 2)), "lacks a tile for 2 to 3 of its 4 indices of axis 0; let its TileMapping hold all"),
        (spread(1, (0, 2), (5, 6)), "lacks a tile for 2 to 4 of its 6 indices of axis 1"),
        (spread(FLAT, (3, 24)), "lacks a tile for 0 to 2 of its 24 elements"),
        (spread(PER_TIMESTEP, (0, 5)), "lacks a tile for 5 to 5 of its 6 elements of a timestep"),
        (spread(0), "lacks a tile for 0 to 3 of its 4 indices of axis 0"),
        (spread(0, (0, 9)), "is mapped from 0 to 9, it has 4 indices of axis 0; map no more than there are"),
        (spread(1, (-1, 6)), "is mapped from -1 to 6, it has 6 indices of axis 1"),
        (spread(2, (0, 4)), "is mapped along axis 2, its shape [4, 6] has 2; map an axis it has"),
        (TileMapping.replicated(np.zeros(0, np.int64)), "is not replicated on any tile; name the tiles that hold it"),
    ],
)
def test_every_element_is_on_a_tile(mapping: TileMapping, text: str) -> None:
    made = program([variable("x", (4, 6), mapping)], step(table([("x", "write", ("a", ":"))], [0], a=[3])))
    ((rule, message),) = problems(made)
    assert rule == "every element is on a tile"
    assert f"variable 'x' {text}" in message
    with pytest.raises(MappingError, match=re.escape(message)):
        plan_exchanges(made)


@pytest.mark.parametrize("mapping", [spread(1, (0, 1), (1, 6)), spread(FLAT, (0, 24)), spread(PER_TIMESTEP, (0, 6))])
def test_mappings_that_hold_all(mapping: TileMapping) -> None:
    assert problems(program([variable("x", (4, 6), mapping)], step())) == []


# ---- nothing to touch


def test_a_table_without_vertices_breaks_no_rule_but_names() -> None:
    x = variable("x", (4,), TileMapping.on(0, 0, 4))
    empty = table([("x", "write", ("a:b",)), ("x", "read", ("a:b",))], [], a=[], b=[])
    assert problems(plan_exchanges(program([x], step(empty)))) == []
    ((rule, message), _) = problems(program([], step(empty)))
    assert rule == "variable exists"
    assert "superstep 's': the empty table of Touch reads 'x'" in message
    with pytest.raises(MappingError, match=re.escape(message)):
        plan_exchanges(program([], step(empty)))


@pytest.mark.parametrize(("a", "b"), [([0, 4, 4], [4, 4, 4]), ([0, 2], [4, 2]), ([1, 1], [1, 1])])
def test_boxes_without_elements_do_not_meet(a: list[int], b: list[int]) -> None:
    x = variable("x", (4,), TileMapping.on(0, 0, 4))
    assert problems(program([x], step(table([("x", "write", ("a:b",))], [0] * len(a), a=a, b=b)))) == []


@pytest.mark.parametrize("mapping", [TileMapping.on(0, 0, 4), TileMapping.replicated(np.array([0]))])
def test_a_box_without_elements_is_local(mapping: TileMapping) -> None:
    x = variable("x", (4, 4), mapping)
    nothing = step(table([("x", "read", (":", "a:b"))], [1], a=[2], b=[2]))
    assert problems(program([x], nothing)) == []
    assert next(plan_exchanges(program([x], nothing)).supersteps())[0].exchange is None


@pytest.mark.parametrize("access", ["read", "write"])
def test_a_timestep_of_single_numbers_is_refused(access: str) -> None:
    x = variable("x", (3,), TileMapping.on(0, 0, 3))
    made = program([x], Repeat(times=3, body=(step(table([("x", access, ("@t",))], [1])),)))
    ((rule, message),) = problems(made)
    assert rule == "box fits variable"
    assert "leaves no axis of 'x' [3]; give the variable one more, of extent 1: [3, 1]" in message
    if access == "read":  # what is written never travels: only `verify` looks at it
        with pytest.raises(MappingError, match=re.escape(message)):
            plan_exchanges(made)


# ---- copies


def copying(source: tuple[int, ...], target: tuple[int, ...], times: int = 0, **shifts: int) -> Program:
    """y on tile 1 <- x on tile 0."""
    held = [
        variable(name, shape, TileMapping.on(tile, len(shape) - 1, shape[-1]))
        for name, shape, tile in (("x", source, 0), ("y", target, 1))
    ]
    superstep = step(copies=(Copy(source="x", target="y", **shifts),))
    made = program(held, Repeat(times=times, body=(superstep,)) if times else superstep)
    return replace(made, inputs={"x": "x"})


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (copying((8,), (4,)), "copies 'x' [8] to 'y' [4]; the shapes must be the same"),
        (copying((3, 4), (3, 4), times=3, source_shift=0), "copies 'x' [4] to 'y' [3, 4]; the shapes must be the same"),
    ],
)
def test_a_copy_between_shapes_that_differ(made: Program, text: str) -> None:
    ((rule, message),) = problems(made)
    assert rule == "shapes of a copy agree"
    assert text in message
    with pytest.raises(MappingError, match=re.escape(message)):
        plan_exchanges(made)


def test_a_copy_of_single_numbers_is_refused() -> None:
    made = copying((3,), (3,), times=3, source_shift=0, target_shift=0)
    made = replace(made, variables={name: replace(each, mapping=TileMapping.on(0, FLAT, 3))
                                    for name, each in made.variables.items()})  # fmt: skip
    assert "leaves no axis to copy along; give both one of extent 1" in problems(made)[0][1]


def test_a_copy_across_tiles_must_be_delivered() -> None:
    made = copying((3, 4), (3, 4), times=3, source_shift=-1, target_shift=0)
    ((rule, message),) = problems(made)
    assert rule == "reads are local or delivered"
    assert "copies x[0:4] to 'y' on tile 1, which this superstep's exchange does not deliver; plan its" in message
    assert problems(plan_exchanges(made)) == []
    here = {name: replace(each, mapping=TileMapping.on(0, 1, 4)) for name, each in made.variables.items()}
    assert problems(replace(made, variables=here)) == []


def test_a_copy_takes_entries_that_are_there() -> None:
    late = plan_exchanges(copying((3, 4), (3, 4), times=3, source_shift=1, target_shift=0))
    assert "a copy takes entry 3 of 'x' within its repeat, the last is 2" in problems(late)[0][1]
    early = plan_exchanges(copying((3, 4), (3, 4), times=3, source_shift=0, target_shift=-1))
    assert "a copy writes entry -1 of 'y', which has none before 0" in problems(early)[0][1]


SEQUENCES = [variable(name, (3, 4), TileMapping.on(tile, 1, 4)) for tile, name in ((0, "x"), (1, "y"), (0, "z"))]


def moving(*copies: tuple[str, str], read: str = "", shift: int | None = 0, other: int | None = 0) -> Program:
    """Copies of one superstep, all but the first at `other`; a vertex on tile 0 may read what a copy moved."""
    made = [
        Copy(source=source, target=target, source_shift=at, target_shift=at)
        for (source, target), at in zip(copies, (shift, *[other] * len(copies)), strict=False)
    ]
    reader = [table([(read, "read", ("@t", ":"))], [0])] if read else []
    return plan_exchanges(program(SEQUENCES, Repeat(times=2, body=(step(*reader, copies=tuple(made)),)), inputs="xyz"))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (moving(("x", "y"), ("y", "z")), (MEANWHILE, "copies 'y' to 'z' while 'x' is copied there")),
        (moving(("y", "z"), ("x", "y")), (MEANWHILE, "copies 'y' to 'z' while 'x' is copied there")),
        (moving(("x", "y"), ("y", "z"), other=None), (MEANWHILE, "copies 'y' to 'z' while 'x' is copied there")),
        (moving(("x", "y"), ("y", "z"), other=1), None),  # another timestep of it
        (moving(("x", "y"), ("z", "y")), (TWICE, "copies both 'x' and 'z' to 'y'")),
        (moving(("x", "y"), ("x", "z")), None),
        (moving(("x", "y"), read="y"), (MEANWHILE, "vertex 0 of Touch on tile 0 reads y[0:4] of another tile while")),
        (moving(("y", "x"), read="x"), None),  # what was copied lies here when the vertex runs
        (moving(("x", "y"), read="y", shift=1), None),
    ],
)
def test_what_an_exchange_copies_nothing_else_of_it_touches(made: Program, said: tuple[str, str] | None) -> None:
    found = problems(made)
    assert len(found) == (said is not None)
    for rule, message in found:
        assert said is not None
        assert rule == said[0]
        assert said[1] in message


# ---- order


def filling(name: str) -> Superstep:
    return replace(step(table([(name, "write", ("a:b",))], [0], a=[0], b=[4])), name=f"fill {name}")


def taking_from(name: str, other: str) -> Superstep:
    both = table([(name, "read", ("a:b",)), (other, "write", ("a:b",))], [0], a=[0], b=[4])
    return replace(step(both), name=f"take {name}")


WHOLE = [variable(name, (4,), TileMapping.on(0, 0, 4)) for name in "xyz"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ((filling("x"), taking_from("x", "y")), ""),
        ((taking_from("x", "y"), filling("x")), "superstep 'take x': vertex 0 of Touch on tile 0 reads x[0] in"),
        ((taking_from("x", "y"), taking_from("y", "x")), "superstep 'take x': vertex 0 of Touch on tile 0 reads x[0]"),
        ((taking_from("x", "x"),), "superstep 'take x'"),  # in place: a sum starts from zeros that somebody writes
        ((Repeat(times=2, body=(taking_from("x", "y"), taking_from("y", "x"))),), "superstep 'take x'"),
        ((Repeat(times=2, body=(filling("x"), taking_from("x", "y"), taking_from("y", "x"))),), ""),
        ((taking_from("x", "y"), Repeat(times=2, body=(filling("x"),))), "superstep 'take x'"),
        ((step(copies=(Copy(source="x", target="y"),)), filling("x")), ""),  # what is copied and not read harms nobody
        ((step(copies=(Copy(source="x", target="y"),)), filling("x"), taking_from("y", "z")), "superstep 'take y'"),
        ((filling("z"), step(copies=(Copy(source="z", target="x"),)), taking_from("x", "y")), ""),
        ((taking_from("x", "z"), step(copies=(Copy(source="z", target="x"),))), "superstep 'take x'"),
        ((taking_from("x", "y"),), "superstep 'take x'"),
    ],
)
def test_what_is_read_has_been_written(body: tuple[Superstep | Repeat, ...], said: str) -> None:
    found = [message for rule, message in problems(program(WHOLE, *body)) if rule == "what is read was written"]
    assert [message.startswith(said) for message in found] == ([True] if said else [])
    for message in found:
        assert "in timestep 0, which nothing has written before; " in message
        assert "; write it in an earlier superstep, let the host give it" in message
    given = replace(program(WHOLE, *body), inputs={"x": "x"})
    assert "what is read was written" not in rules(given)
