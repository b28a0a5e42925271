"""Extents: what a codelet declares follows from boxes, what a table gives is held against what its vertices read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any
from weakref import ref

import numpy as np
import pytest
from codelet_families import CODELETS
from networks import compiled, given_values, small_network

from mimdsim.base.errors import MappingError
from mimdsim.codelets.losses import COUNT_LAST
from mimdsim.codelets.neurons import LIF_UPDATE
from mimdsim.execution import Executor
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.program import (
    Codelet,
    Column,
    Copy,
    Field,
    Hits,
    Length,
    Listed,
    Lists,
    Program,
    Recorded,
    RecordedActivity,
    Repeat,
    Size,
    Spikes,
    Superstep,
    Term,
    TileFormula,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
    extents_of,
    verify,
)
from mimdsim.program.checks.bounds import EXTENTS_FOLLOW, check_extents
from mimdsim.program.checks.scope import Scope
from mimdsim.program.loops import RECORDED, Derived
from mimdsim.program.vertex_boxes import boxes_of
from mimdsim.timing import program_loads
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.workload import MappingOptions, load_workload

NOTHING = RecordedActivity(ids={}, counts={}, dropped={})
ISSUE = TileIssue(contexts=1, issue_cycles=1, vector_bytes=8, arrange_fragment_bundles=0)
FIELDS = (
    Field(name="block", access="read", box=("@t-1", ":", "row", "start:stop")),
    Field(name="out", access="write", box=("start:stop",)),
)


def cost(*terms: Term) -> WorkerBundles:
    return WorkerBundles(fixed=0, terms=terms, kind="assumed", source="a test")


def codelet(*names: str, **extents: Any) -> Codelet:
    """A bundle for every turn of each of `names`."""
    return Codelet(
        name="Walk", fields=FIELDS, columns=("start", "stop", "turns"), constants=("first",),
        compute=lambda *_: None, cost=cost(*(Term(bundles=1, extents=(name,)) for name in names)), extents=extents,
    )  # fmt: skip


def program(made: Codelet, **extents: Any) -> Program:
    """Two vertices on tiles 0 and 1: rows 0 and 2 of block [timesteps, 5, 3, 7], elements 0 to 3 and 3 to 7."""
    columns = {"row": [0, 2], "start": [0, 3], "stop": [3, 7], "turns": [9, 4]}
    table = VertexTable(
        codelet=made, layer="", tiles=np.arange(2), operands={"block": "block", "out": "out"},
        columns={name: np.array(column) for name, column in columns.items()}, extents=extents, constants={"first": 2},
    )  # fmt: skip
    split = TileMapping.split(0, np.arange(2), np.array([0, 3]), np.array([3, 7]))
    variables = {
        "block": Variable(
            name="block", shape=(2, 5, 3, 7), dtype="float32", mapping=replace(split, axis=3), category="gradients"
        ),
        "out": Variable(name="out", shape=(7,), dtype="float32", mapping=split, category="gradients"),
    }
    step = Superstep(name="walk", op="", phase="forward", stage="walk", tables=(table,))
    return Program(
        tiles=2,
        variables=variables,
        body=(Repeat(times=2, body=(step,)),),
        layers=(),
        inputs={"b": "block"},
        outputs={},
    )


def only_table(made: Program) -> VertexTable:
    ((superstep, _, _),) = made.supersteps()
    return superstep.tables[0]


# ---- what follows from boxes


@pytest.mark.parametrize(
    ("extent", "turns"),
    [
        (Length("block", 1), [5, 5]),
        (Length("block", 1, per=2), [3, 3]),
        (Length("block", 1, after="first"), [3, 3]),
        (Length("block", 2), [1, 1]),
        (Length("block", 3), [3, 4]),
        (Length("block", 3, per=2), [2, 2]),
        (Length("block", 3, per=4), [1, 1]),
        (Size("block"), [15, 20]),  # of one timestep
        (Size("block", per=8), [2, 3]),
        (Size("out"), [3, 4]),
        (Column("turns"), [9, 4]),
        (Column("turns", per=4), [3, 1]),
    ],
)
def test_an_extent_follows_from_the_boxes_and_is_what_is_timed(extent: Derived, turns: list[int]) -> None:
    made = program(codelet("turns", turns=extent))
    found = extents_of(made, only_table(made))["turns"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.int64
    assert found.tolist() == turns
    assert verify(made, 2) == ()
    (load,) = program_loads(made, NOTHING, ISSUE)
    assert load.busy.tolist() == [2 * each for each in turns]


def test_another_box_is_another_extent() -> None:
    """There is no second number to go stale: who moves the box moves the cost."""
    made = program(codelet("turns", turns=Size("out")))
    table = only_table(made)
    longer = replace(table, columns=table.columns | {"stop": table.columns["stop"] + 5})
    assert np.asarray(extents_of(made, longer)["turns"]).tolist() == [8, 9]


@pytest.mark.parametrize(
    ("extent", "pattern"),
    [
        (Length("blok", 1), "extent 'turns' follows from field 'blok'; its fields are .*; did you mean 'block'"),
        (Size("in"), "follows from field 'in'"),
        (Length("block", 0), "follows from axis 0 of field 'block', whose box .* has no length there"),
        (Length("block", 4), "follows from axis 4 of field 'block'"),
        (Length("block", -1), "follows from axis -1 of field 'block'"),
        (Length("block", 1, per=0), "counts 0 a turn; at least 1 fits one"),
        (Length("block", 1, after="last"), "is counted after 'last', which is not one of its constants"),
        (Column("row"), "follows from column 'row', which compute does not get"),
        (Lists(Size), "one of Spikes, Listed, SpikesOver, Hits, Within, Turns is needed"),  # type: ignore[arg-type]
        (Lists(Hits), "'which' is for Hits, which need it"),
        (Lists(Listed, ("listed",)), "'which' is for Hits, which need it"),
        (np.ones(2), "is a ndarray; declare it as Length, Size, Column or Lists"),
        (Spikes(layer="h"), "is a Spikes; declare it as Length, Size, Column or Lists"),
    ],
)
def test_a_declaration_of_what_is_not_there_is_refused(extent: Any, pattern: str) -> None:
    with pytest.raises(MappingError, match=f"codelet 'Walk': .*{pattern}"):
        codelet("turns", turns=extent)


def test_what_the_codelet_declares_no_table_gives() -> None:
    with pytest.raises(ValueError, match=r"table of 'Walk': the codelet declares what extent\(s\) \['turns'\]"):
        program(codelet("turns", turns=Size("out")), turns=np.ones(2, np.int64))
    given = only_table(program(codelet("turns"), turns=np.ones(2, np.int64)))
    with pytest.raises(ValueError, match="leave them out of the table"):
        given.with_codelet(codelet("turns", turns=Size("out")))


# ---- what nobody gives


def test_an_extent_that_nobody_gives_is_told_by_the_verifier() -> None:
    (problem,) = verify(program(codelet("turns", turn=Size("out"))), 2)
    assert problem.rule == EXTENTS_FOLLOW
    assert (problem.superstep, problem.codelet) == ("walk", "Walk")
    assert problem.message.endswith(
        "has a cost that needs the extent 'turns', which neither its codelet declares nor its table gives; did you "
        "mean 'turn'?"
    )
    assert verify(program(codelet("turns"), turns=np.ones(2, np.int64)), 2) == ()


def test_an_extent_of_flops_or_of_a_formula_that_nobody_gives_is_told_too() -> None:
    flops = replace(codelet(), flops=(Term(bundles=1, extents=("sums",)),))
    (problem,) = verify(program(flops), 2)
    assert "needs the extent 'sums'" in problem.message
    formula = TileFormula(cycles=lambda extents, *_: 7 * extents["cells"], kind="assumed", source="a test")
    (problem,) = verify(program(replace(codelet(), cost=formula)), 2)
    assert "needs the extent 'cells'" in problem.message
    assert verify(program(replace(codelet(cells=Size("out")), cost=formula)), 2) == ()


def test_recorded_spikes_that_the_codelet_declares_must_be_given() -> None:
    (problem,) = verify(program(codelet("spikes", spikes=Lists(Spikes))), 2)
    assert "needs the extent 'spikes'" in problem.message


# ---- codelets of the compiler


def test_tables_of_compiled_programs_give_recorded_extents_alone() -> None:
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    for changes in ({}, {"network.spikes": "dense"}, {"mapping.value_bytes": 2, "network.recurrence": "one_to_one"}):
        made = compile_workload(load_workload("digits", {"data.timesteps": 3, **changes}), machine, must_fit=False)
        tables = [table for step, _, _ in made.program.supersteps() for table in step.tables]
        assert all(isinstance(extent, RECORDED) for table in tables for extent in table.extents.values())
        assert any(table.codelet.extents for table in tables)


@pytest.mark.parametrize(("spikes", "among"), [("sparse", "FillReplicas"), ("dense", "FillStates")])
def test_sizes_are_those_of_the_boxes_that_the_planner_and_the_verifier_see(spikes: str, among: str) -> None:
    """Of two states a neuron: what is filled or moved of them is all of both."""
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    changes = {"data.timesteps": 3, "network.spikes": spikes, "network.neuron": "synaptic"}
    made = compile_workload(load_workload("digits", changes), machine, must_fit=False).program
    seen = set()
    for step, _, _ in made.supersteps():
        for table in step.tables:
            for name, extent in table.codelet.extents.items():
                if isinstance(extent, Size):
                    item = table.codelet.field(extent.field)
                    boxes = boxes_of(table, item, made.variables[table.operands[item.name]])
                    elements = (boxes[:, :, 1] - boxes[:, :, 0]).prod(axis=1)
                    found = extents_of(made, table)[name]
                    np.testing.assert_array_equal(found, -(-elements // extent.per))
                    seen.add(table.codelet.name)
    assert among in seen


def test_two_of_a_pair_and_the_odd_one() -> None:
    """A tile with three neurons loads two pairs of weights."""
    made = compiled(small_network((5, 3, 3)), options=MappingOptions(neurons_per_tile=3)).program
    table = next(t for step, _, _ in made.supersteps() for t in step.tables if t.codelet.name == "LifUpdate")
    found = extents_of(made, table)
    assert set(np.asarray(found["neurons"]).tolist()) == {3}
    assert set(np.asarray(found["pairs"]).tolist()) == {2}


def test_timesteps_before_the_last_cost_nothing_where_they_are_passed_over() -> None:
    assert COUNT_LAST.extents["timesteps"] == Length("ids", 0, after="first")
    assert CODELETS["CountSpikes"].extents["timesteps"] == Length("ids", 0)


def test_a_codelet_that_walks_another_axis_costs_other_cycles() -> None:
    made = compiled(small_network((7, 6, 5, 3))).program
    wrong = replace(LIF_UPDATE, extents={**LIF_UPDATE.extents, "neurons": Length("w", 0)})
    activity = RecordedActivity(
        ids={name: np.zeros(made.variables[held[0]].shape, np.int32) for name, held in made.recorded.items()},
        counts={name: np.zeros(made.variables[held[1]].shape, np.int32) for name, held in made.recorded.items()},
        dropped={},
    )
    names = [step.name for step, _, _ in made.supersteps()]
    right, other = (program_loads(each, activity, ISSUE) for each in (made, made.with_codelet("LifUpdate", wrong)))
    changed = {name for name, one, two in zip(names, right, other, strict=True) if one.cycles != two.cycles}
    assert changed == {"LIF update"}


# ---- recorded spikes: whose, of when, and which of them

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ids": ({}, {}),
    "a row of bytes": ({}, {"spike_exchange": "dense"}),
    "no delay": ({"delay": 0, "bias": True}, {}),
    "recurrence": ({"recurrence": "all_to_all"}, {}),
    "recurrence, rows, one to one": ({"recurrence": "one_to_one"}, {"spike_exchange": "dense"}),
    "states made anew": ({}, {"stash": "carry"}),
    "segments": ({"recurrence": "one_to_one"}, {"stash": "every:2"}),
    "from a drawn start": ({"truncation": "random"}, {}),
    "per batch, halves and short ids": ({}, {"state_gradient": "per_batch", "value_bytes": 2, "id_bytes": 2}),
}


@lru_cache(maxsize=2)
def made_for(kind: str) -> Program:
    network, options = KINDS[kind]
    given = small_network((9, 7, 6, 3), timesteps=4, batch=3, capacities=(4, 5, 3), **network)
    return compiled(given, tiles=48, options=MappingOptions(**options)).program


def otherwise(extent: Recorded, layers: tuple[str, ...]) -> Iterator[Recorded]:
    """An extent that counts spikes of another layer or timestep, other ones of them, or in another way."""
    for layer in layers:
        if layer != extent.layer:
            yield replace(extent, layer=layer)
    for shift in (extent.shift - 1, extent.shift + 1):
        yield replace(extent, shift=shift)
    if isinstance(extent, Hits):
        yield from (replace(extent, which=which) for which in ("spikes", "listed", "gradient") if which != extent.which)
    kind = RECORDED[RECORDED.index(type(extent)) - 1]
    yield kind(layer=extent.layer, shift=extent.shift)


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_recorded_extent_is_found_where_it_stands(kind: str) -> None:
    made = made_for(kind)
    assert verify(made, 48) == ()
    tried, seen = 0, set()
    for step, _, _ in made.supersteps():
        for table in step.tables:
            fresh = (table.codelet.name, step.phase) not in seen  # of every codelet the first table, whatever its layer
            seen.add((table.codelet.name, step.phase))
            for name, extent in table.extents.items() if fresh else ():
                assert isinstance(extent, RECORDED)
                for wrong in otherwise(extent, tuple(made.recorded)):
                    tried += 1
                    changed = _with_extent(made, step, table, name, wrong)
                    (problem,) = _problems(changed, step.name)
                    assert problem.rule == EXTENTS_FOLLOW
                    assert problem.codelet == table.codelet.name
                    assert f"counts in its extent '{name}'" in problem.message
    assert tried > 40


def test_the_message_says_whose_spikes_are_read() -> None:
    made = made_for("ids")
    step, table = _table_of(made, "LifUpdate", "hidden1")
    changed = _with_extent(made, step, table, "spikes", Spikes(layer="input"))
    (problem,) = verify(changed, 48)
    assert problem.superstep == step.name
    assert problem.message.endswith(
        "counts in its extent 'spikes' spikes of 'input' at t, but reads 'ids.hidden0.in', which holds those of "
        "'hidden0' at t-1"
    )
    step, table = _table_of(made, "ScanFlags", "hidden1")
    changed = _with_extent(made, step, table, "hits", replace(table.extents["hits"], layer="hidden0"))
    (problem,) = verify(changed, 48)
    assert "spikes of 'hidden0' at t, but what it writes becomes the list of 'hidden1' at t" in problem.message


def test_a_layer_that_nobody_records_is_told() -> None:
    made = made_for("ids")
    step, table = _table_of(made, "LifUpdate", "hidden1")
    (problem,) = verify(_with_extent(made, step, table, "spikes", Spikes(layer="hiden0", shift=-1)), 48)
    assert "'hiden0', which the program does not record; it records input, " in problem.message
    assert problem.message.endswith("did you mean 'hidden0'?")


def test_spikes_that_are_handed_on_from_elsewhere_are_told() -> None:
    """The extent stays as it was; what the vertex reads is now of another layer."""
    made = compiled(small_network((6, 6, 6, 3)), tiles=48).program

    def change(superstep: Superstep) -> Superstep:
        copies = tuple(
            replace(copy, source=copy.source.replace("hidden0", "hidden1")) if ".hidden0" in copy.source else copy
            for copy in superstep.copies
        )
        return replace(superstep, copies=copies) if superstep.stage == "hand on spikes" else superstep

    changed = made.map_supersteps(change)
    step, _ = _table_of(changed, "LifUpdate", "hidden1")
    (problem,) = check_extents(Scope(program=changed, superstep=step, tiles=changed.tiles))
    assert "spikes of 'hidden0' at t-1, but reads" in problem.message


def test_a_program_that_records_nothing_may_be_timed_with_any_recording() -> None:
    made = replace(made_for("ids"), recorded={})
    assert verify(made, 48) == ()


# ---- lists on their way through vertices written by hand


def passing(joined: str, extent: Recorded, dtype: str = "int32") -> list[Any]:
    """Problems of a vertex that counts `extent` where it reads what another one made of the lists of a and b at t.

    joined: "both", "a" alone, or "swapped": copies that change places every turn.
    """
    mapping = TileMapping.on(0, 0, 1)
    lists = [Field(name=name, access="read", box=("@t", "sample", ":")) for name in joined_of(joined)]
    made = Codelet(
        name="Join", fields=(*lists, Field(name="made", access="write", box=("sample", ":"))),
        columns=("sample",), compute=lambda *_: None, cost=cost(),
    )  # fmt: skip
    walk = Codelet(
        name="Walk", fields=(Field(name="list", access="read", box=("sample", ":")),), columns=("sample",),
        compute=lambda *_: None, cost=cost(Term(bundles=1, extents=("spikes",))), extents={"spikes": Lists(Spikes)},
    )  # fmt: skip
    row = {"sample": np.zeros(1, np.int64)}
    operands = {name: f"{name}.ids" for name in joined_of(joined)} | {"made": "made"}
    join = VertexTable(codelet=made, layer="", tiles=np.zeros(1, np.int64), operands=operands, columns=row)
    table = VertexTable(
        codelet=walk, layer="", tiles=np.zeros(1, np.int64), operands={"list": "made"}, columns=row,
        extents={"spikes": extent},
    )  # fmt: skip
    steps = tuple(
        Superstep(name=name, op="", phase="forward", stage=name, tables=(each,))
        for name, each in (("join", join), ("walk", table))
    )
    if joined == "swapped":
        swap = tuple(Copy(source=one, target=other) for one, other in (("made", "other"), ("other", "made")))
        steps = (Superstep(name="swap", op="", phase="forward", stage="swap", copies=swap), steps[1])
    sequences = {f"{name}.ids": ((3, 1, 4), "int32") for name in "abc"}
    program = Program(
        tiles=1, body=(Repeat(times=3, body=steps),), layers=(), inputs={}, outputs={},
        variables={
            name: Variable(name=name, shape=shape, dtype=kind, mapping=mapping, category="spike ids")
            for name, (shape, kind) in {**sequences, "made": ((1, 8), dtype), "other": ((1, 8), dtype)}.items()
        },
        recorded={name: (f"{name}.ids",) for name in "abc"},
    )  # fmt: skip
    return list(check_extents(Scope(program=program, superstep=steps[1], tiles=1)))


def joined_of(joined: str) -> tuple[str, ...]:
    return ("a", "b") if joined == "both" else ("a",)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_a_list_made_of_others_may_be_counted_as_any_of_them(dtype: str) -> None:
    assert passing("both", Spikes(layer="a"), dtype) == []
    assert passing("both", Spikes(layer="b"), dtype) == []
    (problem,) = passing("both", Spikes(layer="c"), dtype)
    assert "spikes of 'c' at t, but reads 'made', which holds those of 'a' at t and 'b' at t" in problem.message
    assert passing("both", Spikes(layer="a", shift=-1), dtype)
    assert passing("a", Spikes(layer="a"), dtype) == []
    assert passing("a", Spikes(layer="b"), dtype)


def test_what_cannot_be_followed_is_not_told() -> None:
    assert passing("both", Spikes(layer="c"), "float32") == []  # floats hold no list that could be followed
    assert passing("swapped", Spikes(layer="c")) == []


def _table_of(made: Program, name: str, layer: str) -> tuple[Superstep, VertexTable]:
    return next(
        (step, table)
        for step, _, _ in made.supersteps()
        for table in step.tables
        if (table.codelet.name, table.layer) == (name, layer)
    )


def _with_extent(made: Program, step: Superstep, table: VertexTable, name: str, extent: Recorded) -> Program:
    changed = replace(table, extents={**table.extents, name: extent})
    tables = tuple(changed if each is table else each for each in step.tables)
    return made.map_supersteps(lambda each: replace(step, tables=tables) if each is step else each)


def _problems(made: Program, name: str) -> list[Any]:
    """Of the supersteps of a name, by the rule alone."""
    return [
        problem
        for step, _, _ in made.supersteps()
        if step.name == name
        for problem in check_extents(Scope(program=made, superstep=step, tiles=made.tiles))
    ]


def test_loads_keep_no_activity_alive() -> None:
    made = compiled(small_network((30, 150, 70, 4), timesteps=5, batch=6, capacities=(20, 16, 4)), tiles=200)
    executor = Executor(made.program)
    executor.write(given_values(made.network, 5).for_program(made.network))
    executor.run()
    activity = executor.activity()
    loads = program_loads(made.program, activity, ISSUE)
    assert program_loads(made.program, activity, ISSUE) is loads
    assert program_loads(made.program, activity, replace(ISSUE, issue_cycles=4)) is not loads
    gone = ref(activity)
    del activity
    gc.collect()
    assert gone() is None
