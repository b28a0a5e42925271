"""What arrives at each population of a flat NIR graph: sums of matrices of what other populations sent."""

from __future__ import annotations

import graphlib
from collections.abc import Callable

import numpy as np

from mimdsim.workload.interchange.linear_maps import IDENTITY, Combination, LinearMap, MapProblem, total
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES, NEURONS, FlatGraph, NirNode

WHOLE_DELAY = 1e-3  # assumed: how far a delay may be from a whole number of timesteps, in timesteps
MOST_TIMESTEPS = 10_000  # assumed: far longer than any training sequence


class Arriving:
    """`at[name]`: the combination that arrives at a neuron, or at an output, of sources that are neurons or inputs.

    Raises MapProblem, with the node in its text, for cycles without a neuron and parts that do not fit together.
    """

    def __init__(self, graph: FlatGraph, dt: float):
        self.at: dict[str, Combination] = {}
        self.notes: list[str] = []
        self._dt = dt
        self._composed_values = 0
        before: dict[str, list[str]] = {name: [] for name in graph.nodes}
        for start, end in graph.edges:
            before[end].append(start)
        sources = {name for name, node in graph.nodes.items() if node.kind in NEURONS or node.kind == "Input"}
        sent = {name: Combination(terms={(name, 0): IDENTITY}, constant=np.zeros(1)) for name in sources}
        for name in self._ordered(graph, before, sources):
            node = graph.nodes[name]
            try:
                with np.errstate(all="ignore"):  # what overflows is refused later, with the name of the node
                    sent[name] = self._through(name, node, total([sent[one] for one in before[name]]))
                self._count(sent[name])
            except MapProblem as problem:
                raise MapProblem(f"at '{name}' ({node.kind}): {problem}") from None
        for name in graph.nodes:
            if graph.nodes[name].kind in NEURONS:
                try:
                    self.at[name] = total([sent[one] for one in before[name]])
                except MapProblem as problem:
                    raise MapProblem(f"at '{name}': {problem}") from None
            elif graph.nodes[name].kind == "Output":
                self.at[name] = sent[name]

    def _ordered(self, graph: FlatGraph, before: dict[str, list[str]], sources: set[str]) -> list[str]:
        """The linear nodes, each after the nodes it reads."""
        linear = [name for name in graph.nodes if name not in sources]
        order = graphlib.TopologicalSorter(
            {name: [one for one in before[name] if one not in sources] for name in linear}
        )
        try:
            return list(order.static_order())
        except graphlib.CycleError as problem:
            circle = " -> ".join(f"'{name}'" for name in problem.args[1][:8])
            raise MapProblem(f"{circle} is a cycle without a neuron in it, which has no value") from None

    def _through(self, name: str, node: NirNode, arriving: Combination) -> Combination:
        through = _THROUGH.get(node.kind)
        if node.kind == "Delay":
            timesteps = self._timesteps(node)
            if timesteps and arriving.constant.any():
                self.notes.append(
                    f"the constant that '{name}' delays acts from the first timestep on, not {timesteps} later"
                )
            return arriving.delayed(timesteps)
        if through is None:  # Flatten and Output: values are rows here anyway
            return arriving
        linear = through(node)
        bias = node.arrays["bias"].reshape(-1) if "bias" in node.arrays else None
        if bias is not None and bias.size not in (1, linear.outputs):
            raise MapProblem(f"'bias' has {bias.size} values for {linear.outputs} rows of 'weight'")
        return arriving.then(linear, bias)

    def _timesteps(self, node: NirNode) -> int:
        delay = node.arrays["delay"].reshape(-1)
        if np.any(delay != delay[0]) or not np.isfinite(delay[0]) or delay[0] < 0:
            raise MapProblem("all delays of a layer must be equal; a delay per neuron is not supported")
        if delay[0] == 0:
            return 0
        if not self._dt:
            raise MapProblem(f"a delay of {delay[0]:g} s needs the timestep, e.g. --dt {delay[0]:g}")
        timesteps = delay[0] / self._dt
        if timesteps > MOST_TIMESTEPS or abs(timesteps - round(timesteps)) > WHOLE_DELAY:
            raise MapProblem(
                f"a delay of {delay[0]:g} s is {timesteps:.6g} timesteps of {self._dt:g} s; a whole number is needed"
            )
        whole: int = round(timesteps)
        return whole

    def _count(self, made: Combination) -> None:
        self._composed_values += sum(
            term.matrix.size for term in made.terms.values() if term.matrix is not None and term.matrix.base is None
        )
        if self._composed_values > MAX_VALUES:
            raise MapProblem(f"products of weights have over {MAX_VALUES} values")


def _product(node: NirNode) -> LinearMap:
    weight = node.arrays["weight"]
    if weight.ndim != 2:
        raise MapProblem(f"'weight' has the shape {list(weight.shape)}; [outputs, inputs] is needed")
    return LinearMap(matrix=weight.T)  # a view: its base is the file's array


def _scaling(node: NirNode) -> LinearMap:
    return LinearMap(factor=node.arrays["scale"].reshape(-1))


_THROUGH: dict[str, Callable[[NirNode], LinearMap]] = {"Linear": _product, "Affine": _product, "Scale": _scaling}
