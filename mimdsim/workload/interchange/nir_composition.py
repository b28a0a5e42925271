"""What arrives at each population of a flat NIR graph: linear maps of what other populations sent, which are products,
scalings and delays composed to one matrix per source and delay."""

from __future__ import annotations

import contextlib
import graphlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mimdsim.workload.description.sections import MAX_LAYERS
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES, NEURONS, OF_PLANES, NirNode, NodeProblem, PlaneMap, Reals

WHOLE_DELAY = 1e-3  # assumed: how far a delay may be from a whole number of timesteps, in timesteps
MOST_TIMESTEPS = 10_000  # assumed: far longer than any training sequence
MOST_TERMS = MAX_LAYERS  # what a layer of a workload reads


# A linear map of rows of values: a matrix [inputs, outputs], or a factor for each value, [n], or [1] for any number.
IDENTITY = np.ones(1)
Term = Reals | PlaneMap


def width(linear: Reals, axis: Literal[0, -1]) -> int | None:
    """How many values a map takes (axis 0) or gives (-1); None for any, or as many as it takes."""
    return int(linear.shape[axis]) if linear.ndim == 2 or linear.size > 1 else None


def is_identity(linear: Reals) -> bool:
    """Whether a map passes on any number of values."""
    return linear.shape == (1,) and bool(linear[0] == 1)


def as_matrix(linear: Reals, size: int) -> Reals:
    """The matrix of a map whose input has `size` values."""
    if linear.ndim == 2:
        return linear
    _bounded(size, size)
    return np.diag(np.broadcast_to(linear, (size,)))


def _then(first: Reals, second: Reals) -> Reals:
    """One map and then the other."""
    _agree(width(first, -1), width(second, 0), "gives", "takes")
    if is_identity(first) or is_identity(second):
        return second if is_identity(first) else first
    if first.ndim == 1:
        return first.reshape(-1, 1) * second if second.ndim == 2 else first * second
    if second.ndim == 1:
        return first * second
    _bounded(first.shape[0], second.shape[1])
    return first @ second


def _plus(first: Reals, second: Reals) -> Reals:
    """The sum of two maps of the same input."""
    size = width(first, 0) or width(second, 0)
    _agree(width(first, 0), width(second, 0), "takes", "takes")
    _agree(width(first, -1), width(second, -1), "gives", "gives")
    if first.ndim == second.ndim or size is None:
        return first + second
    return as_matrix(first, size) + as_matrix(second, size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Combination:
    """A sum of linear maps of sources, each after a delay in timesteps, and a constant ([n], or [1] for any n)."""

    terms: dict[tuple[str, int], Term]
    constant: Reals

    def over_planes(self, node: NirNode) -> Combination:
        """Its only term through a convolution, a pool, or weights after a pool; raises NodeProblem for others."""
        if len(self.terms) != 1 or self.constant.any():
            raise NodeProblem("adds up several sources of planes, or a constant and one; a convolution reads one")
        ((key, term),) = self.terms.items()
        if not isinstance(term, PlaneMap):
            if not is_identity(term):
                raise NodeProblem(
                    f"reads '{key[0]}' over weights or a scale, and nothing but pools between both can run; put "
                    "neurons there, or multiply the convolution's weights by the scale"
                )
            term = PlaneMap()
        return Combination(terms={key: term.through(node)}, constant=self.constant)

    def then(self, linear: Reals, bias: Reals | None) -> Combination:
        """Every term and the constant through `linear`, and then `bias` added."""
        constant = np.zeros(1)
        if self.constant.any():
            _agree(width(self.constant, 0), width(linear, 0), "gives", "takes")
            product = linear.ndim == 2
            constant = np.broadcast_to(self.constant, linear.shape[:1]) @ linear if product else self.constant * linear
        if bias is not None:
            constant = constant + bias
        terms: dict[tuple[str, int], Term] = {}
        made = 0
        for key, each in self.terms.items():
            through = _then(_plain(each), linear)
            made = _counted(made, 0 if through is linear else through.size)
            terms[key] = through
        return Combination(terms=terms, constant=constant)

    def delayed(self, timesteps: int) -> Combination:
        """Every term later by `timesteps`; the constant has always been there."""
        moved = {(source, delay + timesteps): term for (source, delay), term in self.terms.items()}
        if max((delay for _, delay in moved), default=0) > MOST_TIMESTEPS:
            raise NodeProblem(f"delays add up to over {MOST_TIMESTEPS} timesteps")
        return Combination(terms=moved, constant=self.constant)


def total(parts: list[Combination]) -> Combination:
    """The sum of everything that arrives at one node."""
    terms: dict[tuple[str, int], Term] = {}
    constant = np.zeros(1)
    made = 0
    for part in parts:
        for key, term in part.terms.items():
            if key in terms:
                terms[key] = both = _plus(_plain(terms[key]), _plain(term))
                made = _counted(made, both.size)
            else:
                terms[key] = term
        if len(terms) > MOST_TERMS:
            raise NodeProblem(f"adds up over {MOST_TERMS} sources, or ages of them; a layer reads at most so many")
        if part.constant.size > 1 and constant.size > 1:
            _agree(constant.size, part.constant.size, "gives", "gives")
        constant = constant + part.constant
    return Combination(terms=terms, constant=constant)


def _plain(term: Term) -> Reals:
    if isinstance(term, PlaneMap):
        raise NodeProblem("is joined with pools or convolutions of planes; only neurons and weights may follow these")
    return term


def _counted(made: int, more: int) -> int:
    """Values that were made, with `more`."""
    if made + more > MAX_VALUES:
        raise NodeProblem(f"products and sums of weights have over {MAX_VALUES} values")
    return made + more


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
    found: dict[str, Combination] = {}
    notes: list[str] = []
    composed, seen = 0, set[int]()
    for name in (*_in_order(before, sources), *(one for one in nodes if nodes[one].kind in NEURONS)):
        kind = nodes[name].kind
        with _naming(f"'{name}' ({kind})"), np.errstate(all="ignore"):  # what overflows is refused later, with its node
            arriving = total([sent[one] for one in before[name]])
            late = _timesteps(nodes[name], dt) if kind == "Delay" else 0
            if late and arriving.constant.any():
                notes.append(f"the constant that '{name}' delays acts from the first timestep on, not {late} later")
            if kind not in NEURONS:
                arriving = sent[name] = arriving.delayed(late) if late else _through(nodes[name], arriving)
            if kind in NEURONS or kind == "Output":
                found[name] = arriving
            plain = (term for term in arriving.terms.values() if isinstance(term, np.ndarray) and id(term) not in seen)
            fresh = [term for term in plain if term.ndim == 2 and term.base is None]
            seen.update(map(id, fresh))  # which are all kept until the end
            composed = _counted(composed, sum(term.size for term in fresh))
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
    of_planes = any(isinstance(term, PlaneMap) for term in arriving.terms.values())
    if node.kind in OF_PLANES or (of_planes and node.kind not in ("Flatten", "Output")):
        return arriving.over_planes(node)
    if node.kind == "Scale":
        return arriving.then(node.arrays["scale"].reshape(-1), None)
    if "weight" not in node.arrays:  # Flatten and Output: values are rows here anyway
        return arriving
    weight = node.arrays["weight"]
    if weight.ndim != 2:
        raise NodeProblem(f"'weight' has the shape {list(weight.shape)}; [outputs, inputs] is needed")
    bias = node.arrays["bias"].reshape(-1) if "bias" in node.arrays else None
    if bias is not None and bias.size not in (1, weight.shape[0]):
        raise NodeProblem(f"'bias' has {bias.size} values for {weight.shape[0]} rows of 'weight'")
    return arriving.then(weight.T, bias)  # a view: its base is the file's array


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
