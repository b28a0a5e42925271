"""The sums that a number of a machine changes are among those that its description says it enters."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import pytest
from networks import small_network

from mimdsim.compiler import Compiled, compile_graph
from mimdsim.graph import training_graph
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.machine.mimd import TiledMemory
from mimdsim.machine.numbers import described_values
from mimdsim.pipeline import retime
from mimdsim.profile.records import STATIC
from mimdsim.program import RecordedActivity
from mimdsim.workload import MappingOptions, Split, filled_activity

# sum -> words in descriptions that stand for it, or for what it is made of
WORDS = {
    "compute": ("compute",),
    "exchange": ("exchange", "hops"),
    "barriers": ("barriers", "loop control", "hops"),
    "memory": ("memory", "placement"),
    "host": ("host transfers",),
    "area": ("area",),
    "static power": ("static power", "area"),
    "full load": ("full load", "static power", "area"),
    "energy": ("energy", "compute", "power"),
}
OTHER = {  # than twice the number
    "sync.exchange_share": 0.1, "tile.compiled_dual_issue": 0.5, "power.clock_share": 0.6, "power.volts_hz": 1.9e9,
    "power.reference_volts": 0.8, "exchange.tiles_per_bus": 1, "links.chips": 3,
}  # fmt: skip
NUMBERS = [
    f"{row.section}.{row.key}"
    for row in described_values(load_machine("bow"))
    if isinstance(row.value, int | float) and row.section != "matrix"  # of dense products
]


MEMORY: dict[str, Any] = {
    "capacity_bytes": 1 << 30, "channels": 4, "bytes_per_cycle": 1.0, "latency_cycles": 9, "joules_per_byte": 1e-12,
}  # fmt: skip


@lru_cache(maxsize=2)
def base(behind: bool = False) -> tuple[MimdMachine, Compiled, RecordedActivity]:
    """Two chips, a mesh with hops: every number has something to do; behind: sequences lie behind the tiles."""
    changes = {
        "chip.tiles": 60, "chip.grid_columns": 6, "links.chips": 2, "sync.hop_cycles": 3, "exchange.hop_cycles": 3,
        "host.chips": 1,
    }  # fmt: skip
    machine = load_machine("bow", changes)
    assert isinstance(machine, MimdMachine)
    if behind:
        sources = dict.fromkeys(MEMORY, "assumed: for tests")
        machine = machine.model_copy(update={"memory": TiledMemory(**MEMORY, sources=sources)})
    network = small_network((24, 16, 16, 4), timesteps=3, batch=4, capacities=(8, 8, 4))
    split = {layer.name: Split(batch=2, neurons=4, replicas=2, chips=2) for layer in network.layers}
    options = MappingOptions(split=split, behind_tiles=("stash",) if behind else ())
    made = compile_graph(training_graph(network), network, machine, options)
    return machine, made, filled_activity(network, 0.5)


@cache
def sums(key: str = "", value: float = 0, behind: bool = False) -> dict[str, Any]:
    machine, made, activity = base(behind)
    profile = retime(made, changed_machine(machine, {key: value}) if key else machine, activity)
    silicon, energy = profile.silicon, profile.energy
    assert silicon is not None
    assert energy is not None
    return {
        "compute": profile.compute_cycles,
        "exchange": profile.exchange_cycles,
        "barriers": profile.sync_cycles,
        "memory": (profile.memory.peak_bytes, profile.memory.limit_bytes, profile.memory.fits),
        "host": profile.host_seconds,
        "area": silicon.area,
        "static power": silicon.static,
        "full load": silicon.full_load,
        "energy": [part.joules for part in energy.parts if part.name != STATIC],
    }


@pytest.mark.first(4)
@pytest.mark.parametrize("key", [*NUMBERS, *(f"memory.{key}" for key in MEMORY)])
def test_what_a_number_changes_is_what_it_enters(key: str) -> None:
    behind = key.startswith("memory.")
    machine = base(behind)[0]
    section, name = key.split(".")
    value = getattr(getattr(machine, section), name)
    (enters,) = (row.enters for row in described_values(machine) if (row.section, row.key) == (section, name))
    other = OTHER.get(key) or 2 * value or 1
    before, after = sums(behind=behind), sums(key, other, behind)
    changed = {each for each in before if before[each] != after[each]}
    unsaid = {each for each in changed if not any(word in enters for word in WORDS[each])}
    assert not unsaid, f"{key} changes {sorted(changed)}, but says that it enters {enters}"
