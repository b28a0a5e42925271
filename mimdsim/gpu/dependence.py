"""Dependences in the body of a scan, and whether the products of all timesteps may be taken at once."""

from __future__ import annotations

import networkx as nx

from mimdsim.base.errors import MappingError
from mimdsim.graph.records import Graph, Operation, Scan

# kinds that are matrix products -> whether the rows of the result are samples (and not rows of a weight)
MATRIX_PRODUCTS: dict[str, bool] = {
    "matmul": True,
    "matmul_input_gradient": True,
    "matmul_weight_gradient": False,
    "synapse": True,
    "synapse_spike_gradient": True,
    "synapse_weight_gradient": False,
    "head_product": True,
}
# what products of convolutions gather, and scatter, while they run (implicit GEMM): no kernels of their own
GATHERED = ("unfold", "fold")
# what needs all of a column, or of a sample, before it makes any: kernels of their own, which read their first input
# twice
OVER_ROWS = ("batch_norm", "batch_norm_sums", "standardise", "standardise_gradient")

NEURONS = ("lif", "neuron")


def dependence_graph(scan: Scan, *, across_timesteps: bool) -> nx.DiGraph:
    """Body values, with an edge from each input to each output of an operation; `product` is 1 on those of a product,
    or of what waits for all rows likewise.

    across_timesteps: also an edge from what leaves a timestep to what enters the next.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(scan.body.inputs)
    for op in scan.body.operations:
        graph.add_nodes_from(op.outputs)
        graph.add_edges_from(
            ((given, made) for given in op.inputs for made in op.outputs),
            product=int(op.kind in (*MATRIX_PRODUCTS, *OVER_ROWS)),
        )
    if across_timesteps:
        graph.add_edges_from(((carry.leaves, carry.enters) for carry in scan.carries), product=0)
    return graph


def check_hoistable(op: Operation, strategy: str = "hoisted") -> None:
    """Raises MappingError, naming the strategy, when a matrix product of scan `op` feeds itself from one timestep to
    the next."""
    scan: Scan = op.attributes
    graph = dependence_graph(scan, across_timesteps=True)
    for members in recurrent_parts(scan):
        inner = next(each for each in members if each.kind in MATRIX_PRODUCTS)
        made = inner.outputs[0]
        cycles = (nx.shortest_path(graph, made, given) for given in inner.inputs if nx.has_path(graph, made, given))
        path = " -> ".join(next(cycles))
        raise MappingError(
            f"strategy '{strategy}': the matrix product '{made}' ({inner.kind}) of scan '{op.name}' depends on "
            f"itself through the timesteps ({path} -> {made}), so the products of its {scan.timesteps} "
            f"timesteps cannot be taken at once; use the strategy 'persistent' or 'graph_replay'"
        )


def recurrent_parts(scan: Scan) -> tuple[tuple[Operation, ...], ...]:
    """Operations that feed each other from one timestep to the next, a matrix product among them, in body order."""
    graph = dependence_graph(scan, across_timesteps=True)
    component = {value: index for index, part in enumerate(nx.strongly_connected_components(graph)) for value in part}
    parts: dict[int, list[Operation]] = {}
    for inner in scan.body.operations:
        made = component[inner.outputs[0]]
        if any(component[given] == made for given in inner.inputs):
            parts.setdefault(made, []).append(inner)
    return tuple(tuple(ops) for ops in parts.values() if any(op.kind in MATRIX_PRODUCTS for op in ops))


def walked_operations(scan: Scan) -> set[str]:
    """Names of operations that have to take timesteps one after the other: they feed themselves, and not linearly.

    What feeds itself linearly is an associative scan: neurons that never reset, whose map of the state is the same
    whatever the state is, and all gradients, since what decides a neuron's map in the backward pass has been saved.
    """
    graph = dependence_graph(scan, across_timesteps=True)
    found: set[str] = set()
    for members in nx.strongly_connected_components(graph):
        if len(members) > 1 or any(graph.has_edge(name, name) for name in members):
            ops = [inner for inner in scan.body.operations if members & set(inner.outputs)]
            if not all(_is_linear(inner) for inner in ops):
                found |= {inner.name for inner in ops}
    return found


def _is_linear(inner: Operation) -> bool:
    """Whether an operation is affine in what feeds itself; those of the forward pass where it is known."""
    if inner.kind in NEURONS:
        return not inner.attributes.resets
    return inner.kind == "add" or inner.phase == "backward"


def recurs(graph: Graph) -> bool:
    """Whether some matrix product of a scan depends on itself through the timesteps."""
    return any(recurrent_parts(op.attributes) for op in graph.operations if op.kind == "scan")


def fused_accumulations(scan: Scan) -> dict[str, str]:
    """Product -> the addition onto a carried sum that the product does itself (beta = 1)."""
    carried = {(carry.enters, carry.leaves) for carry in scan.carries}
    found: dict[str, str] = {}
    for inner in scan.body.operations:
        if inner.kind != "add":
            continue
        for held, part in (inner.inputs, inner.inputs[::-1]):
            maker = scan.body.producer(part)
            alone = sum(part in user.inputs for user in scan.body.operations) == 1
            if (held, inner.outputs[0]) in carried and maker and maker.kind in MATRIX_PRODUCTS and alone:
                found[maker.name] = inner.name
                break
    return found


def product_levels(scan: Scan, *, across_timesteps: bool) -> dict[str, int]:
    """For each body value the most matrix products, and batch norms, on any path that leads to it.

    Elementwise operations of one layer and one level can share a kernel. across_timesteps needs `check_hoistable`.
    """
    graph = dependence_graph(scan, across_timesteps=across_timesteps)
    parts = nx.condensation(graph)
    level: dict[int, int] = {}
    of_value: dict[str, int] = parts.graph["mapping"]
    crossing: dict[tuple[int, int], int] = {}
    for given, made, products in graph.edges(data="product"):
        pair = of_value[given], of_value[made]
        crossing[pair] = max(crossing.get(pair, 0), products)
    for part in nx.topological_sort(parts):
        level[part] = max((level[before] + crossing[before, part] for before in parts.predecessors(part)), default=0)
    return {value: level[part] for value, part in of_value.items()}
