"""The vocabulary of a NIR file: node types with their arrays, the graph that is read, and its planes.

Source: NIR (neuromorphic intermediate representation), package `nir` 1.0.8; files of older versions differ in that
neurons have no `v_reset` (their documentation then subtracted the threshold, newer versions reset to a value).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.graph.convolution import Convolution, Pair, Planes, Pool, Window

Reals = npt.NDArray[np.float64]

MAX_NODES = 4096  # assumed: the largest published graphs have some hundred nodes
MAX_EDGES = 4 * MAX_NODES
MAX_DEPTH = 8  # assumed: frameworks nest one level, a recurrent layer in a network
MAX_NAME = 200
MAX_VALUES = 1 << 25  # assumed: 33 million weights, some four times what fits the memory of a chip
GRAPH = "NIRGraph"


# What is read: the arrays of every node type. Delays are in seconds, as are tau.
NODE_TYPES: dict[str, tuple[str, ...]] = {
    "Input": ("shape",),
    "Output": ("shape",),
    "Linear": ("weight",),
    "Affine": ("weight", "bias"),
    "Scale": ("scale",),
    "Flatten": (),
    "Conv1d": ("weight", "bias", "stride", "padding", "dilation", "groups", "input_shape"),
    "Conv2d": ("weight", "bias", "stride", "padding", "dilation", "groups", "input_shape"),
    "SumPool2d": ("kernel_size", "stride", "padding"),
    "AvgPool2d": ("kernel_size", "stride", "padding"),
    "Delay": ("delay",),
    "Threshold": ("threshold",),
    "IF": ("r", "v_threshold", "v_reset"),
    "LI": ("tau", "r", "v_leak"),
    "LIF": ("tau", "r", "v_leak", "v_threshold", "v_reset"),
    "CubaLI": ("tau_syn", "tau_mem", "r", "v_leak", "w_in"),
    "CubaLIF": ("tau_syn", "tau_mem", "r", "v_leak", "v_threshold", "v_reset", "w_in"),
}
OPTIONAL = ("v_reset", "w_in", "input_shape")
WORDS = ("padding",)  # these may be a word instead of an array
POOLS = {"SumPool2d": "sum", "AvgPool2d": "average"}
OF_PLANES = ("Conv1d", "Conv2d", *POOLS)
NEURONS = frozenset({"Threshold", "IF", "LI", "LIF", "CubaLI", "CubaLIF"})
# Known node types that are not supported, with what would be needed.
WANTING = {
    "I": "a neuron that adds up its input and never fires (an integrator without threshold)",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class NirNode:
    """A node: its type, its arrays in the shapes of the file (float64), what has a word in place of an array, and text
    of its metadata."""

    kind: str
    arrays: dict[str, Reals] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class NirGraph:
    """Nodes by name (nested graphs among them) and edges (from, to)."""

    nodes: dict[str, NirNode | NirGraph]
    edges: tuple[tuple[str, str], ...]


PASSES_ON = NirNode(kind="Flatten")  # the inputs and outputs of nested graphs pass values through unchanged


class NodeProblem(Exception):
    """A node, or two that follow each other, cannot be a layer; the caller says which."""


def flatten(path: Path, graph: NirGraph) -> tuple[dict[str, NirNode], list[tuple[str, str]]]:
    """(nodes by name, 'outer/inner' for nested ones; edges, each once) of a graph and of those in it.

    Raises DescriptionError for nodes that are not supported, edges to nodes that are not there, nested graphs without
    exactly one input and output, and graphs that share a name.
    """
    nodes: dict[str, NirNode] = {}
    edges: dict[tuple[str, str], None] = {}
    unsupported: dict[str, list[str]] = {}
    problems: list[str] = []

    def gate(inner: NirGraph, full: str, kind: str) -> str:
        """The node in a nested graph that stands for it in edges of the outer one."""
        found = [name for name, node in inner.nodes.items() if isinstance(node, NirNode) and node.kind == kind]
        if len(found) != 1:
            problems.append(f"the graph '{full}' has {len(found)} nodes {kind}; one is needed")
        return f"{full}/{found[0]}" if found else full

    def add(outer: NirGraph, prefix: str) -> None:
        enters = {name: prefix + name for name in outer.nodes}
        leaves = dict(enters)
        for name, node in outer.nodes.items():
            full = prefix + name
            if isinstance(node, NirGraph):
                add(node, f"{full}/")
                enters[name], leaves[name] = gate(node, full, "Input"), gate(node, full, "Output")
            elif full in nodes:
                problems.append(f"two nodes are called '{full}'")
            elif node.kind not in NODE_TYPES:
                unsupported.setdefault(node.kind, []).append(full)
            else:
                nodes[full] = PASSES_ON if prefix and node.kind in ("Input", "Output") else node
        for start, end in outer.edges:
            missing = [name for name in (start, end) if name not in outer.nodes]
            if missing:
                problems.append(f"an edge joins '{start}' and '{end}', but there is no '{missing[0]}'")
            else:
                edges[leaves[start], enters[end]] = None

    add(graph, "")
    kinds = []
    for kind, names in unsupported.items():
        listed = ", ".join(f"'{name}'" for name in names[:6]) + (" ..." if len(names) > 6 else "")
        need = WANTING.get(kind)
        why = f"needs {need}" if need else f"is not known; known are {', '.join(NODE_TYPES)}"
        kinds.append(f"{kind} ({listed}) {why}")
    if kinds or problems:
        raise DescriptionError(str(path), [*kinds, *problems][:40])
    return nodes, list(edges)


# ---- convolutions and pools of a NIR graph: how a population reads planes, put together node by node


T = TypeVar("T")
PADDING = "padding"  # numbers, or a word


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaneMap:
    """A pool, weights and another pool, each of which may be missing, of planes that the source says.

    weights [channels read by a group * taps, channels made] of a window (None: all of the planes), bias one for each
    of these; sides: height and width of what the weights read, where the node says them.
    """

    before: Pool | None = None
    window: Window | None = None
    weights: Reals | None = None
    bias: Reals | None = None
    after: Pool | None = None
    sides: tuple[int | None, int | None] = (None, None)
    groups: int = 1

    @property
    def planes(self) -> Planes | None:
        """Of the source, as far as the nodes say them."""
        high, wide = self.sides
        if self.before or self.window is None or self.weights is None or high is None or wide is None:
            return None
        return Planes(channels=self.groups * len(self.weights) // self.window.taps, height=high, width=wide)

    def convolution(self, planes: Planes) -> Convolution:
        """Of a source of `planes`; raises NodeProblem for maps without weights and windows that do not fit."""
        weights = self.weights
        if weights is None:
            raise NodeProblem("gets pools of planes without weights; a layer has weights")
        read = _fits(lambda: self.before.over(planes) if self.before else planes)
        for said, side in zip(self.sides, (read.height, read.width), strict=True):
            if said not in (None, side):
                raise NodeProblem(f"reads planes of {read}; its convolution is for a side of {said}, not {side}")
        window = self.window or Window.whole(read)
        covers = read.channels * window.taps
        if covers != len(weights) * self.groups:
            raise NodeProblem(f"has weights for {len(weights) * self.groups} inputs of a window that covers {covers}")
        channels, groups = int(weights.shape[1]), self.groups
        made = partial(Convolution, planes=planes, window=window, channels=channels, groups=groups)
        return _fits(lambda: bounded(made(before=self.before, after=self.after)))

    def through(self, node: NirNode) -> PlaneMap:
        """What comes of it by a convolution, a pool or a matrix; raises NodeProblem for what no layer does."""
        if node.kind in POOLS:
            pool = _fits(lambda: Pool(kind=POOLS[node.kind], window=_window(node, _pair(node, "kernel_size"))))
            if (self.before if self.weights is None else self.after) is not None:
                raise NodeProblem("follows another pool; a layer has one before its weights and one after")
            return replace(self, before=pool) if self.weights is None else replace(self, after=pool)
        if "weight" not in node.arrays:
            raise NodeProblem(
                "follows a convolution or a pool, which only pools, weights and neurons may; fold a scale into weights"
            )
        if self.weights is not None:
            raise NodeProblem("follows a convolution without neurons between both; put neurons there")
        weight, one = node.arrays["weight"], node.kind == "Conv1d"
        extents = {"Conv1d": 3, "Conv2d": 4}.get(node.kind, 2)
        if weight.ndim != extents:
            raise NodeProblem(f"'weight' has the shape {list(weight.shape)}; {extents} extents are needed")
        bias = node.arrays["bias"].reshape(-1) if "bias" in node.arrays else None
        if bias is not None:
            if bias.size not in (1, len(weight)):
                raise NodeProblem(f"'bias' has {bias.size} values for {len(weight)} channels")
            bias = np.broadcast_to(bias, (len(weight),)) if bias.any() else None
        made = replace(self, weights=weight.reshape(len(weight), -1).T, bias=bias)
        if extents == 2:
            return made
        groups = node.arrays["groups"].reshape(-1)
        if groups.size != 1 or not 1 <= groups[0] <= MAX_VALUES or groups[0] % 1:
            raise NodeProblem(f"has {groups[:4].tolist()} groups; one whole number of at least 1 is needed")
        high, wide = (1, *weight.shape[2:]) if one else weight.shape[2:]
        sides: tuple[int | None, int | None] = (1, None) if one else (None, None)
        if "input_shape" in node.arrays:
            sides = _pair(node, "input_shape", one)
            if min(sides) < 1:
                raise NodeProblem(f"'input_shape' is {sides}; at least 1 is needed")
        return replace(made, window=_window(node, (int(high), int(wide))), sides=sides, groups=int(groups[0]))


def bounded(convolution: Convolution) -> Convolution:
    """The same; raises MappingError for one whose planes or windows have too many values to be written out."""
    planes, read, made = convolution.planes, convolution.read, convolution.made
    result = convolution.result
    taps = [made.positions * convolution.window.taps]
    taps += [read.positions * convolution.before.window.taps] if convolution.before else []
    taps += [result.positions * convolution.after.window.taps] if convolution.after else []
    if min(*planes.shape, convolution.channels) < 1:
        raise MappingError(f"planes of {planes} and {convolution.channels} channels: at least 1 of each is needed")
    if max(planes.neurons, read.neurons, made.neurons, convolution.fan_in * convolution.channels, *taps) > MAX_VALUES:
        raise MappingError(
            f"planes of {planes}, {read} and {made} take over {MAX_VALUES} neurons, or windows over them"
        )
    return convolution


def planes_of(shape: Reals) -> Planes | None:
    """Of a checked shape [channels, height, width] or [channels, length]; None for any other."""
    if shape.size not in (2, 3):
        return None
    channels, *sides = map(int, shape.tolist())
    return Planes(channels=channels, height=sides[0] if len(sides) == 2 else 1, width=sides[-1])


def _fits(make: Callable[[], T]) -> T:
    """What is made; raises NodeProblem where a window cannot be."""
    try:
        return make()
    except MappingError as problem:
        raise NodeProblem(str(problem)) from None


def _window(node: NirNode, size: Pair) -> Window:
    """The window of a node; one number is for both sides, of one dimension for the width."""
    one, word = node.kind == "Conv1d", node.words.get(PADDING, "")
    stride = _pair(node, "stride", one)
    dilation = _pair(node, "dilation", one) if "dilation" in node.arrays else (1, 1)
    if word == "same":
        spare = [reach * (side - 1) for side, reach in zip(size, dilation, strict=True)]
        if any(each % 2 for each in spare) or stride != (1, 1):
            raise NodeProblem("its padding 'same' is not the same on both sides; give it as numbers")
        padding = spare[0] // 2, spare[1] // 2
    elif word not in ("", "valid"):
        raise NodeProblem(f"its padding is '{word}'; numbers, 'same' and 'valid' are known")
    else:
        padding = (0, 0) if word else _pair(node, PADDING, one)
    return _fits(lambda: Window(kernel=size, stride=stride, padding=padding, dilation=dilation))


def _pair(node: NirNode, name: str, one: bool = False) -> Pair:
    """Of the height and the width; in one dimension the height is as of a single row."""
    values = node.arrays[name].reshape(-1) if name in node.arrays else np.zeros(0)
    if values.size not in ((1,) if one else (1, 2)) or np.any(values % 1) or np.any(np.abs(values) > MAX_VALUES):
        wanted = "one" if one else "one or two"
        raise NodeProblem(f"'{name}' is {values[:4].tolist()}; {wanted} whole numbers are needed")
    least = 0 if name == PADDING else 1
    return (least, int(values[0])) if one else (int(values[0]), int(values[-1]))


def by_channel(node: NirNode, planes: Planes) -> NirNode:
    """Neurons of planes with one number for each channel in place of one for each neuron; raises NodeProblem where
    those of a channel differ."""
    arrays = {}
    for name, values in node.arrays.items():
        if values.size == planes.neurons and planes.positions > 1:
            of_channels = values.reshape(planes.channels, planes.positions)
            if np.any(of_channels != of_channels[:, :1]):
                raise NodeProblem(f"'{name}' differs within a channel; neurons of planes have one for each channel")
            values = of_channels[:, 0]
        arrays[name] = values
    return replace(node, arrays=arrays)
