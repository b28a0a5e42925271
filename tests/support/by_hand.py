"""What tests of programs by hand share: run one plainly and strictly, and time it."""

from __future__ import annotations

import numpy as np

from mimdsim.compiler import measure_memory
from mimdsim.execution import Executor, execute_strictly
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, RecordedActivity, verify
from mimdsim.timing import time_program


def tiny(**changes: object) -> MimdMachine:
    """The tiny machine, `chip_tiles=4` for chip.tiles."""
    machine = load_machine("tiny", {name.replace("_", ".", 1): value for name, value in changes.items()})
    assert isinstance(machine, MimdMachine)
    return machine


def outcome(program: Program, inputs: dict[str, np.ndarray], *, strictly: bool = True) -> dict[str, np.ndarray]:
    """Outputs by name, of a program that keeps the rules; equal when every vertex runs alone on poisoned memory."""
    problems = verify(program, program.tiles)
    assert not problems, problems[0].message
    found = []
    for strict in (False, True)[: 1 + strictly]:
        executor = Executor(program)
        executor.write(inputs)
        execute_strictly(executor) if strict else executor.run()
        found.append({name: executor.read(name) for name in program.outputs})
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[-1][name])
    return found[0]


NOTHING = RecordedActivity(ids={}, counts={}, dropped={})


def timed(program: Program, machine: MimdMachine, activity: RecordedActivity = NOTHING) -> TiledProfile:
    memory = memory_profile(program, measure_memory(program, machine), machine)
    return time_program(program, machine, activity, memory)


def compute_cycles(program: Program, machine: MimdMachine) -> list[int]:
    """By superstep."""
    return [span.compute_cycles for span in timed(program, machine).spans]
