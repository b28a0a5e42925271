"""A training graph run on the CPU in the order in which a GPU strategy takes its operations.

Time stays an outer loop in loop strategies. Otherwise every value is made for all timesteps before what depends on it:
a matrix product takes the rows of all timesteps at once, a summed weight gradient reduces over them too, and only what
feeds itself from one timestep to the next walks the timesteps, alone in its kernel; or, if the strategy scans and it is
linear, becomes a matrix and a vector for each timestep, which are combined in log2(timesteps) rounds. Small sizes.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from gpu_dense_meaning import DenseSpikes, densify, evaluate, product

from mimdsim.gpu.dependence import (
    MATRIX_PRODUCTS,
    check_hoistable,
    dependence_graph,
    fused_accumulations,
    walked_operations,
)
from mimdsim.gpu.kernels import check_lists
from mimdsim.gpu.strategies import STRATEGIES, Strategy
from mimdsim.graph.operations import interpret
from mimdsim.graph.records import Graph, Operation, Scan, SparseSpikes


def execute(graph: Graph, inputs: dict[str, Any], *, strategy: str) -> dict[str, Any]:
    """All values of `graph` by name, made in the order of `strategy`; spikes come as DenseSpikes, or as lists
    from a strategy that follows them.

    Raises MappingError where the strategy is not legal for the graph, KeyError for a missing input.
    """
    how = STRATEGIES[strategy]
    if how.lists:
        return _on_lists(graph, inputs)
    batched = how.hoisted
    dtype = next(value.dtype for value in inputs.values() if getattr(value, "dtype", np.dtype("i")).kind == "f")
    values: dict[str, Any] = {}
    for name in graph.inputs:
        value = inputs[name]
        sparse = isinstance(value, SparseSpikes)
        values[name] = densify(value, graph.value(name).shape[-1], dtype) if sparse else value
    for op in graph.operations:
        given = tuple(values[name] for name in op.inputs)
        if op.kind == "scan":
            made = _batched(op, given, how) if batched else _looped(op.attributes, given)
        else:
            made = _one(op, given)
        values.update(zip(op.outputs, made, strict=True))
    return values


def _on_lists(graph: Graph, inputs: dict[str, Any]) -> dict[str, Any]:
    """Timestep by timestep along the lists, each weight gradient added to the sum: the interpreter's own order."""
    for op in graph.operations:
        if op.kind == "scan":
            check_lists(op)
    return interpret(graph, inputs)


def _one(op: Operation, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (product(op.kind, given, op.attributes),) if op.kind in MATRIX_PRODUCTS else evaluate(op, given)


def _split(scan: Scan, given: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...], dict[str, Any]]:
    """Initial carries, sequences, constants."""
    carries, slices = len(scan.carries), len(scan.slices)
    constants = dict(zip(scan.constants, given[carries + slices :], strict=True))
    return list(given[:carries]), given[carries : carries + slices], constants


def _order(scan: Scan) -> list[int]:
    return list(reversed(range(scan.timesteps))) if scan.reverse else list(range(scan.timesteps))


def _at(sequence: Any, t: int) -> Any:
    """A sequence at timestep t; nothing before the first."""
    if isinstance(sequence, DenseSpikes):
        return DenseSpikes(fired=_at(sequence.fired, t), listed=_at(sequence.listed, t))
    return np.zeros_like(sequence[0]) if t < 0 else sequence[t]


def _stacked(items: list[Any]) -> Any:
    if isinstance(items[0], DenseSpikes):
        return DenseSpikes(
            fired=np.stack([item.fired for item in items]), listed=np.stack([item.listed for item in items])
        )
    return np.stack(items)


def _looped(scan: Scan, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """One timestep after another, weight gradients added up by their products."""
    carries, sequences, constants = _split(scan, given)
    stacks: dict[str, list[Any]] = {name: [None] * scan.timesteps for name in scan.stacked}
    for t in _order(scan):
        values = dict(constants)
        values.update({carry.enters: value for carry, value in zip(scan.carries, carries, strict=True)})
        values.update({item.inside: _at(seq, t + item.shift) for item, seq in zip(scan.slices, sequences, strict=True)})
        for op in scan.body.operations:
            values.update(zip(op.outputs, _one(op, tuple(values[name] for name in op.inputs)), strict=True))
        carries = [values[carry.leaves] for carry in scan.carries]
        for name in scan.stacked:
            stacks[name][t] = values[name]
    return (*carries, *(_stacked(stacks[name]) for name in scan.stacked))


def _batched(op: Operation, given: tuple[Any, ...], how: Strategy) -> tuple[Any, ...]:
    """All timesteps of a value at once wherever it does not feed itself."""
    if not how.persistent:
        check_hoistable(op, how.name)
    scan: Scan = op.attributes
    starts, sequences, constants = _split(scan, given)
    walk = _Walk(scan, starts, constants, scans=how.scans)
    for item, sequence in zip(scan.slices, sequences, strict=True):
        walk.values[item.inside] = _stacked([_at(sequence, t + item.shift) for t in range(scan.timesteps)])
    walk.all()
    finals = [walk.final(carry.leaves) for carry in scan.carries]
    return (*finals, *(walk.values[name] for name in scan.stacked))


class _Walk:
    """The body values of one scan, each a stack over timesteps, made group by group."""

    def __init__(self, scan: Scan, starts: list[Any], constants: dict[str, Any], *, scans: bool):
        self.scan = scan
        self.walked = walked_operations(scan) if scans else {op.name for op in scan.body.operations}
        self.values: dict[str, Any] = {}
        self.constants = constants
        self.starts = {carry.enters: start for carry, start in zip(scan.carries, starts, strict=True)}
        self.leaves_of = {carry.enters: carry.leaves for carry in scan.carries}
        self.totals: dict[str, Any] = {}  # summed by one product over all timesteps
        self.sums = fused_accumulations(scan)

    def all(self) -> None:
        depends = dependence_graph(self.scan, across_timesteps=True)
        parts = nx.condensation(depends)
        for part in nx.lexicographical_topological_sort(parts):
            members = set(parts.nodes[part]["members"])
            if len(members) == 1 and not any(depends.has_edge(name, name) for name in members):
                self._whole(members.pop())
            else:
                self._walked(members)

    def final(self, leaves: str) -> Any:
        """What leaves the last timestep."""
        return self.totals[leaves] if leaves in self.totals else self._get(leaves, _order(self.scan)[-1])

    def _get(self, name: str, t: int) -> Any:
        if name in self.constants:
            return self.constants[name]
        value = self.values[name]
        return value.at(t) if isinstance(value, DenseSpikes) else value[t]

    def _whole(self, name: str) -> None:
        """A value that does not depend on itself: for all timesteps at once."""
        if name in self.values or name in self.constants:
            return
        times = range(self.scan.timesteps)
        if name in self.starts:
            order = _order(self.scan)
            before = dict(zip(order[1:], order, strict=False))
            leaves = self.leaves_of[name]
            entered = [self._get(leaves, before[t]) if t in before else self.starts[name] for t in times]
            self.values[name] = _stacked(entered)
            return
        op = self.scan.body.producer(name)
        assert op is not None  # inputs are slices, carries or constants
        if op.name in self.sums:
            return  # made where it is summed
        if MATRIX_PRODUCTS.get(op.kind):
            self.values[name] = product(op.kind, self._operands(op), op.attributes)
            return
        made = [_one(op, tuple(self._get(item, t) for item in op.inputs)) for t in times]
        for index, output in enumerate(op.outputs):
            self.values[output] = _stacked([each[index] for each in made])

    def _operands(self, op: Operation) -> tuple[Any, ...]:
        return tuple(self.constants[item] if item in self.constants else self.values[item] for item in op.inputs)

    def _walked(self, members: set[str]) -> None:
        """Values that feed each other from one timestep to the next: timestep by timestep."""
        ops = [op for op in self.scan.body.operations if members & set(op.outputs)]
        summed = {add: op_name for op_name, add in self.sums.items()}
        if len(ops) == 1 and ops[0].name in summed:
            maker = next(op for op in self.scan.body.operations if op.name == summed[ops[0].name])
            held = next(name for name in ops[0].inputs if name in self.starts)
            self.totals[ops[0].outputs[0]] = self.starts[held] + product(
                maker.kind, self._operands(maker), maker.attributes
            )
            return
        carried = {name: self.starts[name] for name in members if name in self.starts}
        order = _order(self.scan)
        entering = [] if any(op.name in self.walked for op in ops) else self._scanned(ops, carried, order)
        stacks: dict[str, list[Any]] = {}
        for at, t in enumerate(order):
            now = self._step(ops, entering[at] if entering else carried, t)
            for name, value in now.items():
                stacks.setdefault(name, [None] * self.scan.timesteps)[t] = value
            carried = {name: now[self.leaves_of[name]] for name in carried}
        self.values.update({name: _stacked(items) for name, items in stacks.items()})

    def _step(self, ops: list[Operation], carried: dict[str, Any], t: int) -> dict[str, Any]:
        """What enters timestep t and what `ops` make of it."""
        now = dict(carried)
        for op in ops:
            given = tuple(now[item] if item in now else self._get(item, t) for item in op.inputs)
            now.update(zip(op.outputs, _one(op, given), strict=True))
        return now

    def _scanned(self, ops: list[Operation], start: dict[str, Any], order: list[int]) -> list[dict[str, Any]]:
        """What enters each timestep, from the linear maps of all of them; none is computed from the one before."""
        begin = _flat(start)

        def leaving(state: np.ndarray, t: int) -> np.ndarray:
            now = self._step(ops, _unflat(state, start), t)
            return _flat({name: now[self.leaves_of[name]] for name in start})

        maps = []
        for t in order:
            shift = leaving(np.zeros_like(begin), t)
            maps.append((np.stack([leaving(unit, t) - shift for unit in np.eye(len(begin))], axis=1), shift))
        reach = 1
        while reach < len(maps):  # each map is combined with that of the timesteps `reach` before it
            maps = [
                one if at < reach else (one[0] @ maps[at - reach][0], one[0] @ maps[at - reach][1] + one[1])
                for at, one in enumerate(maps)
            ]
            reach *= 2
        return [start, *(_unflat(matrix @ begin + shift, start) for matrix, shift in maps[:-1])]


def _flat(carried: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in carried.values()])


def _unflat(state: np.ndarray, like: dict[str, Any]) -> dict[str, Any]:
    ends = np.cumsum([np.size(value) for value in like.values()])[:-1]
    parts = np.split(state, ends)
    return {name: part.reshape(np.shape(value)) for (name, value), part in zip(like.items(), parts, strict=True)}
