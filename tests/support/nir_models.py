"""NIR graphs for tests, and their meaning node by node: tau dv/dt = (v_leak - v) + r I by Euler, written anew."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.graph.convolution import Pool
from mimdsim.workload.interchange.model_file import Dynamics, ImportedNetwork, Population
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


def conv(
    made: int, read: int, kernel: tuple[int, ...], seed: int = 0, scale: float = 1.0, mean: float = 0.1, **more: Any
) -> NirNode:
    """A Conv2d, or for one extent a Conv1d, with weights and biases whose sums are exact."""
    numbers = np.random.default_rng(seed).normal(mean, scale, (made, read, *kernel))
    given = {"weight": np.round(numbers * 1024) / 1024, "bias": weights(1, made, seed + 1)[0] / 4}
    words = {"padding": more.pop("padding")} if isinstance(more.get("padding"), str) else {}
    given |= {name: np.array(least) for name, least in (("stride", 1), ("dilation", 1), ("groups", 1))}
    given |= {} if words else {"padding": np.array(0)}
    arrays = {name: np.asarray(values, np.float64) for name, values in {**given, **more}.items()}
    return NirNode(kind=f"Conv{len(kernel)}d", arrays=arrays, words=words)


def pool(kind: str, size: Any = (2, 2), stride: Any = (2, 2), padding: Any = (0, 0)) -> NirNode:
    return node(f"{kind}Pool2d", kernel_size=size, stride=stride, padding=padding)


def over(shape: tuple[int, ...], beta: Any = 0.75, *, dt: float = DT, v_reset: float = 0.0) -> NirNode:
    """A LIF of planes [channels, height, width], beta and threshold by channel."""
    wide = np.ones(shape)
    tau = dt / (1 - wide * np.reshape(np.asarray(beta, np.float64), (-1, *[1] * (len(shape) - 1))))
    return node("LIF", tau=tau, r=tau / dt, v_leak=0 * wide, v_threshold=wide, v_reset=v_reset * wide)


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
        self._lines = {
            name: [np.zeros(item.arrays["delay"].shape)] * round(float(item.arrays["delay"].flat[0]) / dt)
            for name, item in self._nodes.items()
            if item.kind == "Delay" and item.arrays["delay"].any()
        }

    def run(self, source: Any) -> Any:
        """What the output node gets [timesteps, outputs] for `source` [timesteps, inputs]."""
        rows = []
        for row in source:
            self._now, self._asked, self._row = {}, set(), row
            rows.append(np.asarray(self._value("output"), np.float64).reshape(-1))
            for name in self._nodes:
                self._value(name)
            for name, line in self._lines.items():
                line.append(sum(self._value(one) for one in self._before[name]))
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
            shape = self._nodes[name].arrays["shape"].astype(int)
            return self._now.setdefault(name, np.reshape(self._row, shape if shape.size > 1 else -1))
        if name in self._asked and self._nodes[name].kind in NEURONS:
            return self._sent.get(name, 0.0)
        self._asked.add(name)
        if name in self._lines:  # which needs nothing of this timestep
            return self._now.setdefault(name, self._lines[name].pop(0))
        got = sum(self._value(one) for one in self._before[name])
        self._now[name] = self._step(name, self._nodes[name], got)
        return self._now[name]

    def _step(self, name: str, item: NirNode, got: Any) -> Any:
        a = item.arrays
        if item.kind in ("Linear", "Affine"):
            return a["weight"] @ np.broadcast_to(got, a["weight"].shape[1:]) + a.get("bias", 0.0)
        if item.kind == "Flatten":
            return np.reshape(got, -1)
        if item.kind in ("Conv1d", "Conv2d"):
            return convolved(item, got)
        if item.kind in ("SumPool2d", "AvgPool2d"):
            kernel, stride, padding = (pair(a[key]) for key in ("kernel_size", "stride", "padding"))
            covered = windows(got, kernel, stride, padding)
            return covered.sum((3, 4)) if item.kind == "SumPool2d" else covered.mean((3, 4))
        if item.kind == "Scale":
            return a["scale"] * got
        if item.kind not in NEURONS:
            return got
        if np.ndim(got) == 3:  # one number for each channel is for all of its neurons
            a = {name: values[:, None, None] if values.ndim == 1 else values for name, values in a.items()}
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


def pair(values: Any) -> tuple[int, int]:
    flat = np.asarray(values).astype(int).reshape(-1)
    return int(flat[0]), int(flat[-1])


def windows(planes: Any, kernel: Any, stride: Any, padding: Any = (0, 0), dilation: Any = (1, 1)) -> Any:
    """[channels, places high, places wide, kernel height, kernel width] of planes [channels, height, width]."""
    (high, wide), (down, across) = padding, dilation
    padded = np.pad(planes, ((0, 0), (high, high), (wide, wide)))
    rows = range(0, padded.shape[1] - down * (kernel[0] - 1), stride[0])
    columns = range(0, padded.shape[2] - across * (kernel[1] - 1), stride[1])
    found = [
        [padded[:, y : y + down * kernel[0] : down, x : x + across * kernel[1] : across] for x in columns] for y in rows
    ]
    return np.array([[each[:, : kernel[0], : kernel[1]] for each in row] for row in found]).transpose(2, 0, 1, 3, 4)


def convolved(item: NirNode, got: Any) -> Any:
    """What a Conv1d or Conv2d gives for planes."""
    one, weight = item.kind == "Conv1d", item.arrays["weight"]
    planes, weight = (got[:, None], weight[:, :, None]) if one else (got, weight)
    numbers = {
        name: (least, int(item.arrays[name].flat[0])) if one else pair(item.arrays[name])
        for name, least in (("stride", 1), ("padding", 0), ("dilation", 1))
        if name in item.arrays
    }
    if item.words.get("padding") == "same":
        reach = [rate * (side - 1) // 2 for rate, side in zip(numbers["dilation"], weight.shape[2:], strict=True)]
        numbers["padding"] = reach[0], reach[1]
    made = np.einsum("ochw,cyxhw->oyx", weight, windows(planes, weight.shape[2:], **numbers))
    made = made + item.arrays["bias"][:, None, None]
    return made[:, 0] if one else made


def of_planes(each: Population, row: Any) -> tuple[Any, Dynamics]:
    """(currents [neurons], constants [neurons]) of neurons of planes that read a row of values."""
    convolution = each.convolution
    assert convolution is not None
    planes = pooled(convolution.before, np.reshape(row, convolution.planes.shape))
    window = convolution.window
    covered = windows(planes, window.kernel, window.stride, window.padding, window.dilation)
    groups, places = convolution.groups, covered.shape[1:]
    weight = each.weights.T.reshape(groups, -1, len(planes) // groups, *window.kernel)
    made = np.einsum("gochw,gcyxhw->goyx", weight, covered.reshape(groups, -1, *places)).reshape(-1, *places[:2])
    made = made if each.bias is None else made + each.bias[:, None, None]
    wide = convolution.result.positions
    constants = {
        item.name: np.repeat(values, wide)
        for item in dataclasses.fields(each.dynamics)
        if isinstance(values := getattr(each.dynamics, item.name), np.ndarray)
    }
    return pooled(convolution.after, made).reshape(-1), dataclasses.replace(each.dynamics, **constants)


def pooled(pool: Pool | None, planes: Any) -> Any:
    if pool is None:
        return planes
    covered = windows(planes, pool.window.kernel, pool.window.stride, pool.window.padding)
    return covered.sum((3, 4)) if pool.kind == "sum" else covered.mean((3, 4))


def run(network: ImportedNetwork, source: Any) -> list[Any]:
    """What every population sends, [timesteps, neurons], by the arrays A, B of the neutral record."""
    populations, names = network.populations, [name for name, _ in network.layers]
    states = [np.zeros((each.dynamics.states, each.neurons)) for each in populations]
    sent = [[np.zeros(each.neurons)] for each in populations]
    rows_of = {"input": [np.zeros(network.inputs), *source]} | dict(zip(names, sent, strict=True))
    for t in range(len(source)):
        for index, (each, sources) in enumerate(zip(populations, network.sources, strict=True)):
            row, *others = (rows_of[one.name][max(0, t + 1 - (one.lag or 0))] for one in sources)
            dynamics = each.dynamics
            if each.convolution:
                current, dynamics = of_planes(each, row)
            else:
                current = row @ each.weights + (0.0 if each.bias is None else each.bias)
            for other, (_, weights) in zip(others, each.reads[1:], strict=True):
                current = current + other @ weights
            own = sent[index][-1]
            if each.recurrent is not None:
                current = current + (own * each.recurrent if each.recurrence == "one_to_one" else own @ each.recurrent)
            states[index], out = advanced(dynamics, states[index], current, own)
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
