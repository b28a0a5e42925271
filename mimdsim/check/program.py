"""Check a program: the rules of the machine, memory, and every value against the graph's plain meaning.

Values are compared after each superstep, so that the first wrong one names its vertex: with the compiled program run
beside it where both have the same superstep and variable, and with the interpreter where a superstep says which graph
value it has completed. Weights are multiples of 2^-14: sums of binary spikes times weights are then exact in float32
in any order, and spikes must agree bit for bit.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MappingError, MimdsimError, raised_at
from mimdsim.base.units import show_bytes
from mimdsim.check.lockstep import RELATIVE_TOLERANCE, Trace, dyadic_inputs, first_difference, graph_inputs
from mimdsim.compiler import Compiled, fits_executable, measure_memory, plan_exchanges
from mimdsim.functional import Executor, execute_strictly
from mimdsim.graph import SpikingNetwork, interpret
from mimdsim.machine import MimdMachine
from mimdsim.profile import ratio_of
from mimdsim.program import Program, verify
from mimdsim.run import compile_workload, retime
from mimdsim.workload import Workload, load_workload


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result of a check: what was looked at, whether it holds, and in words what was found."""

    name: str
    passed: bool
    text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What a user's `build(subject)` gets: the compiled program to change, and everything it was made from."""

    program: Program
    compiled: Compiled
    network: SpikingNetwork
    machine: MimdMachine


def shrunk(name: str, changes: dict[str, Any], timesteps: int, batch: int) -> Workload:
    """The workload with at most `timesteps` and `batch`, so that the interpreter can follow; 0 keeps them."""
    workload = load_workload(name, changes)
    smaller = dict(changes)
    if timesteps:
        smaller["data.timesteps"] = min(timesteps, workload.data.timesteps)
    if batch:
        smaller["training.batch"] = min(batch, workload.training.batch)
    return load_workload(name, smaller)


def check_program(
    workload: Workload,
    whole: Workload,
    machine: MimdMachine,
    build: Callable[[Subject], Program] | None = None,
    *,
    strict: bool = False,
) -> list[Finding]:
    """All findings for the compiled program of `workload`, or for the one that `build` makes.

    `whole` is the same workload in full length and batch: its memory is what must fit.
    """
    compiled, program = _built(workload, machine, build)
    findings = [_rules(program, machine), _memory(_built(whole, machine, build)[1], machine)]
    if not findings[0].passed:
        skipped = "not run: mend the rules first"
        return [*findings, Finding(name="values", passed=False, text=skipped)]
    return findings + check_values(program, compiled, machine, strict=strict)


def _built(
    workload: Workload, machine: MimdMachine, build: Callable[[Subject], Program] | None
) -> tuple[Compiled, Program]:
    """The compiled workload, and its program or the one the user makes of it."""
    compiled = compile_workload(workload, machine, must_fit=False)
    if build is None:
        return compiled, compiled.program
    subject = Subject(program=compiled.program, compiled=compiled, network=compiled.network, machine=machine)
    try:
        program = build(subject)
    except MimdsimError:
        raise
    except (Exception, SystemExit) as failure:
        file = build.__code__.co_filename if isinstance(build, FunctionType) else ""
        said = f"raised {type(failure).__name__}: {failure} ({raised_at(failure, file)})"
        raise DescriptionError("build(subject)", [said]) from None
    if not isinstance(program, Program):
        raise DescriptionError("build(subject)", [f"must return a Program, returned {type(program).__name__}"])
    if any(step.exchange is None for step, _, _ in program.supersteps()):
        program = _with_missing_exchanges(program)
    return compiled, program


def _with_missing_exchanges(program: Program) -> Program:
    """Exchanges planned only for supersteps that come without one."""
    planned = plan_exchanges(program)
    new = {id(old): step for (old, _, _), (step, _, _) in zip(program.supersteps(), planned.supersteps(), strict=True)}
    return program.map_supersteps(lambda step: step if step.exchange is not None else new[id(step)])


def _rules(program: Program, machine: MimdMachine) -> Finding:
    if program.chips > machine.links.chips or program.tiles_per_chip > machine.chip.tiles:
        text = (
            f"the program is placed on {program.chips} chip(s) of {program.tiles_per_chip} tiles, {machine.name} has "
            f"{machine.links.chips} of {machine.chip.tiles}: build it for this machine"
        )
        return Finding(name="rules", passed=False, text=text)
    problems = verify(program, machine.chip.tiles if program.chips == 1 else program.tiles)
    vertices = sum(table.vertices for step, _, _ in program.supersteps() for table in step.tables)
    if problems:
        return Finding(name="rules", passed=False, text="\n".join(problem.message for problem in problems[:5]))
    steps = sum(1 for _ in program.supersteps())
    text = f"{vertices:,} vertices in {steps} supersteps: reads local or delivered, writes local and once"
    return Finding(name="rules", passed=True, text=text)


def _memory(program: Program, machine: MimdMachine) -> Finding:
    memory = measure_memory(program, machine)
    limit = machine.tile.sram_bytes
    text = f"fullest tile {memory.peak_tile} needs {show_bytes(memory.peak_bytes)} of {show_bytes(limit)}"
    if memory.peak_bytes > limit:
        text += f"; over by {show_bytes(memory.peak_bytes - limit)}"
        for name, size in memory.largest(memory.peak_tile, 1):  # none where it only receives
            text += f", largest: {name} with {show_bytes(size)}"
    code = memory.code + memory.vertices
    fullest, region = int(code.argmax()), machine.tile.executable_bytes
    if not fits_executable(memory, machine):
        text += (
            f"; code and vertex state of tile {fullest} take {show_bytes(int(code[fullest]))}, the executable region "
            f"has {show_bytes(region)}"
        )
    return Finding(name="memory", passed=memory.peak_bytes <= limit and fits_executable(memory, machine), text=text)


def check_values(program: Program, compiled: Compiled, machine: MimdMachine, *, strict: bool = False) -> list[Finding]:
    """Run the program, the compiled one and the interpreter on the same values; compare spikes, states, gradients."""
    inputs = dyadic_inputs(compiled.network)
    trace = Trace({value for step, _, _ in program.supersteps() for _, value in step.defines})
    meaning = interpret(compiled.graph, graph_inputs(compiled.graph, inputs), trace)
    subject, reference = Executor(program), Executor(compiled.program)
    for executor in (subject, reference):
        executor.write({name: value for name, value in inputs.items() if name in executor.program.inputs})
    compared = [0]
    try:
        text = first_difference(subject, reference, trace, meaning, compared)
        if text is None and strict:
            alone = Executor(program)
            alone.write({name: value for name, value in inputs.items() if name in program.inputs})
            execute_strictly(alone)
    except MappingError as failure:
        text = str(failure)
    if text is None and not compared[0]:
        text = "nothing was compared: no superstep has a name or a `defines` entry that the compiled program knows"
    if text is not None:
        return [Finding(name="values", passed=False, text=text)]
    agreed = f"{compared[0]:,} variables agree, superstep by superstep, with the interpreter and the compiled program"
    agreed += ", also strictly, vertex by vertex" if strict else ""
    values = Finding(name="values", passed=True, text=agreed)
    return [values, _gradients(program, subject, compiled, meaning), _time(program, compiled, machine, reference)]


def _gradients(program: Program, subject: Executor, compiled: Compiled, meaning: dict[str, Any]) -> Finding:
    """Gradients against the interpreter's: largest relative error and cosine per layer, and per other parameter."""
    names = compiled.graph.outputs[2 : 2 + len(compiled.network.parameters)]
    parts, passed = [], True
    for parameter, name in zip(compiled.network.parameters, names, strict=True):
        what = parameter.removeprefix("w.")
        if name not in program.outputs:
            parts.append(f"{what}: not an output of the program")
            passed = False
            continue
        held, expected = subject.read(name).astype(np.float64), np.asarray(meaning[name], np.float64)
        error = float(np.abs(held - expected).max() / (np.abs(expected).max() or 1.0))
        norm = float(np.linalg.norm(held) * np.linalg.norm(expected))
        cosine = f"{(held * expected).sum() / norm:.7f}" if norm else "undefined (a gradient is all zero)"
        passed &= error <= RELATIVE_TOLERANCE
        parts.append(f"{what}: relative error {error:.1e}, cosine {cosine}")
    return Finding(name="gradients", passed=passed, text="; ".join(parts))


def _time(program: Program, compiled: Compiled, machine: MimdMachine, reference: Executor) -> Finding:
    """What the program takes beside the compiled one, with the spikes of this check; never a reason to fail."""
    activity = reference.activity()
    ours = retime(replace(compiled, program=program), machine, activity)
    text = (
        f"{ours.cycles:,} cycles ({1e3 * ours.seconds_per_training_step:.3g} ms) a training step of "
        f"{compiled.network.timesteps} timesteps and batch {compiled.network.batch}"
    )
    if program is not compiled.program:
        theirs = retime(compiled, machine, activity)
        times = ratio_of(ours, theirs)
        change, low, high = (f"{end - 1:+.2%}" for end in (times.middle, times.low, times.high))
        text += f", the compiled program takes {theirs.cycles:,} ({change}, interval {low} to {high})"
    return Finding(name="time", passed=True, text=text)


def load_build(path: Path) -> Callable[[Subject], Program]:
    """`build` from a user's Python file. The file is run: check only files you trust."""
    if not path.is_file() or path.suffix != ".py":
        raise DescriptionError(
            str(path), ["no such Python file (.py); --program takes one that defines build(subject)"]
        )
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module: ModuleType = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as failure:
        raise DescriptionError(str(path), [f"cannot be imported: {type(failure).__name__}: {failure}"]) from None
    build = getattr(module, "build", None)
    if not callable(build):
        raise DescriptionError(str(path), ["defines no function build(subject) that returns a Program"])
    found: Callable[[Subject], Program] = build
    return found
