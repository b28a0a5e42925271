"""What is done a part of the vertices, or some turns, at a time is as if done at once."""

from __future__ import annotations

import numpy as np
import pytest
from networks import ADAM, small_network

from mimdsim.compiler import compile_graph
from mimdsim.graph import training_graph
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import retime
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, exchange_traffic, vertex_boxes
from mimdsim.program.verify import verify
from mimdsim.timing import worker_cycles
from mimdsim.workload import MappingOptions, filled_activity

SPLIT = {"split": {"hidden0": {"batch": 2, "chips": 2, "neurons": 3}}}
CASES = {"sparse": ({}, 1), "sparse, on two chips": (SPLIT, 2), "dense": ({}, 1)}


def made(case: str) -> tuple[Program, TiledProfile]:
    options, chips = CASES[case]
    spikes = {"spikes": "dense"} if case == "dense" else {"capacities": (6, 5, 3), "optimiser": ADAM}
    network = small_network((9, 14, 12, 3), timesteps=4, batch=4, **spikes)
    machine = load_machine("bow", {"chip.tiles": 48, "chip.grid_columns": 8, "links.chips": chips})
    assert isinstance(machine, MimdMachine)
    mapping = MappingOptions.model_validate(options)
    compiled = compile_graph(training_graph(network), network, machine, mapping, must_fit=False)
    assert verify(compiled.program, compiled.program.tiles) == ()
    return compiled.program, retime(compiled, machine, filled_activity(network, 0.6))


@pytest.mark.parametrize("case", CASES)
def test_parts_and_turns_change_nothing(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    whole, profile = made(case)
    monkeypatch.setattr(vertex_boxes, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(exchange_traffic, "PIECES_AT_ONCE", 3)
    monkeypatch.setattr(worker_cycles, "CYCLES_AT_ONCE", 30)
    parted, same = made(case)
    assert same == profile
    for (one, *_), (other, *_) in zip(whole.supersteps(), parted.supersteps(), strict=True):
        assert (one.exchange is None) == (other.exchange is None)
        if one.exchange is None or other.exchange is None:
            continue
        assert np.array_equal(one.exchange.columns, other.exchange.columns)
        for left, right in zip(one.exchange.deliveries, other.exchange.deliveries, strict=True):
            assert left.variable == right.variable
            assert np.array_equal(left.tiles, right.tiles)
            assert np.array_equal(left.boxes, right.boxes)
