"""A layer's neurons in the body of the scan: what they carry, who fired, their step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mimdsim.graph.linear_neurons import Fired
from mimdsim.graph.records import Carry, GraphBuilder, Value

if TYPE_CHECKING:
    from mimdsim.graph.network import Layer


def step(body: GraphBuilder, layer: Layer, current: str) -> tuple[tuple[Carry, ...], str]:
    """Append one timestep of the layer's neurons; returns what it carries and the name of the potential that is held
    against thresholds.

    Carried: the states x [states, batch, neurons]; u [batch, neurons] too where a reset goes by state. Who was reset by
    emission is read from the layer's own spikes of the timestep before, which the network carries. Fused neurons carry
    the potential v [batch, neurons] alone.
    """
    name = layer.name
    # what does not spike is not reset either
    neuron = layer.neuron if layer.spiking else replace(layer.neuron, fired=None)
    neuron.check_width(name, layer.neurons)
    batch, neurons = body.values[current].shape
    if neuron.fused:
        before = body.declare(Value(name=f"v.{name}.previous", shape=(batch, neurons)))
        v = body.one("lif", (before, current), f"v.{name}", layer=name, attributes=neuron)
        return (Carry(enters=before, leaves=v),), v
    before = body.declare(Value(name=f"x.{name}.previous", shape=(len(neuron.states), batch, neurons)))
    inputs: tuple[str, ...] = (before, current)
    full = neuron.reset_gradient == "full"
    carries = []
    if neuron.resets:
        attributes = Fired(selection=layer.selection, neurons=neurons, differentiable=full)
        if neuron.reset_by == "state":
            potential = body.declare(Value(name=f"u.{name}.previous", shape=(batch, neurons)))
            carries.append(Carry(enters=potential, leaves=f"u.{name}", detached=not full))
            fired = body.one("fired", (potential,), f"fired.{name}", layer=name, attributes=attributes)
        else:
            fired = f"spikes.{name}.previous"
            if body.values[fired].form == "sparse":
                fired = body.one("emitted", (fired,), f"fired.{name}", layer=name, attributes=attributes)
        inputs = (*inputs, fired)
    x, u = body.add("neuron", inputs, f"x.{name}", layer=name, attributes=neuron, names=(f"x.{name}", f"u.{name}"))
    return (Carry(enters=before, leaves=x), *carries), u


def reads_own_spikes(layer: Layer) -> bool:
    """Whether the neurons need what they emitted in the timestep before."""
    neuron = layer.neuron
    return layer.spiking and neuron.resets and neuron.reset_by == "emission"
