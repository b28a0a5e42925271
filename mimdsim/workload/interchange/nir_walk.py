"""Walks a NIR graph from its input to its output, along a chain of populations.

A connection takes no time, as in the frameworks that write NIR: a population reads in timestep t what the one before it
sent at t. From itself, with or without weights, it reads what it sent at t - 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.graph.convolution import Convolution, Planes
from mimdsim.workload.interchange.model_file import Dynamics, ImportedNetwork, Population
from mimdsim.workload.interchange.nir_composition import (
    Combination,
    Term,
    as_matrix,
    combinations_of,
    is_identity,
    width,
)
from mimdsim.workload.interchange.nir_neurons import Discretisation, ambiguities_of, dt_of_file, dynamics_of
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES, NEURONS, NirGraph, NirNode, NodeProblem, Reals, flatten
from mimdsim.workload.interchange.nir_planes import PlaneMap, by_channel, planes_of

AS_FILE = Discretisation()


def network_of_nir(path: Path, graph: NirGraph, how: Discretisation = AS_FILE) -> ImportedNetwork:
    """The chain of populations in a NIR graph, made discrete as `how` says.

    Raises DescriptionError for unsupported nodes (with what they would need), graphs that are not a chain, sizes that
    disagree, and a timestep or a reset that the file leaves open.
    """
    return _Walk(str(path), *flatten(path, graph), how).network()


class _Walk:
    def __init__(self, where: str, nodes: dict[str, NirNode], edges: list[tuple[str, str]], how: Discretisation):
        self._where, self._nodes, self._how = where, nodes, how
        neurons = {name: node for name, node in nodes.items() if node.kind in NEURONS}
        told, problems = dt_of_file(neurons)
        self._dt = how.dt_seconds or told
        self._refuse([*([] if how.dt_seconds else problems), *self._open_questions(neurons)])
        try:
            self._arriving, self._notes = combinations_of(nodes, edges, self._dt)
        except NodeProblem as problem:
            raise DescriptionError(where, [str(problem)]) from None
        self._left = dict.fromkeys(neurons)
        self._doubts: dict[str, list[str]] = {}  # and the nodes that they are about
        self._planes: dict[str, Planes] = {}  # of populations that a convolution leads to

    def network(self) -> ImportedNetwork:
        """The populations, from the one that reads the input on."""
        source, output = self._only("Input"), self._only("Output")
        size = self._elements(source)
        chain: list[Population] = []
        while (name := self._reader(source)) is not None:
            chain.append(self._population(name, source, size))
            del self._left[name]
            source, size = name, chain[-1].neurons
        if self._left:
            names = ", ".join(f"'{name}'" for name in self._left)
            self._refuse([f"{names}: not in one chain of layers from the input, and only such a chain can run"])
        if not chain or not _passes_on(self._arriving[output], source):
            chain.append(self._population(output, source, size))
        notes = self._notes + [f"{', '.join(names[:6])}: {doubt}" for doubt, names in self._doubts.items()]
        if self._elements(output) != chain[-1].neurons:
            notes.append(f"'{output}' says {self._elements(output)} values, there are {chain[-1].neurons}")
        return ImportedNetwork(populations=tuple(chain), dt_seconds=self._dt, notes=tuple(notes))

    def _open_questions(self, neurons: dict[str, NirNode]) -> list[str]:
        """All problems of the neurons themselves, because one option may solve several."""
        problems: dict[str, list[str]] = {}
        for name, node in neurons.items():
            most = max(values.size for values in node.arrays.values())  # others may be by channel, or for all
            whole = replace(node, arrays={array: np.resize(values, most) for array, values in node.arrays.items()})
            try:
                dynamics_of(whole, most, self._dt, self._how)
            except NodeProblem as problem:
                problems.setdefault(str(problem), []).append(f"'{name}' ({node.kind})")
        return [f"{', '.join(names[:6])}: {problem}" for problem, names in problems.items()]

    def _reader(self, source: str) -> str | None:
        """The neurons that read `source`, which at most one population may read."""
        readers = [name for name in self._left if name != source and source in _sources(self._arriving[name])]
        if len(readers) > 1:
            names = " and ".join(f"'{name}'" for name in readers)
            self._refuse([f"{names} all read '{source}'; layers here form one chain"])
        return readers[0] if readers else None

    def _population(self, name: str, source: str, size: int) -> Population:
        arriving = self._arriving[name]
        others = sorted(_sources(arriving) - {source, name})
        self._refuse(
            f"'{name}' also reads '{other}', which is not the layer before it; connections that skip layers or lead "
            "back over several are not supported"
            for other in others
        )
        try:
            delay, term = _one_delay(arriving, source)
            node = self._nodes[name]
            convolution = None
            if isinstance(term, PlaneMap):
                weights, convolution = self._over_planes(name, arriving, term, source, size)
                columns = convolution.channels
                bias = None if term.bias is None else self._finite(name, term.bias)
            else:
                own = max((values.size for values in node.arrays.values()), default=1) if node.kind in NEURONS else 1
                columns = width(term, -1) or (own if own > 1 else size)
                weights = self._finite(name, as_matrix(term, size))
                if weights.shape != (size, columns):
                    raise NodeProblem(f"takes {weights.shape[0]} values, '{source}' gives {size}")
                bias = self._bias(name, arriving, columns)
            if node.kind in NEURONS:
                node = by_channel(node, convolution.result) if convolution else node
                dynamics = dynamics_of(node, columns, self._dt, self._how)
                for doubt in ambiguities_of(node, dynamics, self._how):
                    self._doubts.setdefault(doubt, []).append(f"'{name}'")
            else:
                dynamics = Dynamics(decay=np.zeros(columns), gain=np.ones(columns), rest=np.zeros(columns))
            return Population(
                node=name,
                kind=node.kind if node.kind in NEURONS else "Linear",
                weights=weights,
                dynamics=dynamics,
                bias=bias,
                recurrent=self._recurrent(name, arriving, columns),
                delay=delay,
                convolution=convolution,
            )
        except NodeProblem as problem:
            kind = self._nodes[name].kind
            raise DescriptionError(self._where, [f"'{name}' ({kind}): {problem}"]) from None

    def _over_planes(
        self, name: str, arriving: Combination, term: PlaneMap, source: str, size: int
    ) -> tuple[Reals, Convolution]:
        """(weights, how they read the planes of `source`, which are its shape if it is the input)"""
        if name in _sources(arriving):
            raise NodeProblem("reads planes and itself; neurons of planes have no synapses onto themselves")
        planes = self._planes.get(source)
        if planes is None and self._nodes[source].kind == "Input":
            planes = planes_of(self._nodes[source].arrays["shape"].reshape(-1)) or term.planes
        if planes is None:
            raise NodeProblem(
                f"reads planes of '{source}', which does not say its planes: an input's shape must be [channels, "
                "height, width], and neurons have planes where a convolution leads to them"
            )
        if planes.neurons != size:
            raise NodeProblem(f"reads planes of {planes}, {planes.neurons} values; '{source}' gives {size}")
        convolution = term.convolution(planes)
        self._planes[name] = convolution.result
        assert term.weights is not None
        return self._finite(name, term.weights), convolution

    def _recurrent(self, name: str, arriving: Combination, neurons: int) -> Reals | None:
        if name not in _sources(arriving):
            return None
        delay, term = _one_delay(arriving, name)
        if isinstance(term, PlaneMap):
            raise NodeProblem("reads itself over a convolution or a pool; weights of a recurrence are a matrix")
        if delay > 1:  # a cycle takes one timestep, both without a delay node and with one of one timestep
            raise NodeProblem(f"reads itself after {delay} timesteps; one is supported")
        if term.ndim == 1:
            return self._finite(name, np.broadcast_to(term, (neurons,)))
        if term.shape != (neurons, neurons):
            raise NodeProblem(f"reads itself over weights of shape {list(term.shape)} for {neurons} neurons")
        diagonal = np.diagonal(term)
        if np.count_nonzero(term) == np.count_nonzero(diagonal):  # so one-to-one weights are written
            return self._finite(name, diagonal)
        return self._finite(name, term)

    def _bias(self, name: str, arriving: Combination, neurons: int) -> Reals | None:
        constant = arriving.constant
        if constant.size not in (1, neurons):
            raise NodeProblem(f"gets a constant of {constant.size} values for {neurons} neurons")
        return self._finite(name, np.broadcast_to(constant, (neurons,))) if constant.any() else None

    def _finite(self, name: str, values: Reals) -> Reals:
        if not np.all(np.isfinite(values)):
            raise NodeProblem(f"weights that lead to '{name}' hold values that are not finite, or overflow")
        return np.ascontiguousarray(values)

    def _only(self, kind: str) -> str:
        found = [name for name, node in self._nodes.items() if node.kind == kind]
        if len(found) != 1:
            self._refuse([f"has {len(found)} nodes {kind}; one is needed"])
        return found[0]

    def _elements(self, name: str) -> int:
        """The product of an input's or output's shape."""
        shape = self._nodes[name].arrays["shape"].reshape(-1)
        extents = np.abs(shape[np.isfinite(shape)])
        if extents.size != shape.size or np.any(shape < 1) or np.any(shape % 1) or np.prod(extents) > MAX_VALUES:
            self._refuse([f"'{name}' has the shape {shape.tolist()[:8]}; whole numbers from 1 are needed"])
        return int(np.prod(shape))

    def _refuse(self, problems: Iterable[str]) -> None:
        found = list(problems)
        if found:
            raise DescriptionError(self._where, found)


def _sources(arriving: Combination) -> set[str]:
    return {source for source, _ in arriving.terms}


def _one_delay(arriving: Combination, source: str) -> tuple[int, Term]:
    found = [(delay, term) for (name, delay), term in arriving.terms.items() if name == source]
    if len(found) != 1:
        raise NodeProblem(f"reads '{source}' {len(found)} times after different delays; one is supported")
    return found[0]


def _passes_on(arriving: Combination, source: str) -> bool:
    """Whether what arrives is exactly what `source` sends."""
    term = arriving.terms.get((source, 0))
    passes = isinstance(term, np.ndarray) and is_identity(term)
    return len(arriving.terms) == 1 and passes and not arriving.constant.any()
