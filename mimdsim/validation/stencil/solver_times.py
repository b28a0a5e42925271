"""Cycles and memory of one step of the published solvers and of the triad, with the interval that compilers leave."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from mimdsim.base.errors import MappingError, shortened
from mimdsim.compiler import measure_memory
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.profile import MemoryProfile
from mimdsim.program import Codelet, Program, RecordedActivity
from mimdsim.timing.critical_path import critical_path, loop_spans
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.uncertainty import uncertain_parts
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.validation.stencil.solver_program import solver_program
from mimdsim.validation.stencil.solvers import SOLVERS, Solver, codelet_of
from mimdsim.validation.stencil.triad import triad_codelet, triad_program, turn_bundles, turns_of

MACHINE = "mk2"
MOST_CHIPS = 64  # of the published programs
NOTHING = RecordedActivity(ids={}, counts={}, dropped={})


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Of one step: cycles, with every instruction a bundle as tile.compiled_dual_issue has it; low: what can share a
    bundle does; high: constants and row pointers are loaded again every turn; both widened by what else is doubted.
    turns: of the inner loop of the context that takes longest, each of `slots` bundles; link_cycles: part of cycles.
    """

    cycles: float
    low: float
    high: float
    link_cycles: float
    turns: int
    slots: float
    clock_hz: float
    request_seconds: float
    memory: MemoryProfile

    def slots_of(self, cycles: float, issue_cycles: int = 6) -> float:
        """Bundles a turn with which a step would take `cycles`."""
        return self.slots + (cycles - self.cycles) / (issue_cycles * self.turns)


@lru_cache(maxsize=256)
def solver_times(
    problem: str, order: int, vertex: str, grid: tuple[int, ...], chips: int, chip: MimdMachine | None = None
) -> Timed:
    """One step of the solver SOLVERS[problem, order, vertex] on `chips` chips, Mk2 unless another is described.

    Raises MappingError for a solver that is not there, for chips other than 1 to 64 and as `solver_program`.
    """
    solver, machine = _solver(problem, order, vertex), _machine(chips, chip)
    program = solver_program(solver, grid, machine, chips)
    loop, extent = (solver.loop, "cells") if solver.pairs is None else (solver.pairs, "pairs")
    table = next(table for step, _, _ in program.supersteps() for table in step.tables if "cells" in table.columns)
    turns, slots = int(table.columns[extent].max()), loop.term(extent).bundles
    return _timed(program, machine, codelet_of(solver, reloaded=True), solver.turning, turns, slots)


def solver_cycles(
    problem: str, order: int, vertex: str, grid: tuple[int, ...], chips: int, chip: MimdMachine, described: MimdMachine
) -> float:
    """Cycles of one step of the solver's program for `chip` on another description of it."""
    program = _made((problem, order, vertex), grid, chips, chip)
    return _cycles(program, _machine(chips, described)) / _solver(problem, order, vertex).turning


@lru_cache(maxsize=8)
def _made(named: tuple[str, int, str], grid: tuple[int, ...], chips: int, chip: MimdMachine) -> Program:
    return solver_program(_solver(*named), grid, _machine(chips, chip), chips)


def _solver(problem: str, order: int, vertex: str) -> Solver:
    solver = SOLVERS.get((problem, order, vertex))
    if solver is None:
        alike = [key for key in SOLVERS if key[0] == problem] or SOLVERS
        known = "; ".join(f"{name} of order {number}, {kind}" for name, number, kind in alike)
        given = f"{shortened(problem, 40)} of order {order}, {shortened(vertex, 40)}"
        raise MappingError(f"no program of {given}; known: {known}")
    return solver


@lru_cache(maxsize=64)
def triad_times(elements: int, assembly: bool, chip: MimdMachine | None = None) -> Timed:
    """One pass of the triad over `elements` of every context of one chip; raises MappingError for none."""
    machine, codelet = _machine(1, chip), triad_codelet(assembly=assembly)
    program = triad_program(machine, elements, assembly=assembly)
    return _timed(program, machine, codelet, 1, turns_of(elements, assembly), turn_bundles(assembly))


def _machine(chips: int, chip: MimdMachine | None) -> MimdMachine:
    if not 1 <= chips <= MOST_CHIPS:
        raise MappingError(f"{chips} chips; the published programs run on 1 to {MOST_CHIPS}")
    return changed_machine(chip or mk2(), {"links.chips": chips})


def mk2() -> MimdMachine:
    machine = load_machine(MACHINE)
    assert isinstance(machine, MimdMachine)
    return machine


def _timed(program: Program, machine: MimdMachine, slowest: Codelet, steps: int, turns: int, slots: float) -> Timed:
    """Not verified, as that takes memory for every cell: tests verify smaller grids."""
    paired = machine.model_copy(update={"tile": machine.tile.model_copy(update={"compiled_dual_issue": 1.0})})
    loads = program_loads(program, NOTHING, TileIssue.of(machine))
    path = critical_path(program, machine, loads)
    loops = sum(span.sync_cycles for span in loop_spans(program, machine))
    doubts = uncertain_parts(loads, path, loops, machine)
    aside = sum(doubt.half_width_cycles for doubt in doubts if doubt.name != f"codelet {slowest.name}")
    reloaded = program.with_codelet(slowest.name, slowest)
    return Timed(
        cycles=_cycles(program, machine) / steps,
        low=(_cycles(program, paired) - aside) / steps,
        high=(_cycles(reloaded, machine) + aside) / steps,
        link_cycles=sum(part.link for part in path) / steps,
        turns=turns,
        slots=slots,
        clock_hz=machine.chip.clock_hz,
        request_seconds=machine.host.request_seconds,
        memory=memory_profile(program, measure_memory(program, machine), machine),
    )


def _cycles(program: Program, machine: MimdMachine) -> int:
    path = critical_path(program, machine, program_loads(program, NOTHING, TileIssue.of(machine)))
    loops = sum(span.sync_cycles for span in loop_spans(program, machine))
    return loops + sum(part.compute + part.exchange + part.sync for part in path)
