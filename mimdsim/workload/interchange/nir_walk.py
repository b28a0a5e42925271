"""Walks a NIR graph from its input to its output: its populations in an order, and what each reads.

A connection takes no time, as in the frameworks that write NIR: a population reads in timestep t what those before it
sent at t, less the delays between them. From itself, and where connections without a delay make a cycle, from those
that come after it, it reads what was sent at t - 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DescriptionError
from mimdsim.graph.convolution import Convolution
from mimdsim.graph.names import INPUT
from mimdsim.graph.sources import Source
from mimdsim.workload.description.sections import MAX_LAYERS
from mimdsim.workload.interchange.model_file import Dynamics, ImportedNetwork, Population
from mimdsim.workload.interchange.nir_composition import (
    Combination,
    Term,
    as_matrix,
    combinations_of,
    is_identity,
    total,
    width,
)
from mimdsim.workload.interchange.nir_neurons import Discretisation, ambiguities_of, dt_of_file, dynamics_of
from mimdsim.workload.interchange.nir_nodes import (
    MAX_VALUES,
    NEURONS,
    NirGraph,
    NirNode,
    NodeProblem,
    PlaneMap,
    Reals,
    by_channel,
    flatten,
    planes_of,
)
from mimdsim.workload.interchange.weights_file import layer_names, natural

AS_FILE = Discretisation()
Reads = dict[tuple[str, int], Term]  # by the nodes of other populations, or of the input, and delays in timesteps


def network_of_nir(path: Path, graph: NirGraph, how: Discretisation = AS_FILE) -> ImportedNetwork:
    """The populations of a NIR graph, made discrete as `how` says.

    Raises DescriptionError for unsupported nodes (with what they would need), populations that do not lead to the
    output, sizes that disagree, and a timestep or a reset that the file leaves open.
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
        self._sizes: dict[str, int] = {}  # of the input and of populations
        self._convolutions: dict[str, Convolution] = {}  # that lead to populations
        self._doubts: dict[str, list[str]] = {}  # and the nodes that they are about
        self._closing: list[str] = []  # who reads whom a timestep later than the file says
        self._values = 0

    def network(self) -> ImportedNetwork:
        """The populations, from the first that reads the input on."""
        source, output = self._only("Input"), self._only("Output")
        self._sizes[source] = self._elements(source)
        order = self._order(source, output)
        layers = dict(zip((source, *order), (INPUT, *layer_names(len(order))), strict=True))
        reads: dict[str, Reads] = {}
        populations, at = [], ""
        try:
            for place, at in enumerate(order):
                reads[at] = self._reads(at, {source, *order[:place]})
            self._check(source, order, reads)
            for at in order:
                self._sizes[at] = self._size(at, reads[at])
            for at in order:
                populations.append(self._population(at, reads[at], layers))
        except NodeProblem as problem:
            raise DescriptionError(self._where, [f"'{at}' ({self._nodes[at].kind}): {problem}"]) from None
        if self._closing:
            some = ", ".join(self._closing[:6]) + (f" ({len(self._closing)} in all)" if len(self._closing) > 6 else "")
            self._notes.append(f"{some} a timestep later, as both are in a cycle without a delay")
        notes = self._notes + [f"{', '.join(names[:6])}: {doubt}" for doubt, names in self._doubts.items()]
        if self._elements(output) != self._sizes[order[-1]]:
            notes.append(f"'{output}' says {self._elements(output)} values, there are {self._sizes[order[-1]]}")
        return ImportedNetwork(populations=tuple(populations), dt_seconds=self._dt, notes=tuple(notes))

    def _order(self, source: str, output: str) -> list[str]:
        """The populations, each after those that it reads without a delay; of those in a cycle the first is one that
        reads what was there before. The output itself is the last one, unless it passes on what the last one sends."""
        names = sorted((name for name in self._arriving if name != output), key=natural)
        if len(names) >= MAX_LAYERS:
            self._refuse([f"has {len(names)} populations of neurons; fewer than {MAX_LAYERS} can run"])
        heard = {name: _sources(self._arriving[name]) - {name} for name in names}
        waits = np.array([[(one, 0) in self._arriving[name].terms for one in names] for name in names], dtype=bool)
        waits = waits.reshape(len(names), len(names)) & ~np.eye(len(names), dtype=bool)
        last = np.array([_passes_on(self._arriving[output], name) for name in names], dtype=bool)
        closed = _closed(waits)
        if not closed[last][:, last].any():  # it is in no cycle, so it waits for all that do not wait for it
            waits[last] |= ~closed[:, last].T & ~last
        left, order, placed = list(range(len(names))), [], {source}
        while left:
            behind = waits[np.ix_(left, left)]
            unread = np.array([not heard[names[place]] & placed for place in left])
            free = np.flatnonzero(~behind.any(axis=1) & ~unread)
            if not free.size:
                behind = _closed(behind)
                free = np.flatnonzero(np.all(behind <= behind.T, axis=1))  # in a cycle, too, that waits for no other
            chosen = min(free, key=lambda place: (unread[place], last[left[place]]))
            order.append(names[left.pop(chosen)])
            placed.add(order[-1])
        return order if order and _passes_on(self._arriving[output], order[-1]) else [*order, output]

    def _reads(self, name: str, before: set[str]) -> Reads:
        """What a population reads of others, at which ages; what closes a cycle is a timestep old."""
        parts = []
        for (source, delay), term in self._arriving[name].terms.items():
            if source != name:
                closes = not delay and source not in before
                self._closing += [f"'{name}' reads '{source}'"] if closes else []
                parts.append(Combination(terms={(source, delay or int(closes)): term}, constant=np.zeros(1)))
        if len(before) == 1:  # the first layer reads the input first
            parts.sort(key=lambda part: not _sources(part) <= before)
        return total(parts).terms

    def _check(self, source: str, order: list[str], reads: dict[str, Reads]) -> None:
        """Raise DescriptionError for populations that cannot be the first, or that nothing leads to or from."""
        heard = {name: {one for one, _ in found} for name, found in reads.items()}
        leading, more = set[str](), {order[-1]}
        while more:
            leading |= more
            more = set[str]().union(*(heard[name] for name in more if name != source)) - leading
        self._refuse(
            f"'{name}': reads neither the input nor other neurons; lead an edge to it, or take it out of the graph"
            for name, found in heard.items()
            if not found
        )
        self._refuse(
            f"'{name}': no edges lead from it to the output, so what it sends means nothing; take it out of the graph"
            for name in order
            if name not in leading
        )
        if source not in heard[order[0]]:
            self._refuse(
                [
                    f"'{order[0]}': comes first, as others read it without a delay, but does not read the input, as "
                    "the first layer must; put a Delay of a timestep behind it"
                ]
            )

    def _size(self, name: str, reads: Reads) -> int:
        """How many neurons a population has: as its weights or constants say, or as many as what it reads."""
        for (source, _), term in reads.items():
            if isinstance(term, PlaneMap):
                self._convolutions[name] = self._over_planes(name, source, term, [one for one, _ in reads])
                return self._convolutions[name].result.neurons
        node = self._nodes[name]
        own = max((values.size for values in node.arrays.values()), default=1) if node.kind in NEURONS else 1
        said = (width(term, -1) for term in reads.values() if isinstance(term, np.ndarray))
        known = (self._sizes[source] for source, _ in reads if source in self._sizes)
        return next((size for size in said if size), 0) or (own if own > 1 else next(known, own))

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

    def _population(self, name: str, reads: Reads, layers: dict[str, str]) -> Population:
        node, arriving, convolution = self._nodes[name], self._arriving[name], self._convolutions.get(name)
        columns = convolution.channels if convolution else self._sizes[name]
        read = tuple(
            (Source(name=layers[source], neurons=self._sizes[source], lag=delay), self._weights(name, source, term))
            for (source, delay), term in reads.items()
        )
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
            reads=read,
            dynamics=dynamics,
            bias=self._bias(name, arriving, columns, next(iter(reads.values()))),
            recurrent=self._recurrent(name, arriving, columns),
            convolution=convolution,
        )

    def _weights(self, name: str, source: str, term: Term) -> Reals:
        size, columns = self._sizes[source], self._sizes[name]
        if isinstance(term, PlaneMap):
            assert term.weights is not None
            return self._finite(name, term.weights)
        rows, given = width(term, 0) or size, width(term, -1) or size
        if rows != size:
            raise NodeProblem(f"takes {rows} values, '{source}' gives {size}")
        if given != columns:
            raise NodeProblem(f"gets {given} values of '{source}' for {columns} neurons")
        if self._values + rows * given > MAX_VALUES:
            raise NodeProblem(f"{rows} x {given} weights, written out, are over {MAX_VALUES} with those before them")
        self._values += rows * given
        return self._finite(name, as_matrix(term, size))

    def _over_planes(self, name: str, source: str, term: PlaneMap, sources: list[str]) -> Convolution:
        """How a population reads the planes of `source`, which are its shape if it is the input."""
        if name in _sources(self._arriving[name]):
            raise NodeProblem("reads planes and itself; neurons of planes have no synapses onto themselves")
        if len(sources) > 1:
            names = " and ".join(f"'{one}'" for one in sources)
            raise NodeProblem(f"reads {names}, one of them over planes; a convolution or a pool reads one source, once")
        planes = self._convolutions[source].result if source in self._convolutions else None
        if planes is None and self._nodes[source].kind == "Input":
            planes = planes_of(self._nodes[source].arrays["shape"].reshape(-1)) or term.planes
        if planes is None:
            raise NodeProblem(
                f"reads planes of '{source}', which does not say its planes: an input's shape must be [channels, "
                "height, width], and neurons have planes where a convolution leads to them, before they are read"
            )
        if planes.neurons != self._sizes[source]:
            given = self._sizes[source]
            raise NodeProblem(f"reads planes of {planes}, {planes.neurons} values; '{source}' gives {given}")
        return term.convolution(planes)

    def _recurrent(self, name: str, arriving: Combination, neurons: int) -> Reals | None:
        if name not in _sources(arriving):
            return None
        found = [(delay, term) for (source, delay), term in arriving.terms.items() if source == name]
        if len(found) > 1:
            raise NodeProblem(f"reads itself {len(found)} times after different delays; one is supported")
        ((delay, term),) = found
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

    def _bias(self, name: str, arriving: Combination, neurons: int, term: Term) -> Reals | None:
        if isinstance(term, PlaneMap):
            return None if term.bias is None else self._finite(name, term.bias)
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


def _closed(waits: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Who waits for whom, over others too."""
    waits = waits.copy()
    for over in range(len(waits)):
        waits |= np.outer(waits[:, over], waits[over])
    return waits


def _passes_on(arriving: Combination, source: str) -> bool:
    """Whether what arrives is exactly what `source` sends."""
    term = arriving.terms.get((source, 0))
    passes = isinstance(term, np.ndarray) and is_identity(term)
    return len(arriving.terms) == 1 and passes and not arriving.constant.any()
