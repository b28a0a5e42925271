"""A NIR graph with its nested graphs expanded, so that every node has a unique name and edges join nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mimdsim.base.errors import DescriptionError
from mimdsim.workload.interchange.nir_nodes import NODE_TYPES, WANTING, NirGraph, NirNode

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
