"""Merging: one superstep per stage for all layers, nothing lost, and nobody before what it waits for."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from networks import MAPPINGS, SMALL, networks

from mimdsim.compiler import place
from mimdsim.compiler.lower import lower
from mimdsim.compiler.merge import merge_supersteps, touched
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.machine import load_machine
from mimdsim.program import Program, Repeat, Superstep
from mimdsim.workload import MappingOptions, load_workload, network_of


def lowered(network: SpikingNetwork, options: MappingOptions, tiles: int = 1472, chips: int = 1) -> Program:
    machine = load_machine("bow", {"chip.tiles": tiles, "links.chips": chips})
    return lower(training_graph(network), network, place(network, tiles, 6, options, chips), options, machine)


@lru_cache(maxsize=4)
def published(name: str, state_gradient: str) -> tuple[Program, Program]:
    """A shipped workload before and after merging."""
    workload = load_workload(name, {"mapping.state_gradient": state_gradient})
    before = lowered(network_of(workload), workload.mapping)
    return before, merge_supersteps(before)


def stretches(program: Program) -> list[list[Superstep]]:
    """The bodies of repeats, and the runs of supersteps between them, also where there is none."""
    found: list[list[Superstep]] = [[]]
    for item in program.body:
        if isinstance(item, Repeat):
            found += [list(item.body), []]
        else:
            found[-1].append(item)
    return found


def parts_of(superstep: Superstep) -> list[int]:
    return [id(part) for part in (*superstep.tables, *superstep.copies)]


def assert_nothing_lost_and_order_kept(before: Program, after: Program) -> None:
    for given_steps, made in zip(stretches(before), stretches(after), strict=True):
        assert Counter(part for step in given_steps for part in parts_of(step)) == Counter(
            part for step in made for part in parts_of(step)
        )
        assert Counter(pair for step in given_steps for pair in step.defines) == Counter(
            pair for step in made for pair in step.defines
        )
        place_of = {part: index for index, step in enumerate(made) for part in parts_of(step)}
        where = [{place_of[part] for part in parts_of(step)} for step in given_steps]
        assert all(len(places) == 1 for places in where)  # a superstep is never torn
        seen = [touched(step) for step in given_steps]
        for later, (reads, writes) in enumerate(seen):
            for earlier in range(later):
                was_read, was_written = seen[earlier]
                if was_written & (reads | writes) or was_read & writes:
                    assert min(where[earlier]) < min(where[later]), (given_steps[earlier].name, given_steps[later].name)
        of_place: dict[int, list[Superstep]] = {}
        for step, places in zip(given_steps, where, strict=True):
            of_place.setdefault(min(places), []).append(step)
        for joined in of_place.values():  # only what may be merged was, and nothing of another stage or phase
            assert len({(step.stage, step.phase) for step in joined}) == 1
            assert len(joined) == 1 or all(step.mergeable for step in joined)


@pytest.mark.parametrize("state_gradient", ["tilewise", "per_batch"])
@pytest.mark.parametrize("name", ["nmnist-2", "nmnist-4"])
def test_every_stage_of_the_published_networks_is_one_superstep(name: str, state_gradient: str) -> None:
    before, after = published(name, state_gradient)
    assert_nothing_lost_and_order_kept(before, after)
    for stretch in stretches(after):
        times = Counter(step.stage for step in stretch if step.mergeable)
        assert all(count == 1 for count in times.values()), times
    bodies: list[Any] = [item.body for item in after.body if isinstance(item, Repeat)]
    layers = len(before.layers)
    forward, backward = ({step.stage: step for step in body if step.mergeable} for body in bodies)
    for stage in ("LIF update", "flag spikes", "combine tiles"):
        assert len(forward[stage].tables) == layers
    for stage in ("scan flags", "combine workers"):
        assert len(forward[stage].tables) == 2 * layers  # spikes and gradient entries
    assert len(forward["hand on spikes"].copies) == 2 * (layers - 1)  # ids and counts
    for stage in ("state gradient", "weight gradient"):
        assert len(backward[stage].tables) == layers
    assert len(backward["replicate ids"].copies) == 2 * layers
    for stage in ("input gradient", "reduce groups"):
        assert len(backward[stage].tables) == layers - 1


@pytest.mark.parametrize("examples", [8, 25])
def test_merging_loses_nothing_and_keeps_the_order(examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(network=networks(hidden=5), options=MAPPINGS)
    def law(network: SpikingNetwork, options: MappingOptions) -> None:
        before = lowered(network, options, tiles=40)
        assert_nothing_lost_and_order_kept(before, merge_supersteps(before))

    law()


def test_merging_twice_is_merging_once() -> None:
    _, once = published("nmnist-2", "tilewise")
    names = [[step.name for step in stretch] for stretch in stretches(once)]
    assert [[step.name for step in stretch] for stretch in stretches(merge_supersteps(once))] == names
