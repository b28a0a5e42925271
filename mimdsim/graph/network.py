"""The training graph of a feed-forward spiking network with a one-timestep delay between layers.

In one timestep every layer reads what the layer before it emitted one timestep earlier (the first layer reads the
input of this timestep), so all layers are independent of each other within a timestep.
"""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.graph.dense import Zeros
from mimdsim.graph.differentiate import differentiate
from mimdsim.graph.neurons import Lif
from mimdsim.graph.operations import builder
from mimdsim.graph.records import Carry, Graph, Scan, Slice, Value
from mimdsim.graph.spikes import Selection
from mimdsim.graph.training import Adam, Logits, Sgd


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: `inputs` x `neurons` weights; at most `capacity` ids listed per sample and timestep."""

    name: str
    inputs: int
    neurons: int
    lif: Lif
    selection: Selection

    @property
    def capacity(self) -> int:
        return self.selection.capacity


@dataclass(frozen=True, kw_only=True)
class SpikingNetwork:
    """A network with what is needed to train it. spikes: 'sparse' (ids and counts) or 'dense' (0/1 arrays)."""

    layers: tuple[Layer, ...]
    timesteps: int
    batch: int
    input_capacity: int
    spikes: str
    logit_scale: float
    optimiser: Adam | Sgd

    @property
    def inputs(self) -> int:
        return self.layers[0].inputs

    @property
    def classes(self) -> int:
        return self.layers[-1].neurons

    @property
    def title(self) -> str:
        """'2312-1466-1466-10'"""
        return "-".join(str(width) for width in (self.inputs, *(layer.neurons for layer in self.layers)))


def training_graph(network: SpikingNetwork) -> Graph:
    """Forward scan, loss, backward scan and update of one training step.

    Inputs: 'input' (spikes [timesteps, batch, inputs]), 'labels' [batch], 'training_step', 'w.<layer>' and, with Adam,
    'moment1.<layer>', 'moment2.<layer>'. Outputs: 'loss', 'counts' [batch, classes], the gradient of each weight, and
    the updated 'w.<layer>' (and moments).
    """
    graph = forward_graph(network)
    weights = tuple(f"w.{layer.name}" for layer in network.layers)
    graph, gradients = differentiate(graph, "loss", weights)
    build = builder("update")
    build.values = dict(graph.values)
    build.inputs = list(graph.inputs)
    build.operations = list(graph.operations)
    adam = isinstance(network.optimiser, Adam)
    if adam:
        build.declare(Value(name="training_step", shape=()))
    outputs: list[str] = ["loss", "counts", *gradients.values()]
    for layer, weight in zip(network.layers, weights, strict=True):
        given: tuple[str, ...] = (weight, gradients[weight])
        if adam:
            moments = tuple(f"{moment}.{layer.name}" for moment in ("moment1", "moment2"))
            for moment in moments:
                build.declare(Value(name=moment, shape=graph.value(weight).shape))
            given = (*given, *moments, "training_step")
        outputs += build.add(
            "adam" if adam else "sgd", given, f"next.{weight}", layer=layer.name, attributes=network.optimiser
        )
    return build.graph(tuple(outputs))


def forward_graph(network: SpikingNetwork) -> Graph:
    """The forward scan and the loss."""
    sparse = network.spikes == "sparse"
    body = builder("forward")
    batch = network.batch
    form = "sparse" if sparse else "array"
    source = body.declare(
        Value(name="input.now", shape=(batch, network.inputs), form=form, capacity=network.input_capacity)
    )
    carries: list[Carry] = []
    constants: list[str] = []
    emitted: list[str] = []
    for layer in network.layers:
        body.declare(Value(name=f"v.{layer.name}.previous", shape=(batch, layer.neurons)))
        body.declare(Value(name=f"w.{layer.name}", shape=(layer.inputs, layer.neurons)))
        constants.append(f"w.{layer.name}")
    for layer in network.layers[:-1]:
        body.declare(
            Value(
                name=f"spikes.{layer.name}.previous",
                shape=(batch, layer.neurons),
                form=form,
                capacity=layer.capacity if sparse else 0,
            )
        )
    for layer in network.layers:
        name = layer.name
        current = body.one("synapse" if sparse else "matmul", (source, f"w.{name}"), f"current.{name}", layer=name)
        v = body.one("lif", (f"v.{name}.previous", current), f"v.{name}", layer=name, attributes=layer.lif)
        spikes = body.one(
            "select_spikes" if sparse else "spike", (v,), f"spikes.{name}", layer=name, attributes=layer.selection
        )
        carries.append(Carry(enters=f"v.{name}.previous", leaves=v))
        emitted.append(spikes)
        source = f"spikes.{name}.previous"
    carries += [Carry(enters=f"{spikes}.previous", leaves=spikes) for spikes in emitted[:-1]]
    scan = Scan(
        body=body.graph(tuple(carry.leaves for carry in carries)),
        timesteps=network.timesteps,
        reverse=False,
        carries=tuple(carries),
        slices=(Slice(inside="input.now"),),
        constants=tuple(constants),
        stacked=(emitted[-1],),
    )
    return _with_loss(network, scan)


def _with_loss(network: SpikingNetwork, scan: Scan) -> Graph:
    build = builder("forward")
    sparse = network.spikes == "sparse"
    build.declare(
        Value(
            name="input",
            shape=(network.timesteps, network.batch, network.inputs),
            form="sparse" if sparse else "array",
            capacity=network.input_capacity if sparse else 0,
        )
    )
    build.declare(Value(name="labels", shape=(network.batch,)))
    for layer in network.layers:
        build.declare(Value(name=f"w.{layer.name}", shape=(layer.inputs, layer.neurons)))
    starts = []
    for carry in scan.carries:
        inside = scan.body.value(carry.enters)
        zeros = Zeros(shape=inside.shape, form=inside.form, capacity=inside.capacity)
        reference = f"w.{network.layers[0].name}"
        starts.append(build.one("zeros", (reference,), f"{carry.leaves}.start", attributes=zeros))
    outputs = build.add("scan", (*starts, "input", *scan.constants), "time", attributes=scan)
    build.phase = "loss"
    last = network.layers[-1]
    counts = build.one("spike_counts", (outputs[-1],), "counts", layer=last.name, attributes=last.neurons)
    logits = Logits(scale=network.logit_scale)
    build.one("cross_entropy", (counts, "labels"), "loss", layer=last.name, attributes=logits)
    return build.graph(("loss", "counts"))
