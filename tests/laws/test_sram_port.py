"""Tiles whose memory has a port: what they load and store takes at least as long as the port does."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from by_hand import tiny
from networks import compiled, given_values, small_network

from mimdsim.codelets.training import ADD_PARTS
from mimdsim.costs.core_costs import moving_codelet
from mimdsim.execution import Executor, execute_strictly, strict
from mimdsim.machine import MimdMachine
from mimdsim.pipeline import Run, retime, simulate
from mimdsim.program import TileFormula
from mimdsim.timing import explain
from mimdsim.workload import load_workload

NETWORK = small_network((6, 5, 3), timesteps=3, batch=3, capacities=(4, 3))
WIDTHS = (0.25, 1.0, 4.0, 16.0, 1e15)
TINY: dict[str, Any] = {
    "data.inputs": 20, "data.classes": 3, "data.timesteps": 2, "data.input_capacity": 6, "data.activity": 0.2,
    "data.train_samples": 8, "data.test_samples": 2, "network.hidden": [8], "network.capacity": [4, 3],
    "training.batch": 4, "training.max_training_steps": 1,
}  # fmt: skip


@cache
def run() -> Run:
    return simulate(load_workload("nmnist-2-random", TINY), tiny())


def with_port(width: float) -> MimdMachine:
    return tiny(tile_sram_port_bytes_per_cycle=width)


def test_a_wider_port_is_never_slower_and_none_is_one_without_limit() -> None:
    activity = run().log.activity
    found = [retime(run().compiled, with_port(width), activity) for width in WIDTHS]
    free = retime(run().compiled, tiny(), activity)
    for narrow, wide in zip(found, [*found[1:], free], strict=True):
        for one, other in zip(narrow.spans, wide.spans, strict=True):
            assert one.compute_cycles >= other.compute_cycles, one.name
            assert one.busy_cycles >= other.busy_cycles, one.name
    assert found[0].cycles > found[-1].cycles == free.cycles


@pytest.mark.parametrize("model", ["chip", "dataflow"])
def test_explanations_add_up_where_the_port_limits(model: str) -> None:
    machine, activity = tiny(tile_sram_port_bytes_per_cycle=0.5, sync_model=model), run().log.activity
    timed, rows = retime(run().compiled, machine, activity), []
    for number, span in enumerate(timed.spans):
        told = explain(run().compiled.program, machine, number, None, activity)
        assert (told.compute_cycles, told.sync_cycles) == (span.compute_cycles, span.sync_cycles), span.name
        rows += [row.what for row in told.compute]
    assert "memory port" in rows


def test_the_bytes_of_a_loop_by_hand() -> None:
    """Of a part a load; outside the loop half of the 11 bundles beyond the launch load."""
    (term,) = moving_codelet(ADD_PARTS).cost.terms  # type: ignore[union-attr]
    assert term.bundles == 4
    assert moving_codelet(ADD_PARTS).cost.fixed == 4 * (8 + 2 * 1.5) / 2  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(3))
def test_no_vertex_touches_more_bytes_than_its_instructions_move(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strict run sees what each vertex must load and store; costs that data decides are not compared there."""
    made, seen = compiled(NETWORK), []

    def compare(declared: float, loaded: int, stored: int, _vector_bytes: int) -> str:
        seen.append(declared)
        return "" if declared >= loaded + stored else f"moves {loaded} and {stored} bytes, not {declared:g}"

    monkeypatch.setattr(strict, "cost_shortfall", compare)
    executor = Executor(made.program.map_codelets(moving_codelet))
    executor.write(given_values(NETWORK, seed).for_program(NETWORK))
    execute_strictly(executor)
    assert len(seen) > 100
    costs = {table.codelet.cost for step, _, _ in made.program.supersteps() for table in step.tables}
    assert any(isinstance(cost, TileFormula) for cost in costs)
    assert np.isfinite(seen).all()
