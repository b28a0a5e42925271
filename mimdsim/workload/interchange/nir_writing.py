"""Writes NIR files as the package `nir` 1.0.8 does, and makes the graph of a network.

NIR has no timestep. The file has tau = dt / (1 - decay) and r = tau / dt, so that dt = tau / r; gains are folded
into weights. A connection takes no time in NIR, so a layer that reads what was sent a timestep ago has a Delay of dt.
NIR only has resets to a value; other resets are recorded in a neuron's metadata, which other programs ignore.
"""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MissingExtra
from mimdsim.base.files import writable_folder, write_atomically
from mimdsim.graph.convolution import Convolution, Planes, Pool, Window
from mimdsim.graph.names import INPUT
from mimdsim.graph.norms import folded
from mimdsim.workload.description.network import network_of
from mimdsim.workload.description.workload import Workload
from mimdsim.workload.interchange.layers import accuracies_of, given_weights, network_of_layers, neuron_differences
from mimdsim.workload.interchange.model_file import ImportedNetwork, Population
from mimdsim.workload.interchange.nir_nodes import GRAPH, POOLS, NirGraph, NirNode, NodeProblem, Reals
from mimdsim.workload.interchange.weights_file import check_weights, read_arrays

VERSION = "1.0.8"
_FLOAT32 = frozenset({"weight", "bias"})
_SIDES = ("kernel_size", "stride", "padding", "dilation")
_WHOLE = frozenset({*_SIDES, "shape", "input_shape", "input_type", "start_dim", "end_dim", "groups"})


def write_nir(path: Path, graph: NirGraph) -> None:
    """Write a graph atomically; the same graph gives the same bytes."""
    try:
        import h5py
    except ImportError:
        raise MissingExtra("h5py", "data", "writing NIR files") from None
    content = io.BytesIO()
    with h5py.File(content, "w") as opened:
        opened["version"] = VERSION
        _write_graph(opened.create_group("node"), graph)
    write_atomically(path, content.getvalue())


def _write_graph(group: Any, graph: NirGraph) -> None:
    import h5py

    group["type"] = GRAPH
    nodes = group.create_group("nodes")
    for name, node in graph.nodes.items():
        place = nodes.create_group(name)
        if isinstance(node, NirGraph):
            _write_graph(place, node)
            continue
        place["type"] = node.kind
        for array, values in node.arrays.items():
            kept = np.float32 if array in _FLOAT32 else np.int64 if array in _WHOLE else np.float64
            place.create_dataset(array, data=values.astype(kept))
        for key, word in node.words.items():
            place[key] = word
        if node.metadata:
            about = place.create_group("metadata")
            for key, value in node.metadata.items():
                about[key] = value
    edges = np.array(graph.edges, dtype=object).reshape(-1, 2)
    group.create_dataset("edges", data=edges, dtype=h5py.string_dtype())


def nir_of_network(network: ImportedNetwork, names: tuple[str, ...]) -> NirGraph:
    """The NIR graph of a network whose populations are named `names`.

    Raises DescriptionError for what NIR cannot express.
    """
    dt = network.dt_seconds
    if dt <= 0:
        raise DescriptionError("NIR", ["its time constants are in seconds; give the length of a timestep, --dt 1e-3"])
    of_input = (each for each in network.populations if each.sources[0].name == INPUT)
    first = next((each.convolution for each in of_input if each.convolution), None)
    planes = {name: made for name, each in zip(names, network.populations, strict=True) if (made := _made(each))}
    planes |= {"input": first.planes} if first else {}
    shape = np.array(planes["input"].shape if first else [network.inputs])
    nodes: dict[str, NirNode | NirGraph] = {"input": NirNode(kind="Input", arrays={"shape": shape})}
    edges: list[tuple[str, str]] = []
    called = dict(zip((INPUT, *(layer for layer, _ in network.layers)), ("input", *names), strict=True))
    senders = {"input": "input"} | {
        name: _sender(name, each) for name, each in zip(names, network.populations, strict=True)
    }
    for name, population in zip(names, network.populations, strict=True):
        dynamics, recurrent, sender = population.dynamics, population.recurrent, senders[name]
        gain = dynamics.gain * (1.0 if dynamics.synapse_gain is None else dynamics.synapse_gain)
        bias = population.bias
        for read, weights in population.reads:
            source, lag = called[read.name], read.lag or 0
            product = f"{name}_weights{f'_{source}' if f'{name}_weights' in nodes else ''}"
            product += f"_{lag}" if product in nodes else ""  # of a source that it reads at several ages
            given = senders[source]
            if lag:
                waits = product.replace("_weights", "_delay")
                wide = planes[source].shape if source in planes else (len(weights),)
                nodes[waits] = NirNode(kind="Delay", arrays={"delay": np.full(wide, lag * dt)})
                edges.append((given, waits))
                given = waits
            chain = {product: _product(weights, bias, gain)}
            if population.convolution:
                chain = _convolved(name, product, population.convolution, chain[product])
            elif source in planes:
                chain = {product.replace("_weights", "_flat"): _flatten(planes[source]), **chain}
            nodes |= chain
            edges += itertools.pairwise(dict.fromkeys([given, *chain, sender]))
            bias = None
        if population.kind == "Linear":
            if len(population.reads) > 1:  # where its products add up
                nodes[sender] = NirNode(kind="Scale", arrays={"scale": np.ones(population.neurons)})
            continue
        try:
            nodes[sender] = _neurons(population, dt)
        except NodeProblem as problem:
            raise DescriptionError("NIR", [f"layer '{name}' {problem}, for which NIR has no node"]) from None
        if recurrent is not None:
            matrix = np.diag(recurrent) if recurrent.ndim == 1 else recurrent
            nodes[f"{name}.recurrent"] = _product(matrix, None, gain)
            edges += [(sender, f"{name}.recurrent"), (f"{name}.recurrent", sender)]
    shape = np.array(planes[names[-1]].shape if names[-1] in planes else [network.outputs])
    nodes["output"] = NirNode(kind="Output", arrays={"shape": shape})
    edges.append((senders[names[-1]], "output"))
    return NirGraph(nodes=nodes, edges=tuple(edges))


def _sender(name: str, population: Population) -> str:
    """The node that gives what a population sends."""
    if population.kind == "Linear":
        if len(population.reads) > 1:
            return f"{name}_sum"
        pools = population.convolution and population.convolution.after
        return f"{name}_pool" if pools else f"{name}_weights"
    return f"{name}_neurons" if population.recurrent is None else f"{name}.neurons"


def _product(weights: Reals, bias: Reals | None, gain: Reals) -> NirNode:
    weight = np.ascontiguousarray((weights * gain).T)
    if bias is None:
        return NirNode(kind="Linear", arrays={"weight": weight})
    return NirNode(kind="Affine", arrays={"weight": weight, "bias": bias * gain})


def _is_flat(convolution: Convolution) -> bool:
    """Whether it is written as a matrix of pooled planes, as classifiers are."""
    whole = convolution.window == Window.whole(convolution.read)
    return convolution.before is not None and whole and convolution.after is None and convolution.groups == 1


def _made(population: Population) -> Planes | None:
    """The planes that a population is written with."""
    convolution = population.convolution
    return None if convolution is None or _is_flat(convolution) else convolution.result


def _convolved(name: str, product: str, convolution: Convolution, linear: NirNode) -> dict[str, NirNode]:
    """The nodes by which a layer reads planes, from those of the matrix that its weights are."""
    found: dict[str, NirNode] = {}
    window, read = convolution.window, convolution.read
    if convolution.before:
        found[f"{name}_pooled"] = _pool(name, convolution.before)
    if _is_flat(convolution):
        found |= {f"{name}_flat": _flatten(read), product: linear}
    else:
        groups = convolution.groups
        weight = linear.arrays["weight"].reshape(convolution.channels, read.channels // groups, *window.kernel)
        arrays = {"input_shape": np.array([read.height, read.width]), "weight": weight, "groups": np.array(groups)}
        arrays |= {key: np.array(getattr(window, key)) for key in ("stride", "padding", "dilation")}
        arrays["bias"] = linear.arrays.get("bias", np.zeros(convolution.channels))
        found[product] = NirNode(kind="Conv2d", arrays=arrays)
    if convolution.after:
        found[f"{name}_pool"] = _pool(name, convolution.after)
    return found


def _pool(name: str, pool: Pool) -> NirNode:
    kind = next((node for node, kind in POOLS.items() if kind == pool.kind), None)
    if kind is None:
        raise DescriptionError(
            "NIR", [f"layer '{name}' has a {pool.kind} pool, for which NIR has no node; NIR has sums and means"]
        )
    sides = {"kernel_size": pool.window.kernel, "stride": pool.window.stride, "padding": pool.window.padding}
    return NirNode(kind=kind, arrays={key: np.array(pair) for key, pair in sides.items()})


def _flatten(planes: Planes) -> NirNode:
    arrays = {"input_type": np.array(planes.shape), "start_dim": np.array(0), "end_dim": np.array(-1)}
    return NirNode(kind="Flatten", arrays=arrays)


def _neurons(population: Population, dt: float) -> NirNode:
    """Constants of planes are written for each neuron, [channels, height, width]."""
    dynamics, zeros = population.dynamics, np.zeros(population.weights.shape[1])
    arrays: dict[str, Reals] = {}
    metadata: dict[str, str] = {}
    adds_up = dynamics.synapse_decay is None and np.all(dynamics.decay == 1)
    if adds_up:
        if dynamics.rest.any():
            raise NodeProblem("starts from a potential but does not leak")
        arrays["r"] = zeros + 1
    else:
        tau = _tau(dynamics.decay, dt)
        arrays = {"tau": tau, "r": tau / dt, "v_leak": dynamics.rest}
    if dynamics.synapse_decay is not None:
        tau_syn = _tau(dynamics.synapse_decay, dt)
        arrays = {"tau_syn": tau_syn, "tau_mem": arrays.pop("tau"), **arrays, "w_in": tau_syn / dt}
    if dynamics.threshold is not None:
        value = dynamics.reset_value
        arrays |= {"v_threshold": dynamics.threshold, "v_reset": zeros if value is None else value}
        if dynamics.reset != "zero":
            metadata["reset"] = dynamics.reset
    elif adds_up:
        raise NodeProblem("adds up its input and never fires")
    if planes := _made(population):
        arrays = {name: np.broadcast_to(values[:, None, None], planes.shape) for name, values in arrays.items()}
    kind = "LI" if dynamics.threshold is None else "IF" if adds_up else "LIF"
    return NirNode(kind=kind if dynamics.synapse_decay is None else f"Cuba{kind}", arrays=arrays, metadata=metadata)


def _tau(decay: Reals, dt: float) -> Reals:
    if np.any(decay < 0) or np.any(decay >= 1):
        raise NodeProblem(f"has a decay of {decay.min():g} to {decay.max():g}; only one from 0 to below 1 has a tau")
    return dt / (1 - decay)


def export_nir(workload: Workload, weights: Path | None, out: Path, dt_seconds: float | None = None) -> list[str]:
    """Write the graph to `out`; returns lines about it. `weights`: a safetensors or NPZ file with w.<layer> and so on;
    None takes those that the workload starts from.

    Raises DescriptionError for neurons that NIR cannot express, DataFileError for weights of another network.
    """
    network = network_of(workload)
    if weights is not None:
        arrays = check_weights(weights, read_arrays(weights), network.shapes)
    else:
        found = given_weights(workload, network)
        if found is None:
            raise DescriptionError(
                f"workload '{workload.name}'",
                ["names no weights; give trained ones, --weights reports/.../weights.safetensors"],
            )
        arrays = found
    dt = dt_seconds or workload.data.bin_seconds
    populations, names = network_of_layers(network, folded(network.layers, arrays), dt)
    writable_folder(out.parent)
    write_nir(out, nir_of_network(populations, names))
    normed = [layer.name for layer in network.layers if layer.norm and layer.norm.averages]
    lines = [f"{populations.title}, a timestep of {dt:g} s = tau / r, written to {out}"]
    if weights is not None and (differing := neuron_differences(weights, workload)):
        lines.append(
            f"note: {weights} was trained with other neurons (network.{'; network.'.join(differing)}); the written "
            "file has the workload's"
        )
    if weights is not None and (right := accuracies_of(weights)):
        lines.append(f"note: these weights are right about {right}, as in the written file")
    if normed:
        lines.append(f"note: batch norm of {', '.join(normed)} is folded into weights, with the running averages fixed")
    noted = {each.dynamics.reset for each in populations.populations if each.spiking} - {"zero"}
    lines += [
        f"note: NIR resets to a value; '{reset}' is recorded in the metadata, which other programs do not read"
        for reset in noted
    ]
    if rounded := [layer.name for layer in network.layers if layer.delays]:
        lines.append(f"note: delays that were learned by {', '.join(rounded)} are rounded to timesteps")
    if any(each.lag for sources in populations.sources for each in sources):
        lines.append(
            "note: layers read each other some timesteps later, written as Delay nodes, which not all programs read"
        )
    return lines
