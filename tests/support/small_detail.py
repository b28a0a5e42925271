"""The columns of single tiles of a small run on a part of a bow."""

from __future__ import annotations

from functools import cache
from typing import Any

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, detail_of, retime
from mimdsim.profile import TiledProfile
from mimdsim.profile.detail import Detail
from mimdsim.program import Program
from mimdsim.workload import filled_activity, load_workload

SMALL = {"data.timesteps": 6, "training.batch": 8}


@cache
def made(chips: int = 1, window: range = range(10)) -> tuple[TiledProfile, Detail]:
    machine = load_machine("bow", {"chip.tiles": 48, "links.chips": chips})
    compiled = compile_workload(load_workload("digits", SMALL), machine, must_fit=False)
    activity = filled_activity(compiled.network, 0.5)
    detail = detail_of(compiled.program, machine, activity, compiled.memory, "a run", window)
    return retime(compiled, machine, activity), detail


@cache
def with_links(chips: int = 1, **changes: Any) -> tuple[Program, MimdMachine, Detail]:
    """The same on routers: of a mesh, unless changes say otherwise."""
    machine = load_machine("bow-mesh", {"chip.tiles": 48, "chip.grid_columns": 8, "links.chips": chips} | changes)
    assert isinstance(machine, MimdMachine)
    compiled = compile_workload(load_workload("digits", SMALL), machine, must_fit=False)
    activity = filled_activity(compiled.network, 0.5)
    detail = detail_of(compiled.program, machine, activity, compiled.memory, "a run")
    return compiled.program, machine, detail
