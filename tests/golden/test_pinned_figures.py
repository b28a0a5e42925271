"""Figures of small compiled programs, superstep by superstep, as they are: `pinned_figures.csv`.

No law says how many bytes the third superstep moves; but no such figure changes without being meant. After a change
that is meant, `python tests/golden/test_pinned_figures.py` writes the table anew; its difference says what changed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linear_networks import linear_network
from networks import ADAM, SGD, small_network
from pins import assert_as_pinned

from mimdsim.compiler import compile_graph
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.graph.losses import Loss
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.program import Variable, VertexTable
from mimdsim.timing import time_program
from mimdsim.workload import MappingOptions, filled_activity

TABLE = Path(__file__).resolve().parent / "pinned_figures.csv"
SIZES: dict[str, Any] = {"widths": (20, 24, 16, 4), "timesteps": 4, "batch": 6, "capacities": (8, 6, 4)}
COLUMNS = (  # noqa: SIM905
    "program superstep phase times compute exchange sync link busy bytes flops slowest exchange_tile tile_bytes "
    "tile_control fullest fullest_bytes lies"
).split()


def network(**changes: Any) -> SpikingNetwork:
    return small_network(**(SIZES | changes))


def silent_output(of: SpikingNetwork) -> SpikingNetwork:
    return replace(of, layers=(*of.layers[:-1], replace(of.layers[-1], spiking=False)))


SQUARED = Loss(kind="mean_squared_error", neurons_per_class=2, correct_rate=0.75)

Case = tuple[Callable[[], SpikingNetwork], dict[str, Any], dict[str, Any]]
CASES: dict[str, Case] = {
    "published": (lambda: network(), {"neurons_per_tile": 2}, {}),
    "per batch, adam": (
        lambda: network(optimiser=ADAM, reset_gradient="mask"),
        {"state_gradient": "per_batch", "weight_gradient_replicas": 2, "states_per_worker": 3},
        {"exchange.tiles_per_bus": 1, "sync.exchange_share": 0.1},
    ),
    "carry": (
        lambda: network(timesteps=5, batch=9, optimiser=replace(SGD, momentum=0.5)),
        {"stash": "carry", "selection_tiles": "last", "reduce_rule": "even"},
        {"exchange.model": "planner"},
    ),
    "segments": (
        lambda: network(timesteps=6, recurrence="one_to_one"),
        {"stash": "every:2", "neurons_per_tile": 4},
        {"exchange.model": "scheduled", "tile.worker_contexts": 4},
    ),
    "recurrent": (
        lambda: network(recurrence="all_to_all", bias=True, delay=0, loss=SQUARED),
        {"reserved_tiles": 2},
        {"tile.issue_cycles": 4},
    ),
    "two chips": (
        lambda: network(recurrence="all_to_all", largest_gradient_norm=1.0),
        {"neurons_per_tile": 2},
        {"links.chips": 2, "chip.tiles": 16},
    ),
    "three chips wait": (
        lambda: silent_output(network(timesteps=3, loss=Loss(reading="max", firing_strength=0.5, firing_target=0.1))),
        {"neurons_per_tile": 2},
        {"links.chips": 3, "chip.tiles": 12, "sync.scope": "all", "links.topology": "line"},
    ),
    "halves": (
        lambda: network(optimiser=ADAM),
        {"value_bytes": 2, "moment_bytes": 4, "id_bytes": 2, "spike_exchange": "dense"},
        {"tile.compiled_dual_issue": 0.5},
    ),
    "random truncation": (
        lambda: network(truncation="random", smooth=True, loss=Loss(reading="every")),
        {"reduce_exponent": 0.5},
        {"chip.tiles": 24},
    ),
    "linear": (
        lambda: linear_network("cuba_lif", "zero", timesteps=4, reset_gradient="full", recurrence="one_to_one"),
        {"neurons_per_tile": 2},
        {},
    ),
    "linear, subtracting": (
        lambda: linear_network("alpha", "subtract", timesteps=4, surrogate="arctan", reset_by="emission", bias=True),
        {"neurons_per_tile": 4},
        {"tile.vector_bytes": 16},
    ),
    "halves, carry": (
        lambda: network(
            optimiser=replace(SGD, momentum=0.5), recurrence="all_to_all", bias=True, reset_gradient="mask", delay=0
        ),
        {"stash": "carry", "value_bytes": 2, "id_bytes": 2, "state_gradient": "per_batch"},
        {"links.chips": 2, "chip.tiles": 40},
    ),
    "linear, carry, short ids": (
        lambda: linear_network("adaptive", "zero", timesteps=3, reset_gradient="full", reset_by="emission"),
        {"id_bytes": 2, "stash": "carry", "neurons_unit": 1},
        {"tile.compiled_dual_issue": 1.0},
    ),
    "four chips in a ring": (
        lambda: network(widths=(12, 8, 8, 4), timesteps=2, capacities=(6, 5, 4)),
        {"neurons_per_tile": 2, "spike_exchange": "dense"},
        {"links.chips": 4, "chip.tiles": 8, "links.topology": "ring"},
    ),
    "dense": (lambda: network(spikes="dense", recurrence="all_to_all", bias=True), {}, {}),
    "dense, traced": (lambda: network(spikes="dense", delay=0, bias=True), {"dense_neurons": "traced"}, {}),
    "dense, fused": (lambda: network(spikes="dense", optimiser=ADAM, delay=0), {"dense_neurons": "fused"}, {}),
}


def in_places(column: np.ndarray) -> int:
    """Every number times its place, so that none changes places unseen."""
    return int((column * (1 + np.arange(len(column)))).sum())


def weighted(table: VertexTable) -> int:
    """Of the tiles of all vertices and of what tells their boxes."""
    columns = [table.tiles, *(np.asarray(column, np.int64) for column in table.columns.values())]
    return sum((1 + number) * in_places(column) for number, column in enumerate(columns))


def held_in(variable: Variable) -> tuple[np.ndarray, ...]:
    return variable.mapping.tiles, variable.mapping.starts, variable.mapping.stops


def rows(name: str) -> list[dict[str, str]]:
    """A line per superstep and one of the whole program: its memory, what lies in it, and the other exchange model."""
    make, options, changes = CASES[name]
    machine = load_machine("tiny", {"chip.tiles": 64, **changes})
    assert isinstance(machine, MimdMachine)
    of = make()
    made = compile_graph(training_graph(of), of, machine, MappingOptions(**options))
    memory = memory_profile(made.program, made.memory, machine)
    profile = time_program(made.program, machine, filled_activity(of, 0.6), memory)
    steps = [superstep for superstep, _, _ in made.program.supersteps()]
    found: list[tuple[Any, ...]] = []
    for number, span in enumerate(profile.spans):
        at = memory.liveness[number] if number < len(memory.liveness) else None
        found.append(
            (
                name, span.name, span.phase, span.times, span.compute_cycles, span.exchange_cycles, span.sync_cycles,
                span.link_cycles, span.busy_cycles, span.bytes_received, span.flops, span.slowest_tile,
                span.exchange_tile, span.exchange_tile_bytes, span.exchange_tile_control_cycles,
                *((at.fullest_tile, at.fullest_tile_bytes) if at else ("", "")),
                sum(weighted(table) for table in steps[number].tables) if number < len(steps) else "",
            )
        )  # fmt: skip
    columns = profile.tile_columns
    found.append(
        (
            name, "whole program", "", profile.tiles_used, profile.compute_cycles, profile.exchange_cycles,
            profile.sync_cycles, profile.exchange_cycles_other_model, sum(columns.busy_cycles),
            sum(columns.bytes_sent), sum(columns.always_live_bytes), memory.peak_tile, memory.peak_bytes,
            sum(columns.peak_bytes), round(profile.energy.joules * 1e12) if profile.energy else "",
            round(profile.seconds_low * 1e9), round(profile.seconds_high * 1e9),
            sum(sum(map(in_places, held_in(each))) for each in made.program.variables.values()),
        )
    )  # fmt: skip
    return [dict(zip(COLUMNS, map(str, row), strict=True)) for row in found]


@cache
def pinned() -> dict[str, list[dict[str, str]]]:
    with TABLE.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    return {name: [row for row in table if row["program"] == name] for name in CASES}


@pytest.mark.first(5)
@pytest.mark.parametrize("name", CASES)
def test_figures_are_as_pinned(name: str) -> None:
    expected = pinned().get(name, [])
    assert_as_pinned(rows(name), expected, __file__)


def main() -> None:
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name in CASES:
            writer.writerows(rows(name))


if __name__ == "__main__":
    main()
