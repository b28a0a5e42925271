"""The vocabulary of a NIR file: node types with their arrays, and the graph that is read.

Source: NIR (neuromorphic intermediate representation), package `nir` 1.0.8; files of older versions differ in that
neurons have no `v_reset` (their documentation then subtracted the threshold, newer versions reset to a value).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DescriptionError

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
