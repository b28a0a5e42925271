"""A layer of linear neurons in the body of the scan: its carries, who fired, its step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mimdsim.graph.linear_neurons import Fired, LinearNeuron
from mimdsim.graph.names import before, spikes_of
from mimdsim.graph.records import Carry, GraphBuilder

if TYPE_CHECKING:
    from mimdsim.graph.network import Layer


def step(body: GraphBuilder, layer: Layer, neuron: LinearNeuron, current: str) -> tuple[tuple[Carry, ...], str]:
    """Append one timestep of the layer's neurons; returns what it carries and the name of u.

    Carried: the states x [states, batch, neurons]; u [batch, neurons] too where a reset goes by state. Who was reset by
    emission is read from the layer's own spikes of the timestep before, which the network carries.
    """
    name = layer.name
    if not layer.spiking:  # what does not spike is not reset either
        neuron = replace(neuron, fired=None)
    neuron.check_width(name, layer.neurons)
    batch, neurons = body.values[current].shape
    earlier = replace(body.values[current], shift=-1)
    x, u = f"x.{name}", f"u.{name}"
    shape = (len(neuron.states), batch, neurons)
    held = body.declare(replace(earlier, name=before(x), shape=shape))
    inputs: tuple[str, ...] = (held, current)
    full = neuron.reset_gradient == "full"
    carries = []
    if neuron.resets:
        attributes = Fired(selection=layer.selection, neurons=neurons, differentiable=full)
        if neuron.reset_by == "state":
            potential = body.declare(replace(earlier, name=before(u)))
            carries.append(Carry(enters=potential, leaves=u, detached=not full))
            fired = body.one("fired", (potential,), f"fired.{name}", layer=name, attributes=attributes)
        else:
            fired = before(spikes_of(name))
            if body.values[fired].form == "sparse":
                fired = body.one("emitted", (fired,), f"fired.{name}", layer=name, attributes=attributes)
        inputs = (*inputs, fired)
    x, u = body.add("neuron", inputs, x, layer=name, attributes=neuron, names=(x, u))
    return (Carry(enters=held, leaves=x), *carries), u


def reads_own_spikes(layer: Layer) -> bool:
    """Whether the neurons need what they emitted in the timestep before."""
    neuron = layer.neuron
    return layer.spiking and isinstance(neuron, LinearNeuron) and neuron.resets and neuron.reset_by == "emission"
