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


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """The arrays of a node type: needed ones, and those that may be missing."""

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.needed + self.optional


# What is read. Delays are in seconds, as are tau.
NODE_TYPES: dict[str, NodeType] = {
    "Input": NodeType(needed=("shape",)),
    "Output": NodeType(needed=("shape",)),
    "Linear": NodeType(needed=("weight",)),
    "Affine": NodeType(needed=("weight", "bias")),
    "Scale": NodeType(needed=("scale",)),
    "Flatten": NodeType(),
    "Delay": NodeType(needed=("delay",)),
    "Threshold": NodeType(needed=("threshold",)),
    "IF": NodeType(needed=("r", "v_threshold"), optional=("v_reset",)),
    "LI": NodeType(needed=("tau", "r", "v_leak")),
    "LIF": NodeType(needed=("tau", "r", "v_leak", "v_threshold"), optional=("v_reset",)),
    "CubaLI": NodeType(needed=("tau_syn", "tau_mem", "r", "v_leak"), optional=("w_in",)),
    "CubaLIF": NodeType(needed=("tau_syn", "tau_mem", "r", "v_leak", "v_threshold"), optional=("v_reset", "w_in")),
}
NEURONS = frozenset({"Threshold", "IF", "LI", "LIF", "CubaLI", "CubaLIF"})
SHARED_WEIGHTS = "one weight shared by many connections (a convolution), which layers here do not have"
POOLING = "sums over neighbouring neurons between two layers, which layers here do not have"
# Known node types that are not supported, with what would be needed.
WANTING = {
    "Conv1d": SHARED_WEIGHTS,
    "Conv2d": SHARED_WEIGHTS,
    "SumPool2d": POOLING,
    "AvgPool2d": POOLING,
    "I": "a neuron that adds up its input and never fires (an integrator without threshold)",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class NirNode:
    """A node: its type, its arrays in the shapes of the file (float64), and text of its metadata."""

    kind: str
    arrays: dict[str, Reals] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class NirGraph:
    """Nodes by name (nested graphs among them) and edges (from, to)."""

    nodes: dict[str, NirNode | NirGraph]
    edges: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class NirFile:
    """A graph and the version of NIR that wrote it ('' if the file does not say)."""

    version: str
    graph: NirGraph


PASSES_ON = NirNode(kind="Flatten")  # the inputs and outputs of nested graphs pass values through unchanged


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatGraph:
    """Nodes by name, 'outer/inner' for nested ones; edges (from, to), each once."""

    nodes: dict[str, NirNode]
    edges: tuple[tuple[str, str], ...]


def flattened(path: Path, graph: NirGraph) -> FlatGraph:
    """The nodes and edges of a graph and of those in it.

    Raises DescriptionError for nodes that are not supported, edges to nodes that are not there, nested graphs without
    exactly one input and output, and graphs that share a name.
    """
    made = _Opened(str(path))
    made.open(graph, "")
    made.refuse()
    return FlatGraph(nodes=made.nodes, edges=tuple(dict.fromkeys(made.edges)))


class _Opened:
    def __init__(self, where: str) -> None:
        self._where = where
        self.nodes: dict[str, NirNode] = {}
        self.edges: list[tuple[str, str]] = []
        self._unsupported: dict[str, list[str]] = {}
        self._problems: list[str] = []

    def open(self, graph: NirGraph, prefix: str) -> None:
        """Add a graph's nodes under `prefix`."""
        enters: dict[str, str] = {}
        leaves: dict[str, str] = {}
        for name, node in graph.nodes.items():
            full = prefix + name
            enters[name] = leaves[name] = full
            if isinstance(node, NirGraph):
                self.open(node, f"{full}/")
                enters[name], leaves[name] = (self._gate(node, full, kind) for kind in ("Input", "Output"))
            elif full in self.nodes:
                self._problems.append(f"two nodes are called '{full}'")
            elif node.kind not in NODE_TYPES:
                self._unsupported.setdefault(node.kind, []).append(full)
            else:
                is_gate = prefix and node.kind in ("Input", "Output")
                self.nodes[full] = PASSES_ON if is_gate else node
        for start, end in graph.edges:
            missing = [name for name in (start, end) if name not in graph.nodes]
            if missing:
                self._problems.append(f"an edge joins '{start}' and '{end}', but there is no '{missing[0]}'")
            else:
                self.edges.append((leaves[start], enters[end]))

    def refuse(self) -> None:
        """Raise DescriptionError if there were problems."""
        problems = []
        for kind, names in self._unsupported.items():
            listed = ", ".join(f"'{name}'" for name in names[:6]) + (" ..." if len(names) > 6 else "")
            need = WANTING.get(kind)
            why = f"needs {need}" if need else f"is not known; known are {', '.join(NODE_TYPES)}"
            problems.append(f"{kind} ({listed}) {why}")
        if problems or self._problems:
            raise DescriptionError(self._where, [*problems, *self._problems][:40])

    def _gate(self, graph: NirGraph, full: str, kind: str) -> str:
        """The node in a nested graph that stands for it in edges of the outer one."""
        found = [name for name, node in graph.nodes.items() if isinstance(node, NirNode) and node.kind == kind]
        if len(found) != 1:
            self._problems.append(f"the graph '{full}' has {len(found)} nodes {kind}; one is needed")
        return f"{full}/{found[0]}" if found else full
