"""The vocabulary of a NIR file: node types with their arrays, and the graph that is read.

Source: NIR (neuromorphic intermediate representation), package `nir` 1.0.8; files of older versions differ in that
neurons have no `v_reset` (their documentation then subtracted the threshold, newer versions reset to a value).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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
