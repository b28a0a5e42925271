"""Run two programs side by side and against the interpreter's values; find the first difference and its vertex."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mimdsim.checking.comparison import difference
from mimdsim.execution import Executor
from mimdsim.execution.execute import Observer
from mimdsim.execution.scratch import NO_NUMBER, Poison
from mimdsim.graph import Graph, SparseSpikes, SpikingNetwork
from mimdsim.graph.names import listed
from mimdsim.program import Program, Superstep

Steps = Iterable[tuple[Superstep, int]]  # what runs, superstep by superstep, lazily


MORE_ROUNDED = 10.0  # assumed: a batch norm divides what rounding left of a difference by a small deviation


@dataclass
class Trace:
    """Values of the interpreter, by (graph value, timestep); counts: of what is listed, by its ids and timestep.

    partial: values that hold numbers at listed ids only. terms: sums over samples and timesteps, by what they add up.
    spikes: how many each of all timesteps has, by the names of such values. thresholds: of potentials that rounding
    moves; closest: how close one of them came to its threshold, as a share of that; sizes: see `note`.
    """

    wanted: set[str]
    partial: frozenset[str] = frozenset()
    terms: dict[str, str] = field(default_factory=dict)
    spikes: Counter[str] = field(default_factory=Counter)
    values: dict[tuple[str, int], Any] = field(default_factory=dict)
    counts: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)  # term of a sum in any timestep
    thresholds: dict[str, float] = field(default_factory=dict)
    closest: float = np.inf
    sizes: dict[str, float] = field(default_factory=dict)

    def __call__(self, name: str, t: int, value: Any) -> None:
        if name in self.thresholds:
            self.closest = min(self.closest, float(np.abs(value / self.thresholds[name] - 1).min()))
        self.note(name, value)
        if name in self.spikes:
            self.spikes[name] += int(
                value.counts[..., 0].sum() if isinstance(value, SparseSpikes) else np.count_nonzero(value)
            )
        if isinstance(value, SparseSpikes):
            ids, counts = listed(name)
            if ids in self.wanted:
                self.values[ids, t] = value.ids.copy()
                self.values[counts, t] = self.counts[ids, t] = value.counts.copy()
        elif name in self.wanted:
            self.values[name, t] = value

    def note(self, name: str, value: Any) -> None:
        """How large terms of sums are; of networks whose sums round, any value, with what more may round of it."""
        if name in self.terms.values():
            self.largest[name] = max(self.largest.get(name, 0.0), float(np.abs(value).max(initial=0.0)))
        if self.thresholds and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            largest = float(np.abs(value).max(initial=0.0))
            self.sizes[name] = max(self.sizes.get(name, 0.0), MORE_ROUNDED * largest)

    def largest_term(self, value: str) -> float:
        """Of a sum, which may be far smaller where its terms cancel; of any other value 0, or what `note` says."""
        return max(self.largest.get(self.terms.get(value, ""), 0.0), self.sizes.get(value, 0.0))


SUMS = (
    *("matmul_weight_gradient", "synapse_weight_gradient", "self_synapse_weight_gradient", "bias_gradient"),
    *("batch_norm_sums", "coefficient_gradient"),
)


def terms_of_sums(graph: Graph) -> dict[str, str]:
    """Gradients of parameters, of a timestep and up to one, and at the end, by the gradients of currents that they add
    up; spikes are 0 or 1."""
    found: dict[str, str] = {}
    before: dict[str, str] = {}  # gradients of what is normalised -> those of what comes of it, which cancel to these
    for op in graph.operations:
        if op.kind in SUMS:
            found |= dict.fromkeys(op.outputs, op.inputs[0])
        if op.kind == "constant_gradient":  # of gradients of coefficients, summed over the neurons
            found[op.outputs[0]] = found.get(op.inputs[1], op.inputs[1])
        if op.kind == "weight_function_gradient" and op.inputs[0] in found:  # times at most about 1, element by element
            found[op.outputs[0]] = found[op.inputs[0]]
        if op.kind == "batch_norm_input_gradient":
            before[op.outputs[0]] = op.inputs[0]
        if op.kind != "scan":
            continue
        slices = zip(op.attributes.slices, op.inputs[len(op.attributes.carries) :], strict=False)
        before |= {item.inside: before[outer] for item, outer in slices if outer in before}
        for inner in op.attributes.body.operations:
            if inner.kind == "batch_norm_input_gradient":
                before[inner.outputs[0]] = inner.inputs[0]
            if inner.kind in SUMS or inner.kind == "function_gradient":  # one, less a number next to it, and the like
                found |= dict.fromkeys(inner.outputs, before.get(inner.inputs[0], inner.inputs[0]))
            elif inner.kind == "add" and (of := found.keys() & {*inner.inputs}):
                found[inner.outputs[0]] = found[of.pop()]
        carries = zip(op.attributes.carries, op.outputs, strict=False)
        found |= {outer: found[carry.leaves] for carry, outer in carries if carry.leaves in found}
    return found | {name: term for name, term in _terms_of_shares(graph).items() if name not in found}


def _terms_of_shares(graph: Graph) -> dict[str, str]:
    """Gradients through the softmax of a timestep: of a share near 1 the gradient less its mean, which is what rounding
    leaves of it; and those that follow from it, which are as small then, by what they are in other timesteps."""
    found: dict[str, str] = {}
    for op in graph.operations:
        if op.kind == "read_out_gradient" and op.attributes == "softmax":
            found[op.outputs[0]] = op.inputs[0]
        if op.kind == "scan" and op.phase == "backward" and found:
            slices = zip(op.attributes.slices, op.inputs[len(op.attributes.carries) :], strict=False)
            read = {item.inside: found[outer] for item, outer in slices if outer in found}
            found |= {name: read.get(name, name) for name in op.attributes.body.values} | read
    return found


def rounded_potentials(network: SpikingNetwork, graph: Graph) -> dict[str, float]:
    """Potentials of spikes behind a batch norm, whose sums round as they are taken, by their thresholds: those of other
    networks are of weights with which no sum rounds."""
    if not any(layer.norm for layer in network.layers):
        return {}
    bodies = [op.attributes.body for op in graph.operations if op.kind == "scan" and op.phase == "forward"]
    return {op.inputs[0]: op.attributes.threshold for body in bodies for op in body.operations if op.kind == "spike"}


def gradients_at_ids(graph: Graph) -> frozenset[str]:
    """Values within scans that hold one number per listed id."""
    bodies = [op.attributes.body for op in graph.operations if op.kind == "scan"]
    every = (value for body in bodies for value in body.values.values())
    return frozenset(value.name for value in every if value.form == "array" and value.capacity)


@dataclass
class Differences:
    """Differences from the interpreter, which are decisive, and from the compiled program, which are decisive if both
    have the same supersteps and otherwise show where to look. missing: supersteps of the compiled program that were
    skipped.
    """

    decided: str | None = None
    hint: str | None = None
    missing: list[str] = field(default_factory=list)
    compared: int = 0

    def note(self, text: str) -> None:
        """Keep the first difference from the compiled program."""
        if self.hint is None:
            before = f"; the compiled program runs '{self.missing[0]}' before" if self.missing else ""
            self.hint = f"{text} (the compiled program's value){before}"

    @property
    def text(self) -> str | None:
        """The first difference in words, None if nothing is wrong."""
        return None if self.decided is None else self.hint or self.decided


class _ReferenceRun:
    """The compiled program, run up to the superstep that the subject has just run, as long as it has the same."""

    def __init__(self, subject: Program, reference: Executor):
        self.executor = reference
        self.steps = reference.steps()
        self.order = [(step.name, t) for step, t in reference.program.turns()]
        self.done = 0
        self.same = [(step.name, t) for step, t in subject.turns()] == self.order

    def reach(self, superstep: Superstep, t: int, found: Differences) -> bool:
        """Run up to and including the same superstep; False if it does not occur any more."""
        try:
            ahead = self.order.index((superstep.name, t), self.done)
        except ValueError:
            return False
        skipped = dict.fromkeys(name for name, _ in self.order[self.done : ahead])
        found.missing += [name for name in skipped if name not in found.missing]
        for _ in range(self.done, ahead + 1):
            next(self.steps)
        self.done = ahead + 1
        return True


def compare(
    subject: Executor,
    steps: Steps,
    reference: Executor,
    trace: Trace,
    meaning: dict[str, Any],
    *,
    poison: Poison | None = None,
    observe: Observer | None = None,
) -> Differences:
    """Run `steps` of the subject beside the reference, superstep by superstep, up to the first decisive difference.

    poison: of a strict run; memory that holds it in the subject and not in the reference is not compared with it.
    observe: called for every superstep of the subject.
    """
    found = Differences()
    beside = _ReferenceRun(subject.program, reference)
    for superstep, t in steps:
        if observe is not None:
            observe(superstep, t, subject)
        # products of normalised values round, and sums of them may cancel to rounding remains
        sums = {name: trace.largest_term(value) for name, value in superstep.defines} if trace.thresholds else {}
        if beside.reach(superstep, t, found):
            for name in superstep.variables_written:
                if name not in reference.arrays:
                    continue
                found.compared += 1
                expected = reference.arrays[name]
                if poison is not None and expected.shape == subject.arrays[name].shape:
                    held = subject.arrays[name]
                    expected = np.where(poison.found(held) | NO_NUMBER.found(expected), held, expected)
                wrong = difference(subject, superstep, name, expected, t, sums.get(name, 0.0))
                if wrong:
                    found.note(wrong)
                    if beside.same:
                        found.decided = wrong
                        return found
        for variable, value in superstep.defines:
            known: np.ndarray | None = trace.values.get((value, t), _whole(meaning, value))
            if known is None:
                continue
            found.compared += 1
            held = subject.arrays[variable]
            if held.shape == known.shape:
                known = _valid(held, known, trace, value, t)
            wrong = difference(subject, superstep, variable, known, t, trace.largest_term(value))
            if wrong:
                found.decided = f"{wrong} (the interpreter's '{value}')"
                return found
    return found


def _whole(meaning: dict[str, Any], value: str) -> np.ndarray | None:
    """A value of the outer graph; scalars are compared elsewhere."""
    found = meaning.get(value)
    return found if isinstance(found, np.ndarray) and found.shape else None


def _valid(held: np.ndarray, expected: np.ndarray, trace: Trace, value: str, t: int) -> np.ndarray:
    """`expected`, with elements that may not be read (ids and gradients beyond the listed count) taken from `held`."""
    if value in trace.partial:
        return np.where(expected == 0, held, expected)
    counts = trace.counts.get((value, t))
    if counts is None:
        return expected
    return np.where(np.arange(expected.shape[1]) < counts[:, 1:], expected, held)
