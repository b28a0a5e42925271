"""Check a program: the rules of the machine, memory, and every value against the graph's plain meaning.

Values are compared after each superstep, so that the first wrong one names its vertex: with the compiled program run
beside it where both have the same superstep and variable, and with the interpreter where a superstep says which graph
value it has completed. Weights are multiples of 2^-14: sums of binary spikes times weights are then exact in float32
in any order, and spikes must agree bit for bit.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.base.rng import stream
from mimdsim.base.units import show_bytes
from mimdsim.compiler import Compiled, measure_memory, plan_exchanges
from mimdsim.functional import Executor, execute_strictly, initial_weights
from mimdsim.graph import Graph, SparseSpikes, SpikingNetwork, interpret
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Superstep, VertexTable, verify
from mimdsim.program.rows import boxes_of, describe_box
from mimdsim.program.verify import vertex_name
from mimdsim.run import compile_workload
from mimdsim.workload import Workload, load_workload

RELATIVE_TOLERANCE = 1e-5
DYADIC = 2.0**14


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


@dataclass
class _Trace:
    """Values of the interpreter, by (graph value, timestep)."""

    wanted: set[str]
    values: dict[tuple[str, int], Any] = field(default_factory=dict)

    def __call__(self, name: str, t: int, value: Any) -> None:
        if isinstance(value, SparseSpikes):
            if f"{name}.ids" in self.wanted:
                self.values[f"{name}.ids", t] = value.ids.copy()
                self.values[f"{name}.counts", t] = value.counts.copy()
        elif name in self.wanted:
            self.values[name, t] = value


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
    workload: Workload, machine: MimdMachine, build: Callable[[Subject], Program] | None = None, *, strict: bool = False
) -> list[Finding]:
    """All findings for the compiled program of `workload`, or for the one that `build` makes."""
    compiled = compile_workload(workload, machine, must_fit=False)
    program = compiled.program
    if build is not None:
        program = build(Subject(program=program, compiled=compiled, network=compiled.network, machine=machine))
        if not isinstance(program, Program):
            raise DescriptionError("build(subject)", [f"must return a Program, returned {type(program).__name__}"])
        if any(step.exchange is None for step, _, _ in program.supersteps()):
            program = _with_missing_exchanges(program)
    findings = [_rules(program, machine), _memory(program, machine)]
    if not findings[0].passed:
        skipped = "not run: mend the rules first"
        return [*findings, Finding(name="values", passed=False, text=skipped)]
    return findings + check_values(program, compiled, strict=strict)


def _with_missing_exchanges(program: Program) -> Program:
    """Exchanges planned only for supersteps that come without one."""
    planned = plan_exchanges(program)
    new = {id(old): step for (old, _, _), (step, _, _) in zip(program.supersteps(), planned.supersteps(), strict=True)}
    return program.map_supersteps(lambda step: step if step.exchange is not None else new[id(step)])


def _rules(program: Program, machine: MimdMachine) -> Finding:
    problems = verify(program, machine.chip.tiles)
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
        name, size = memory.largest(memory.peak_tile, 1)[0]
        text += f"; over by {show_bytes(memory.peak_bytes - limit)}, largest: {name} with {show_bytes(size)}"
    return Finding(name="memory", passed=memory.peak_bytes <= limit, text=text)


def check_values(program: Program, compiled: Compiled, *, strict: bool = False) -> list[Finding]:
    """Run the program, the compiled one and the interpreter on the same values; compare spikes, states, gradients."""
    inputs = dyadic_inputs(compiled.network)
    trace = _Trace({value for step, _, _ in program.supersteps() for _, value in step.defines})
    meaning = interpret(compiled.graph, graph_inputs(compiled.graph, inputs), trace)
    subject, reference = Executor(program), Executor(compiled.program)
    for executor in (subject, reference):
        executor.write({name: value for name, value in inputs.items() if name in executor.program.inputs})
    try:
        text = _lockstep(subject, reference, trace, meaning)
        if text is None and strict:
            alone = Executor(program)
            alone.write({name: value for name, value in inputs.items() if name in program.inputs})
            execute_strictly(alone)
    except MappingError as failure:
        text = str(failure)
    if text is not None:
        return [Finding(name="values", passed=False, text=text)]
    agreed = "every superstep agrees with the interpreter" + (", also strictly, vertex by vertex" if strict else "")
    return [Finding(name="values", passed=True, text=agreed), _gradients(program, subject, compiled, meaning)]


def dyadic_inputs(network: SpikingNetwork, seed: int = 0) -> dict[str, np.ndarray]:
    """Random spikes and labels, and weights that are multiples of 2^-14, for one training step."""
    draw = stream(seed, "check")
    lists = (network.timesteps, network.batch)
    counts = draw.integers(0, network.input_capacity + 1, lists).astype(np.int32)
    ids = np.zeros((*lists, network.input_capacity), np.int32)
    for where in np.ndindex(*lists):
        count = min(int(counts[where]), network.inputs)
        counts[where] = count
        ids[where][:count] = np.sort(draw.choice(network.inputs, count, replace=False))
    values: dict[str, np.ndarray] = {
        "input.ids": ids,
        "input.counts": np.stack([counts, counts], axis=-1),
        "labels": draw.integers(0, network.classes, network.batch).astype(np.int32),
        "training_step": np.array([1]),
    }
    for name, weights in initial_weights(network, seed, 4.0, 0.02).items():
        values[name] = (np.round(weights * DYADIC) / DYADIC).astype(np.float32)
    return values


def graph_inputs(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same values as inputs of the graph; optimiser moments start at zero."""
    given: dict[str, Any] = {"input": SparseSpikes(ids=inputs["input.ids"], counts=inputs["input.counts"])}
    for name in graph.inputs:
        if name == "training_step":
            given[name] = 1
        elif name in inputs:
            given[name] = inputs[name]
        elif name != "input":
            given[name] = np.zeros(graph.value(name).shape, np.float32)
    return given


def _lockstep(subject: Executor, reference: Executor, trace: _Trace, meaning: dict[str, Any]) -> str | None:
    """The first difference in words, or None. Both programs advance superstep by superstep."""
    theirs = reference.steps()
    same = [step.name for step, _, _ in subject.program.supersteps()] == [
        step.name for step, _, _ in reference.program.supersteps()
    ]
    for superstep, t in subject.steps():
        if same:
            next(theirs)
            for table in superstep.tables:
                for item in table.codelet.fields:
                    name = table.operands[item.name]
                    if item.writes and name in reference.arrays:
                        wrong = _difference(subject, superstep, name, reference.arrays[name], t)
                        if wrong:
                            return f"{wrong} (the compiled program's value)"
        for variable, value in superstep.defines:
            expected = trace.values.get((value, t), _whole(meaning, value))
            if expected is not None:
                held = subject.arrays[variable]
                wrong = _difference(subject, superstep, variable, _valid(held, expected, trace, value, t), t)
                if wrong:
                    return f"{wrong} (the interpreter's '{value}')"
    return None


def _whole(meaning: dict[str, Any], value: str) -> np.ndarray | None:
    """A value of the outer graph; scalars are compared elsewhere."""
    found = meaning.get(value)
    return found if isinstance(found, np.ndarray) and found.shape else None


def _valid(held: np.ndarray, expected: np.ndarray, trace: _Trace, value: str, t: int) -> np.ndarray:
    """`expected` with what nobody may read (ids and gradients beyond the listed count) taken from `held`."""
    counts = None
    if value.endswith(".ids"):
        counts = trace.values.get((value.removesuffix(".ids") + ".counts", t))
    elif value.endswith(".d_input"):
        return np.where(expected == 0, held, expected)
    if counts is None:
        return expected
    listed = np.arange(expected.shape[1]) < counts[:, 1:]
    return np.where(listed, expected, held)


def _difference(executor: Executor, superstep: Superstep, variable: str, expected: np.ndarray, t: int) -> str | None:
    held = executor.arrays[variable]
    if held.shape != expected.shape:
        return None
    if held.dtype.kind == "f":
        scale = float(np.max(np.abs(expected), initial=0.0)) or 1.0
        wrong = ~(np.abs(held - expected) <= RELATIVE_TOLERANCE * scale)
    else:
        wrong = held != expected
    if not wrong.any():
        return None
    where = tuple(int(index) for index in np.argwhere(wrong)[0])
    vertex = _writer(executor, superstep, variable, where, t)
    box = describe_box(variable, np.array([[index, index + 1] for index in where]))
    return (
        f"superstep '{superstep.name}', timestep {t}: {vertex} leaves {box} = {held[where]:.7g}, "
        f"should be {expected[where]:.7g}; {int(wrong.sum()):,} of {wrong.size:,} elements are wrong"
    )


def _writer(executor: Executor, superstep: Superstep, variable: str, where: tuple[int, ...], t: int) -> str:
    """The vertex of the superstep that writes an element."""
    for table in superstep.tables:
        found = _row_writing(executor, table, variable, where, t)
        if found is not None:
            return vertex_name(table, found)
    return "no vertex of it (a copy, or an element nobody writes)"


def _row_writing(executor: Executor, table: VertexTable, variable: str, where: tuple[int, ...], t: int) -> int | None:
    for item in table.codelet.fields:
        if not item.writes or table.operands[item.name] != variable:
            continue
        boxes = boxes_of(table, item, executor.program.variables[variable])
        element = np.array(where[len(where) - boxes.shape[1] :])
        rows = np.flatnonzero(((boxes[:, :, 0] <= element) & (element < boxes[:, :, 1])).all(axis=1))
        if len(rows):
            return int(rows[0])
    return None


def _gradients(program: Program, subject: Executor, compiled: Compiled, meaning: dict[str, Any]) -> Finding:
    """Weight gradients against the interpreter's: largest relative error and cosine per layer."""
    names = compiled.graph.outputs[2 : 2 + len(compiled.network.layers)]
    parts, passed = [], True
    for layer, name in zip(compiled.network.layers, names, strict=True):
        if name not in program.outputs:
            parts.append(f"{layer.name}: not an output of the program")
            passed = False
            continue
        held, expected = subject.read(name).astype(np.float64), np.asarray(meaning[name], np.float64)
        error = float(np.abs(held - expected).max() / (np.abs(expected).max() or 1.0))
        norm = float(np.linalg.norm(held) * np.linalg.norm(expected))
        cosine = float((held * expected).sum() / norm) if norm else 1.0
        passed &= error <= RELATIVE_TOLERANCE
        parts.append(f"{layer.name}: relative error {error:.1e}, cosine {cosine:.7f}")
    return Finding(name="gradients", passed=passed, text="; ".join(parts))


def load_build(path: Path) -> Callable[[Subject], Program]:
    """`build` from a user's Python file. The file is run: check only files you trust."""
    if not path.is_file():
        raise DescriptionError(str(path), ["no such file; --program takes a Python file that defines build(subject)"])
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module: ModuleType = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    build = getattr(module, "build", None)
    if not callable(build):
        raise DescriptionError(str(path), ["defines no function build(subject) that returns a Program"])
    found: Callable[[Subject], Program] = build
    return found
