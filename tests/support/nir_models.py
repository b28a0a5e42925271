"""NIR graphs for tests, and their meaning node by node: tau dv/dt = (v_leak - v) + r I by Euler, written anew."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.workload.interchange.model_file import Dynamics, ImportedNetwork
from mimdsim.workload.interchange.nir_nodes import NEURONS, NirGraph, NirNode
from mimdsim.workload.interchange.nir_writing import write_nir

DT = 1e-4
Node = NirNode | NirGraph
Edges = list[tuple[str, str]]


def node(kind: str, metadata: dict[str, str] | None = None, **arrays: Any) -> NirNode:
    """A node with arrays of whatever is given."""
    made = {name: np.asarray(values, np.float64) for name, values in arrays.items()}
    return NirNode(kind=kind, arrays=made, metadata=metadata or {})


def leaky(neurons: int, beta: Any = 0.9, *, dt: float = DT, reset: float | None = 0.0, **more: Any) -> NirNode:
    """A LIF as frameworks write it: tau = dt / (1 - beta), r = tau / dt."""
    tau = dt / (1 - np.broadcast_to(np.asarray(beta, np.float64), (neurons,)))
    given = {"tau": tau, "r": tau / dt, "v_leak": np.zeros(neurons), "v_threshold": np.ones(neurons)}
    if reset is not None:
        given["v_reset"] = np.full(neurons, reset)
    return node("LIF", **{**given, **more})


def synaptic(neurons: int, alpha: Any = 0.7, beta: Any = 0.9, *, dt: float = DT, **more: Any) -> NirNode:
    """A CubaLIF as frameworks write it."""
    wide = np.ones(neurons)
    tau_syn, tau_mem = dt / (1 - wide * alpha), dt / (1 - wide * beta)
    given = {"tau_syn": tau_syn, "tau_mem": tau_mem, "r": tau_mem / dt, "w_in": tau_syn / dt}
    return node("CubaLIF", **{**given, "v_leak": 0 * wide, "v_threshold": wide, "v_reset": 0 * wide, **more})


def graph(nodes: dict[str, Node], edges: Edges | None = None, *, inputs: Any = 6, outputs: Any = 3) -> NirGraph:
    """A file with 'input' and 'output' added; without edges the nodes stand in a row."""
    whole: dict[str, Node] = {"input": node("Input", shape=np.atleast_1d(inputs)), **nodes}
    whole["output"] = node("Output", shape=np.atleast_1d(outputs))
    names = list(whole)
    row = list(itertools.pairwise(names))
    return NirGraph(nodes=whole, edges=tuple(row if edges is None else edges))


def weights(outputs: int, inputs: int, seed: int = 0, scale: float = 1.0) -> Any:
    """[outputs, inputs], multiples of 2^-10 so that sums are exact in any order."""
    return np.round(np.random.default_rng(seed).normal(0.2, scale, (outputs, inputs)) * 1024) / 1024


def nested(recurrent: NirNode, neurons: NirNode, count: int) -> NirGraph:
    """A recurrent layer in a graph of its own, as snnTorch writes it."""
    nodes: dict[str, Node] = {
        "input": node("Input", shape=[count]),
        "lif": neurons,
        "w_rec": recurrent,
        "output": node("Output", shape=[count]),
    }
    edges = (("input", "lif"), ("lif", "w_rec"), ("w_rec", "lif"), ("lif", "output"))
    return NirGraph(nodes=nodes, edges=edges)


def written(folder: Path, file: NirGraph, name: str = "model.nir") -> Path:
    """The file's path."""
    write_nir(folder / name, file)
    return folder / name


def spike_trains(timesteps: int, inputs: int, seed: int = 0, activity: float = 0.4) -> Any:
    """0/1 [timesteps, inputs]"""
    return (np.random.default_rng(seed).random((timesteps, inputs)) < activity).astype(np.float64)


class NodeByNode:
    """Runs a graph as it stands in the file: every node asks those before it, a neuron that is asked while it is being
    worked out says what it sent a timestep ago. dt in seconds; reset by value or, 'subtract', by the threshold."""

    def __init__(self, file: NirGraph, dt: float, subtract: bool = False, r_is_one_adds: bool = True):
        self._nodes: dict[str, NirNode] = {}
        self._before: dict[str, list[str]] = {}
        self._open(file, "")
        self._dt, self._subtract, self._adds = dt, subtract, r_is_one_adds
        self._state: dict[str, Any] = {}
        self._sent: dict[str, Any] = {}

    def run(self, source: Any) -> Any:
        """What the output node gets [timesteps, outputs] for `source` [timesteps, inputs]."""
        rows = []
        for row in source:
            self._now, self._asked, self._row = {}, set(), row
            rows.append(np.asarray(self._value("output"), np.float64))
            for name in self._nodes:
                self._value(name)
            self._sent = {name: self._now[name] for name in self._nodes}
        return np.stack(rows)

    def _open(self, inner: NirGraph, prefix: str) -> None:
        for name, item in inner.nodes.items():
            if isinstance(item, NirGraph):
                self._open(item, f"{prefix}{name}.")
            else:
                self._nodes[prefix + name] = item
                self._before.setdefault(prefix + name, [])
        for start, end in inner.edges:
            start += ".output" if isinstance(inner.nodes[start], NirGraph) else ""
            end += ".input" if isinstance(inner.nodes[end], NirGraph) else ""
            self._before.setdefault(prefix + end, []).append(prefix + start)

    def _value(self, name: str) -> Any:
        if name in self._now:
            return self._now[name]
        if name == "input":
            return self._now.setdefault(name, self._row)
        if name in self._asked and self._nodes[name].kind in NEURONS:
            return self._sent.get(name, 0.0)
        self._asked.add(name)
        got = sum(self._value(one) for one in self._before[name])
        self._now[name] = self._step(name, self._nodes[name], got)
        return self._now[name]

    def _step(self, name: str, item: NirNode, got: Any) -> Any:
        a = item.arrays
        if item.kind in ("Linear", "Affine"):
            return a["weight"] @ np.broadcast_to(got, a["weight"].shape[1:]) + a.get("bias", 0.0)
        if item.kind == "Scale":
            return a["scale"] * got
        if item.kind == "Delay":
            line = self._state.setdefault(name, [0.0] * round(float(a["delay"].flat[0]) / self._dt))
            line.append(got)
            return line.pop(0)
        if item.kind not in NEURONS:
            return got
        if item.kind == "Threshold":
            return (got > a["threshold"]).astype(np.float64)
        current, v = self._state.get(name, (0.0, a.get("v_leak", 0.0)))  # a neuron starts at rest
        if "tau_syn" in a:
            current = current + self._dt / a["tau_syn"] * (-current + a.get("w_in", 1.0) * got)
            got = current
        if item.kind == "IF":
            v = v + a["r"] * got * (1.0 if np.all(a["r"] == 1) else self._dt)
        else:
            v = v + self._dt / a.get("tau", a.get("tau_mem")) * (a["v_leak"] - v + a["r"] * got)
        if self._subtract and name in self._sent and "v_threshold" in a:
            v = v - a["v_threshold"] * self._sent[name]
        if "v_threshold" not in a:
            self._state[name] = current, v
            return v
        fired = v > a["v_threshold"]
        kept = v if self._subtract else np.where(fired, a.get("v_reset", 0.0), v)
        self._state[name] = current, kept
        return fired.astype(np.float64)


def run(network: ImportedNetwork, source: Any) -> list[Any]:
    """What every population sends, [timesteps, neurons], by the arrays A, B of the neutral record."""
    populations = network.populations
    states = [np.zeros((each.dynamics.states, each.neurons)) for each in populations]
    sent = [[np.zeros(each.neurons)] for each in populations]
    coming = [list(source)]
    for t in range(len(source)):
        for index, each in enumerate(populations):
            before = coming[0] if index == 0 else sent[index - 1][1:]
            row = before[t - each.delay] if t >= each.delay else np.zeros(each.inputs)
            current = row @ each.weights + (0.0 if each.bias is None else each.bias)
            own = sent[index][-1]
            if each.recurrent is not None:
                current = current + (own * each.recurrent if each.recurrence == "one_to_one" else own @ each.recurrent)
            states[index], out = advanced(each.dynamics, states[index], current, own)
            sent[index].append(out)
    return [np.stack(rows[1:]) for rows in sent]


def advanced(dynamics: Dynamics, x: Any, current: Any, fired: Any) -> tuple[Any, Any]:
    """(states, what is sent) a timestep later."""
    a, b = dynamics.matrices()
    x = x.copy()
    threshold = 0.0 if dynamics.threshold is None else dynamics.threshold
    value = 0.0 if dynamics.reset_value is None else dynamics.reset_value - dynamics.rest
    if dynamics.reset == "zero":
        x[0] = np.where(fired > 0, value, x[0])
    elif dynamics.reset == "subtract_decayed":
        x[0] -= threshold * fired
    x = np.einsum("ijn,jn->in", a, x) + b * current
    if dynamics.reset == "zero_after":
        x[0] = np.where(fired > 0, value, x[0])
    elif dynamics.reset == "subtract":
        x[0] -= threshold * fired
    if dynamics.threshold is None:
        return x, x[0] + dynamics.rest
    return x, (x[0] + dynamics.rest > threshold).astype(np.float64)
