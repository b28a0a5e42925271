"""Mappings to estimate and time: draws of what a search may try, and how far two orders agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.search import Aims, Case, estimate
from mimdsim.search.combined import LayerTable
from mimdsim.search.neighbours import random_step, seeds
from mimdsim.workload import MappingOptions, filled_activity, load_workload, network_of

SMALL: dict[str, dict[str, Any]] = {
    "digits": {"data.timesteps": 5, "training.batch": 12, "network.hidden": (48, 30)},
    "nmnist-2-random": {"data.timesteps": 5, "training.batch": 8, "network.hidden": (120, 100)},
}


def small_case(workload: str, tiles: int = 150, **more: Any) -> Case:
    """A network like that of a workload but smaller, with lists half full, on a chip of a few tiles."""
    loaded = load_workload(workload, SMALL[workload] | more)
    return case_of(loaded.name, load_machine("bow", {"chip.tiles": tiles}), SMALL[workload] | more)


def case_of(workload: str, machine: Any, changes: dict[str, Any] | None = None) -> Case:
    loaded = load_workload(workload, changes)
    network = network_of(loaded)
    assert isinstance(machine, MimdMachine)
    return Case.of(network, machine, filled_activity(network, 0.5), loaded.mapping)


def aims_of(case: Case, **more: Any) -> Aims:
    return replace(Aims.of(case.machine), **more)


def random_mappings(case: Case, count: int, seed: int = 3) -> list[MappingOptions]:
    """The published mapping, and seeds some random steps away."""
    draw = np.random.default_rng(seed)
    first, found = list(seeds(case)), [case.published]
    while len(found) < count:
        one = first[int(draw.integers(len(first)))]
        for _ in range(int(draw.integers(6))):
            one = random_step(one, case, draw)
        found.append(one)
    return found


def layer_table(case: Case, known: list[MappingOptions]) -> LayerTable:
    """What the layers of mappings cost: every layer split, all under the same rules."""
    return LayerTable([estimate(case, mapping) for mapping in known])


def combined_mappings(case: Case, table: LayerTable, count: int) -> tuple[list[MappingOptions], np.ndarray]:
    """(mappings made of layers of the table's on tiles that are there, what they cost as rows: cycles and bytes)."""
    draw = np.random.default_rng(5)
    picks = draw.integers(len(table.known), size=(50 * count, 1 + len(case.network.layers)))
    picks[:, 0] = picks[:, 1]
    cycles, peaks, _ = table.combined(picks)
    chosen = np.flatnonzero((table.of_layers(picks) <= case.room) & (np.diff(picks, axis=1) != 0).any(axis=1))[:count]
    return [table.mapping(pick) for pick in picks[chosen]], np.stack([cycles, peaks])[:, chosen]


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's; equal values in the order given."""
    ranks = []
    for values in (one, other):
        place = np.empty(len(values))
        place[np.argsort(values, kind="stable")] = np.arange(len(values))
        ranks.append(place)
    return float(np.corrcoef(*ranks)[0, 1])
