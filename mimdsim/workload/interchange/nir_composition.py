"""What arrives at each population of a flat NIR graph: linear maps of what other populations sent, which are products,
scalings and delays composed to one matrix per source and delay."""

from __future__ import annotations

import contextlib
import graphlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from mimdsim.workload.interchange.nir_nodes import MAX_VALUES, NEURONS, NirNode, NodeProblem, Reals

WHOLE_DELAY = 1e-3  # assumed: how far a delay may be from a whole number of timesteps, in timesteps
MOST_TIMESTEPS = 10_000  # assumed: far longer than any training sequence


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearMap:
    """y = x @ matrix, with matrix [inputs, outputs]; or, without a matrix, y = x * factor, [n] or [1] for any n."""

    matrix: Reals | None = None
    factor: Reals = field(default_factory=lambda: np.ones(1))

    @property
    def inputs(self) -> int | None:
        """How many values it takes; None for any."""
        if self.matrix is not None:
            return int(self.matrix.shape[0])
        return self.factor.size if self.factor.size > 1 else None

    @property
    def outputs(self) -> int | None:
        """How many values it gives; None for as many as it takes."""
        return int(self.matrix.shape[1]) if self.matrix is not None else self.inputs

    @property
    def plain(self) -> bool:
        """Whether it is the identity for any size."""
        return self.matrix is None and self.factor.size == 1 and bool(self.factor[0] == 1)

    def then(self, other: LinearMap) -> LinearMap:
        """This map and then the other."""
        _agree(self.outputs, other.inputs, "gives", "takes")
        if self.plain or other.plain:
            return other if self.plain else self
        if other.matrix is None:
            if self.matrix is None:
                return LinearMap(factor=self.factor * other.factor)
            return LinearMap(matrix=self.matrix * other.factor)
        if self.matrix is None:
            return LinearMap(matrix=self.factor.reshape(-1, 1) * other.matrix)
        _bounded(self.matrix.shape[0], other.matrix.shape[1])
        return LinearMap(matrix=self.matrix @ other.matrix)

    def plus(self, other: LinearMap) -> LinearMap:
        """The sum of both maps of the same input."""
        _agree(self.inputs, other.inputs, "takes", "takes")
        _agree(self.outputs, other.outputs, "gives", "gives")
        if self.matrix is None and other.matrix is None:
            return LinearMap(factor=self.factor + other.factor)
        size = self.inputs or other.inputs
        assert size is not None
        return LinearMap(matrix=self.dense(size) + other.dense(size))

    def dense(self, size: int) -> Reals:
        """The matrix, of a map whose input has `size` values."""
        if self.matrix is not None:
            return self.matrix
        _bounded(size, size)
        return np.diag(np.broadcast_to(self.factor, (size,)))

    def apply(self, values: Reals) -> Reals:
        """The map of one row of values."""
        _agree(values.size if values.size > 1 else None, self.inputs, "gives", "takes")
        if self.matrix is not None:
            return np.broadcast_to(values, (self.matrix.shape[0],)) @ self.matrix
        return values * self.factor


IDENTITY = LinearMap()


@dataclass(frozen=True, kw_only=True, eq=False)
class Combination:
    """A sum of linear maps of sources, each after a delay in timesteps, and a constant ([n], or [1] for any n)."""

    terms: dict[tuple[str, int], LinearMap]
    constant: Reals

    def then(self, linear: LinearMap, bias: Reals | None) -> Combination:
        """Every term and the constant through `linear`, and then `bias` added."""
        constant = np.zeros(1) if not self.constant.any() else linear.apply(self.constant)
        if bias is not None:
            constant = constant + bias
        return Combination(terms={key: term.then(linear) for key, term in self.terms.items()}, constant=constant)

    def delayed(self, timesteps: int) -> Combination:
        """Every term later by `timesteps`; the constant has always been there."""
        moved = {(source, delay + timesteps): term for (source, delay), term in self.terms.items()}
        return Combination(terms=moved, constant=self.constant)


def total(parts: list[Combination]) -> Combination:
    """The sum of everything that arrives at one node."""
    terms: dict[tuple[str, int], LinearMap] = {}
    constant = np.zeros(1)
    for part in parts:
        for key, term in part.terms.items():
            terms[key] = terms[key].plus(term) if key in terms else term
        if part.constant.size > 1 and constant.size > 1:
            _agree(constant.size, part.constant.size, "gives", "gives")
        constant = constant + part.constant
    return Combination(terms=terms, constant=constant)


def _bounded(rows: int, columns: int) -> None:
    if rows * columns > MAX_VALUES:
        raise NodeProblem(f"{rows} x {columns} weights, written out, are over {MAX_VALUES}")


def _agree(first: int | None, second: int | None, one: str, other: str) -> None:
    if first is not None and second is not None and first != second:
        raise NodeProblem(f"one part {one} {first} values, the next {other} {second}")


def combinations_of(
    nodes: Mapping[str, NirNode], edges: Iterable[tuple[str, str]], dt: float
) -> tuple[dict[str, Combination], list[str]]:
    """(what arrives at every neuron and output, of sources that are neurons or inputs; notes), for timesteps of `dt`
    seconds (0: not known).

    Raises NodeProblem, with the node in its text, for cycles without a neuron and parts that do not fit together.
    """
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for start, end in edges:
        before[end].append(start)
    sources = {name for name, node in nodes.items() if node.kind in NEURONS or node.kind == "Input"}
    sent = {name: Combination(terms={(name, 0): IDENTITY}, constant=np.zeros(1)) for name in sources}
    notes: list[str] = []
    composed = 0
    for name in _in_order(before, sources):
        kind = nodes[name].kind
        with _naming(f"'{name}' ({kind})"), np.errstate(all="ignore"):  # what overflows is refused later, with its node
            arriving = total([sent[one] for one in before[name]])
            late = _timesteps(nodes[name], dt) if kind == "Delay" else 0
            sent[name] = arriving.delayed(late) if late else _through(nodes[name], arriving)
            if late and arriving.constant.any():
                notes.append(f"the constant that '{name}' delays acts from the first timestep on, not {late} later")
            matrices = [term.matrix for term in sent[name].terms.values() if term.matrix is not None]
            composed += sum(matrix.size for matrix in matrices if matrix.base is None)
            if composed > MAX_VALUES:
                raise NodeProblem(f"products of weights have over {MAX_VALUES} values")
    found = {name: sent[name] for name, node in nodes.items() if node.kind == "Output"}
    for name, node in nodes.items():
        if node.kind in NEURONS:
            with _naming(f"'{name}'"):
                found[name] = total([sent[one] for one in before[name]])
    return found, notes


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    try:
        yield
    except NodeProblem as problem:
        raise NodeProblem(f"at {where}: {problem}") from None


def _in_order(before: Mapping[str, list[str]], sources: set[str]) -> list[str]:
    """The linear nodes, each after the nodes it reads."""
    linear = {name: [one for one in before[name] if one not in sources] for name in before if name not in sources}
    try:
        return list(graphlib.TopologicalSorter(linear).static_order())
    except graphlib.CycleError as problem:
        circle = " -> ".join(f"'{name}'" for name in problem.args[1][:8])
        raise NodeProblem(f"{circle} is a cycle without a neuron in it, which has no value") from None


def _through(node: NirNode, arriving: Combination) -> Combination:
    """What a node without neurons and delay sends."""
    if node.kind == "Scale":
        return arriving.then(LinearMap(factor=node.arrays["scale"].reshape(-1)), None)
    if "weight" not in node.arrays:  # Flatten and Output: values are rows here anyway
        return arriving
    weight = node.arrays["weight"]
    if weight.ndim != 2:
        raise NodeProblem(f"'weight' has the shape {list(weight.shape)}; [outputs, inputs] is needed")
    bias = node.arrays["bias"].reshape(-1) if "bias" in node.arrays else None
    if bias is not None and bias.size not in (1, weight.shape[0]):
        raise NodeProblem(f"'bias' has {bias.size} values for {weight.shape[0]} rows of 'weight'")
    return arriving.then(LinearMap(matrix=weight.T), bias)  # a view: its base is the file's array


def _timesteps(node: NirNode, dt: float) -> int:
    delay = node.arrays["delay"].reshape(-1)
    if np.any(delay != delay[0]) or not np.isfinite(delay[0]) or delay[0] < 0:
        raise NodeProblem("all delays of a layer must be equal; a delay per neuron is not supported")
    if delay[0] == 0:
        return 0
    if not dt:
        raise NodeProblem(f"a delay of {delay[0]:g} s needs the timestep, e.g. --dt {delay[0]:g}")
    timesteps = delay[0] / dt
    if timesteps > MOST_TIMESTEPS or abs(timesteps - round(timesteps)) > WHOLE_DELAY:
        raise NodeProblem(
            f"a delay of {delay[0]:g} s is {timesteps:.6g} timesteps of {dt:g} s; a whole number is needed"
        )
    whole: int = round(timesteps)
    return whole
