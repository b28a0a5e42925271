"""Placement reproduces what the authors' program printed, keeps its laws, and refuses what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import DoesNotFit
from mimdsim.compiler import Placement, place
from mimdsim.compiler.place.placement import selection_spread
from mimdsim.graph import SpikingNetwork
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.program import extents_of
from mimdsim.workload import MappingOptions, load_workload, network_of

GOLDEN = json.loads((Path(__file__).parents[2] / "references" / "tile_mapping_golden.json").read_text())
TILES, CONTEXTS = 1472, 6
# where the first hidden layer of the 2-hidden network is combined, one tile a sample (printed by the authors' program)
FIRST_COMBINE_TILES = [0, 13, 27, 40, 54, 68, 81, 95, 109, 122]


def golden_workload(golden: dict[str, Any]) -> str:
    return f"nmnist-{len(golden['dense']) - 2}"


def placed(name: str, tiles: int = TILES, **options: Any) -> Placement:
    return place(network_of(load_workload(name)), tiles, CONTEXTS, MappingOptions(**options))


def small_network(hidden: list[int], classes: int, batch: int, capacity: int) -> SpikingNetwork:
    changes = {
        "network.hidden": hidden,
        "network.capacity": [capacity] * (len(hidden) + 1),
        "data.classes": classes,
        "data.inputs": 20,
        "training.batch": batch,
    }
    return network_of(load_workload("nmnist-2-random", changes))


@pytest.mark.parametrize("golden", GOLDEN, ids=golden_workload)
def test_every_column_of_the_golden_mappings(golden: dict[str, Any]) -> None:
    name = golden_workload(golden)
    network = network_of(load_workload(name))
    placement = placed(name)
    layers = placement.layers
    reductions = list(placement.reductions.values())
    found = {
        "dense": [network.inputs, *(layer.neurons for layer in network.layers)],
        "start": [int(layer.tiles[0]) for layer in layers],
        "end": [int(layer.tiles[-1]) + 1 for layer in layers],
        "spread": [layer.spread for layer in layers],
        "workers": [layer.workers for layer in layers],
        "states_per_worker": [
            -(-width.neurons // layer.workers) for width, layer in zip(network.layers, layers, strict=True)
        ],
        "reduce_tiles": [reduction.tiles for reduction in reductions],
        "occupied": [layer.tiles.size for layer in layers[1:]],
        "exchange_group": [reduction.group_size for reduction in reductions],
        "num_groups": [reduction.groups for reduction in reductions],
    }
    assert found == golden
    assert placement.neurons_per_tile == 2
    names = [layer.name for layer in layers]
    assert list(placement.reductions) == list(zip(names[1:], names, strict=False))  # none for the network input


def test_the_compiled_scans_look_at_the_golden_number_of_states() -> None:
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    program = compile_workload(load_workload("nmnist-2"), machine).program
    states: dict[str, int] = {}
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            if table.codelet.name == "ScanFlags":
                column = extents_of(program, table)["states"]
                assert isinstance(column, np.ndarray)
                states[table.layer] = max(states.get(table.layer, 0), int(column.max()))
    assert list(states.values()) == GOLDEN[0]["states_per_worker"]


def test_combine_tiles_of_the_first_layer() -> None:
    tiles = placed("nmnist-2").layers[0].combine_tiles
    assert tiles[:10].tolist() == FIRST_COMBINE_TILES
    assert (len(tiles), tiles[-1]) == (48, 640)


@pytest.mark.parametrize(
    ("neurons", "spread"),
    [(1466, 4), (734, 2), (732, 2), (10, 1), (1, 1), (6 * 64, 1), (8 * 64, 2), (7 * 64, 1), (480, 1), (481, 2)],
)
def test_selection_spread(neurons: int, spread: int) -> None:
    assert selection_spread(neurons, CONTEXTS, 64) == spread


def test_more_neurons_a_tile_where_tiles_are_few() -> None:
    assert [placed("nmnist-2", tiles).neurons_per_tile for tiles in (1472, 1471, 738, 737, 66)] == [2, 4, 4, 6, 46]
    assert placed("nmnist-2", 1472, neurons_unit=1).neurons_per_tile == 2
    assert placed("nmnist-2", 4).neurons_per_tile == 1466


# ---- refusals


def test_fewer_tiles_than_layers_are_refused() -> None:
    with pytest.raises(DoesNotFit) as caught:
        placed("nmnist-2", 3)
    message = str(caught.value)
    assert "3 layers need at least one tile each, 2 tiles are usable" in message
    assert "chip.tiles" in message
    assert "network.hidden" in message


def test_asked_neurons_per_tile_that_need_too_many_tiles_are_refused() -> None:
    with pytest.raises(DoesNotFit) as caught:
        placed("nmnist-2", 1000, neurons_per_tile=2)
    message = str(caught.value)
    assert "with 2 neurons per tile the 3 layers need 1471 tiles, 999 are usable" in message
    assert "raise mapping.neurons_per_tile, or set it to 0" in message


def test_a_refusal_comes_through_the_whole_compilation() -> None:
    machine = load_machine("bow", {"chip.tiles": 1000})
    assert isinstance(machine, MimdMachine)
    with pytest.raises(DoesNotFit, match="1471 tiles, 999 are usable"):
        compile_workload(load_workload("nmnist-2", {"mapping.neurons_per_tile": 2}), machine)


def test_asked_neurons_per_tile_are_kept() -> None:
    assert placed("nmnist-2", neurons_per_tile=8).neurons_per_tile == 8
    assert placed("multi-neuron-8").neurons_per_tile == 8  # also what the smallest fit is


# ---- laws


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    classes=st.integers(1, 20),
    batch=st.integers(1, 50),
    capacity=st.integers(1, 12),
    tiles=st.integers(6, 400),
    contexts=st.integers(1, 8),
    reserved=st.integers(0, 1),
)
def test_laws(
    hidden: list[int], classes: int, batch: int, capacity: int, tiles: int, contexts: int, reserved: int
) -> None:
    network = small_network(hidden, classes, batch, capacity)
    placement = place(network, tiles, contexts, MappingOptions(reserved_tiles=reserved))
    used: set[int] = set()
    for width, layer in zip(network.layers, placement.layers, strict=True):
        here = set(layer.tiles.tolist())
        assert len(here) == layer.tiles.size
        assert not here & used  # no tile serves two layers
        used |= here
        # every neuron on exactly one tile, and no tile over the common number
        assert layer.starts[0] == 0
        assert layer.stops[-1] == width.neurons
        assert (layer.starts[1:] == layer.stops[:-1]).all()
        assert (layer.stops - layer.starts).min() >= 1
        assert (layer.stops - layer.starts).max() <= placement.neurons_per_tile
        assert layer.selection_tiles.shape == (batch, 2, layer.spread)
        assert 0 <= layer.selection_tiles.min() <= layer.selection_tiles.max() < tiles
        assert layer.spread <= layer.workers <= min(contexts * layer.spread, width.neurons)
    assert reserved <= min(used) <= max(used) < tiles
    assert reserved <= placement.sample_tiles.min() <= placement.sample_tiles.max() < tiles
    # no smaller multiple of the unit would do
    fewer = placement.neurons_per_tile - 2
    assert not fewer or sum(-(-layer.neurons // fewer) for layer in network.layers) > tiles - reserved
    for before, layer in zip(network.layers, placement.layers[1:], strict=False):
        reduction = placement.reductions[layer.name, before.name]
        vertices = reduction.groups * batch * before.capacity
        assert reduction.group_size * reduction.groups <= layer.tiles.size
        first = reduction.first_tiles[min(reduction.first_tiles)]
        assert first + (vertices - 1) // reduction.per_tile < tiles
        assert first >= reserved


def test_two_placements_are_the_same() -> None:
    first, second = placed("shd-3"), placed("shd-3")
    for one, other in zip(first.layers, second.layers, strict=True):
        np.testing.assert_array_equal(one.tiles, other.tiles)
        np.testing.assert_array_equal(one.selection_tiles, other.selection_tiles)


def test_reserving_every_tile_is_refused() -> None:
    with pytest.raises(DoesNotFit, match=r"mapping.reserved_tiles = 24 leaves none of the 24 tiles"):
        place(small_network([6, 5], 3, 3, 3), 24, 6, MappingOptions(reserved_tiles=24))
