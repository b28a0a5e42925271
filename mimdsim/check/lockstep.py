"""Run two programs side by side and against the interpreter's values; find the first difference and its vertex."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mimdsim.base.rng import stream
from mimdsim.functional import Executor, initial_weights
from mimdsim.functional.train import unfolded
from mimdsim.graph import Graph, SparseSpikes, SpikingNetwork
from mimdsim.graph.truncation import STATE_BITS, random_name
from mimdsim.program import Superstep, VertexTable
from mimdsim.program.problems import vertex_name
from mimdsim.program.rows import boxes_of, describe_box

RELATIVE_TOLERANCE = 1e-5
DYADIC = 2.0**14
# graph values that are gradients at listed ids: of synapses, of a neuron onto itself, and their sums
LISTED_GRADIENT = re.compile(r"(.*\.d_(input|own)|d\.spikes\..*\.sum)(\.\d+)?")


@dataclass
class Trace:
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
    rows = unfolded(ids, counts, network.inputs)
    lists_or_rows = (
        {"input": rows[0] if network.steady_input else rows}
        if network.spikes == "dense"
        else {"input.ids": ids, "input.counts": np.stack([counts, counts], axis=-1)}
    )
    values: dict[str, np.ndarray] = {
        **lists_or_rows,
        "labels": draw.integers(0, network.classes, network.batch).astype(np.int32),
        "training_step": np.array([1]),
    }
    values |= {name: np.full(1, value, np.float32) for name, value in network.scheduled.items()}
    for layer in network.layers:
        if layer.selection.truncation == "random":
            values[random_name(layer.name)] = draw.integers(0, 1 << STATE_BITS, network.batch)
    for name, weights in initial_weights(network, seed, 4.0, 0.02).items():
        values[name] = (np.round(weights * DYADIC) / DYADIC).astype(np.float32)
    return values


def graph_inputs(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same values as inputs of the graph; optimiser moments start at zero."""
    given: dict[str, Any] = {}
    if "input.ids" in inputs:
        given["input"] = SparseSpikes(ids=inputs["input.ids"], counts=inputs["input.counts"])
    for name in graph.inputs:
        if name == "training_step":
            given[name] = 1
        elif name in inputs and not graph.value(name).shape:
            given[name] = inputs[name][0]  # a scalar is a variable of one element
        elif name in inputs:
            given[name] = inputs[name]
        elif name not in given:
            given[name] = np.zeros(graph.value(name).shape, np.float32)
    return given


def first_difference(
    subject: Executor, reference: Executor, trace: Trace, meaning: dict[str, Any], compared: list[int]
) -> str | None:
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
                        compared[0] += 1
                        if wrong:
                            return f"{wrong} (the compiled program's value)"
        for variable, value in superstep.defines:
            expected = trace.values.get((value, t), _whole(meaning, value))
            if expected is not None:
                held = subject.arrays[variable]
                compared[0] += 1
                if held.shape != expected.shape:
                    return (
                        f"superstep '{superstep.name}': '{variable}' has shape {held.shape}, '{value}' {expected.shape}"
                    )
                wrong = _difference(subject, superstep, variable, _valid(held, expected, trace, value, t), t)
                if wrong:
                    return f"{wrong} (the interpreter's '{value}')"
    return None


def _whole(meaning: dict[str, Any], value: str) -> np.ndarray | None:
    """A value of the outer graph; scalars are compared elsewhere."""
    found = meaning.get(value)
    return found if isinstance(found, np.ndarray) and found.shape else None


def _valid(held: np.ndarray, expected: np.ndarray, trace: Trace, value: str, t: int) -> np.ndarray:
    """`expected` with what nobody may read (ids and gradients beyond the listed count) taken from `held`."""
    counts = None
    if value.endswith(".ids"):
        counts = trace.values.get((value.removesuffix(".ids") + ".counts", t))
    elif LISTED_GRADIENT.fullmatch(value):
        return np.where(expected == 0, held, expected)
    if counts is None:
        return expected
    listed = np.arange(expected.shape[1]) < counts[:, 1:]
    return np.where(listed, expected, held)


def _difference(executor: Executor, superstep: Superstep, variable: str, expected: np.ndarray, t: int) -> str | None:
    held = executor.arrays[variable]
    if held.shape != expected.shape:
        return f"superstep '{superstep.name}': '{variable}' has shape {held.shape}, should be {expected.shape}"
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
