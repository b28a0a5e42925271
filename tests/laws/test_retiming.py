"""One program on many machines: which machines get the program that was compiled for another, and that everything kept
from machine to machine leaves every figure as it is when nothing was kept."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import ADAM, small_network

from mimdsim.base.errors import DescriptionError
from mimdsim.base.schema import Section
from mimdsim.compiler import Compiled, compile_graph
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.machine import MimdMachine, Reads, changed_machine, load_machine
from mimdsim.machine.mimd import MODELS
from mimdsim.pipeline import Programs, retime
from mimdsim.program import RecordedActivity
from mimdsim.workload import MappingOptions, filled_activity, load_workload

SPARSE = small_network((9, 14, 12, 3), timesteps=4, batch=4, capacities=(6, 5, 3), optimiser=ADAM)
CASES: dict[str, tuple[SpikingNetwork, MappingOptions, int]] = {
    "one chip": (SPARSE, MappingOptions(), 1),
    "copies on two chips": (
        SPARSE,
        MappingOptions.model_validate({"split": {"hidden0": {"batch": 2, "chips": 2, "neurons": 3}}}),
        2,
    ),
    "dense": (small_network((9, 14, 12, 3), timesteps=3, batch=4, spikes="dense"), MappingOptions(), 1),
}


@cache
def bow(chips: int) -> MimdMachine:
    machine = load_machine("bow", {"chip.tiles": 48, "chip.grid_columns": 8, "links.chips": chips})
    assert isinstance(machine, MimdMachine)
    return machine


def compiled(case: str, machine: MimdMachine) -> Compiled:
    network, options, _ = CASES[case]
    return compile_graph(training_graph(network), network, machine, options, must_fit=False)


@cache
def first_of(case: str) -> tuple[Compiled, RecordedActivity]:
    return compiled(case, bow(CASES[case][2])), filled_activity(CASES[case][0], 0.6)


ASKED: dict[
    str, set[str]
] = {  # by what makes trees over chips and splits products, beside the tiles and their contexts
    "one chip": set(),
    "copies on two chips": {"links.fixed_seconds", "links.bytes_per_second", "sync.external_cycles", "chip.clock_hz"},
    "dense": {"exchange.bytes_per_cycle", "tile.sram_bytes", "matrix.float_float_units"},
}
GROUP = 7  # so many programs are compiled, each for a machine with every seventh change


def fields_of(machine: MimdMachine) -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, annotation, value) of every field of every section that the machine has."""
    for name in type(machine).model_fields:
        section = getattr(machine, name)
        if isinstance(section, Section):
            for key, about in type(section).model_fields.items():
                if key not in ("sources", "codelets"):
                    yield f"{name}.{key}", about.annotation, getattr(section, key)


def others_of(annotation: Any, value: Any) -> list[Any]:
    """Values that a field may have instead: all other words, or a number below and some above."""
    words = [word for word in typing.get_args(annotation) if isinstance(word, str)]
    if value in MODELS:  # or a file of the user's
        words = list(MODELS)
    if words or isinstance(value, str):
        return [word for word in words or ["another"] if word != value]
    if isinstance(value, tuple):
        return [[1.1 * each for each in value]]
    number = 1 if value is None else value
    whole = isinstance(value, int)
    return [number // 2, number + 1, 2 * number] if whole else [0.5 * number, 1.25 * number or 1.0, 2.0 * number]


def changes_of(machine: MimdMachine) -> list[tuple[dict[str, Any], MimdMachine]]:
    """Every change of one field that makes a machine, with that machine."""
    found = []
    for key, annotation, value in fields_of(machine):
        made = []
        for other in others_of(annotation, value):
            try:
                made.append(({key: other}, changed_machine(machine, {key: other})))
            except DescriptionError:
                continue
        assert made, f"no other value of {key} is accepted"
        found += made
    return found


def test_a_changed_machine_is_the_one_that_is_loaded_with_the_changes() -> None:
    machine = load_machine("mk1")
    assert isinstance(machine, MimdMachine)
    for changes, changed in changes_of(machine):
        loaded = load_machine("mk1", changes)
        assert (loaded, loaded.model_fields_set) == (changed, changed.model_fields_set)


def same(one: Any, other: Any) -> bool:
    """Whether two records of compiled programs agree in every field, array and function, whatever their identity."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and same(list(one.values()), list(other.values()))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, FunctionType):
        return one.__code__ is other.__code__ and same(one.__closure__ or (), other.__closure__ or ())
    if type(one).__name__ == "cell":
        return same(one.cell_contents, other.cell_contents)
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    return bool(one == other)


@pytest.mark.parametrize("case", CASES)
def test_a_machine_that_answers_the_compiler_alike_gets_the_same_program(case: str) -> None:
    first, machine = first_of(case)[0], bow(CASES[case][2])
    needs_another: set[str] = set()
    alike: list[dict[str, Any]] = []
    for changes, changed in changes_of(machine):
        if first.on(changed) is None:
            needs_another |= set(changes)
        else:
            alike.append(changes)
    for begin in range(GROUP):
        changes = {key: value for each in alike[begin::GROUP] for key, value in each.items()}
        changed = changed_machine(machine, changes)
        kept, anew = first.on(changed), compiled(case, changed)
        assert kept is not None
        assert same(kept.program, anew.program), changes
        assert same(kept.memory, anew.memory), changes
    expected = {"chip.tiles", "tile.worker_contexts", "tile.issue_cycles", "links.chips", *ASKED[case]}
    assert needs_another == expected if case == "one chip" else needs_another >= expected


def test_a_watch_records_what_methods_copies_and_sections_ask() -> None:
    machine = bow(1)
    reads = Reads()
    watched = reads.watch(machine)
    assert watched.tile.working_contexts == 6  # counts as asked for itself
    assert watched.costs is None
    assert watched.barrier_cycles(all_chips=True) == machine.barrier_cycles(all_chips=True)
    narrow = watched.chip.model_copy(update={"tiles": 12, "grid": "torus"})
    assert narrow.hops(9, 9) == machine.chip.model_copy(update={"tiles": 12, "grid": "torus"}).hops(9, 9)
    assert watched.exchange.model_copy(update={"model": "routed"}).tiles_at_a_place == 1  # a copy's own answer
    asked = {key for key, value in reads.values.items() if value != "a section"}
    assert asked == {
        "tile.working_contexts", "costs", "sync.external_cycles", "sync.hop_cycles", "diameter", "chip.grid_columns",
        "exchange.tiles_per_router",
    }  # fmt: skip
    assert reads.same_on(changed_machine(machine, {"tile.issue_cycles": 7, "sync.internal_cycles": 3}))
    assert not reads.same_on(changed_machine(machine, {"tile.issue_cycles": 5}))
    assert not reads.same_on(machine.model_copy(update={"sync": None}))


NUMBERS: dict[str, list[Any]] = {
    "chip.clock_hz": [0.9e9, 1.33e9], "chip.grid_columns": [6], "chip.grid": ["torus"],
    "tile.worker_contexts": [4, 8], "tile.issue_cycles": [5, 9], "tile.vector_bytes": [4, 16],
    "tile.sram_bytes": [2e5], "tile.code_bytes": [100], "tile.copy_bytes_per_cycle": [3.5],
    "tile.compiled_dual_issue": [0.3], "exchange.model": ["planner", "scheduled"],
    "exchange.bytes_per_cycle": [2.5, 8], "exchange.tiles_per_bus": [1], "exchange.route_cycles": [7],
    "exchange.fixed_cycles": [11], "exchange.hop_cycles": [1.5], "exchange.send_fragment_cycles": [3.7],
    "exchange.receive_fragment_cycles": [0, 5.1], "exchange.fragment_code_bytes": [16],
    "exchange.arrange_fragment_bundles": [3.3], "sync.scope": ["all"], "sync.internal_cycles": [50],
    "sync.external_cycles": [999], "sync.hop_cycles": [0.7], "sync.exchange_share": [0.11], "sync.loop_cycles": [3],
    "host.bytes_per_second": [1e6], "host.prefetch_depth": [0], "links.topology": ["line"],
    "links.bytes_per_second": [1e9], "links.fixed_seconds": [3e-6], "links.hop_seconds": [1e-7],
    "energy.bundle_joules": [3e-11], "energy.static_watts": [80.0], "area.io_mm2": [33.0],
    "area.tile_transistors": [8e6], "power.voltage_follows": ["clock"], "power.clock_share": [0.2],
}  # fmt: skip
CHANGES = st.lists(st.sampled_from(sorted(NUMBERS)), unique=True, max_size=12).flatmap(
    lambda keys: st.fixed_dictionaries({key: st.sampled_from(NUMBERS[key]) for key in keys})
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=4, deadline=None, derandomize=True, database=None)
@given(changes=st.lists(CHANGES, min_size=2, max_size=5))
def test_what_is_kept_from_machine_to_machine_changes_no_figure(case: str, changes: list[dict[str, Any]]) -> None:
    first, activity = first_of(case)
    machines = [changed_machine(bow(CASES[case][2]), each) for each in changes]
    found = [retime(first, machine, activity) for machine in (*machines, machines[0])]
    assert found[-1] == found[0]
    for number, machine in enumerate(machines):
        alone = compiled(case, bow(CASES[case][2]))  # another program to every cache
        again = RecordedActivity(ids=activity.ids, counts=activity.counts, dropped={})
        assert found[number] == retime(alone, machine, again), changes[number]


def test_programs_are_compiled_once_and_few_are_kept() -> None:
    programs, machine = Programs(most=2), bow(1)
    workload = load_workload(
        "nmnist-2-random", {"data.inputs": 40, "network.hidden": [12], "data.timesteps": 3, "training.batch": 4}
    )
    first = programs.compiled(workload, machine)
    assert programs.compiled(workload, changed_machine(machine, {"chip.clock_hz": 1e9})) is first
    loud = workload.model_copy(update={"title": "another", "seed": 5})
    roomier = programs.compiled(loud, changed_machine(machine, {"tile.code_bytes": 30_000}))
    assert roomier.program is first.program
    assert roomier.memory.peak_bytes == first.memory.peak_bytes + 30_000 - machine.tile.code_bytes
    four = changed_machine(machine, {"tile.worker_contexts": 4})
    second = programs.compiled(workload, four)
    assert second.program is not first.program
    assert programs.compiled(workload, machine).program is first.program  # the last two
    narrower = workload.model_copy(update={"mapping": MappingOptions(neurons_unit=4)})
    assert programs.compiled(narrower, machine).program is not first.program
    assert programs.compiled(workload, four).program is not second.program  # made room


def test_memory_of_a_program_is_that_of_the_machine_it_is_timed_on() -> None:
    first, activity = first_of("one chip")
    more = changed_machine(bow(1), {"tile.code_bytes": 50_000, "exchange.fragment_code_bytes": 32})
    assert retime(first, more, activity).memory == retime(compiled("one chip", more), more, activity).memory
