"""What of a network whole-tensor execution does not know, named one by one."""

from __future__ import annotations

from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.losses import Loss


def refusals(network: SpikingNetwork) -> list[str]:
    """What of `network` whole-tensor execution does not know, and what to use instead."""
    problems = []
    instead = '; use the compiled program (training.engine = "program", Executor) or the interpreter'
    if network.spikes != "sparse":
        problems.append(f'spikes = "{network.spikes}": only sparse spikes are run as whole tensors{instead}')
    for layer in network.layers:
        problems += [f"layer '{layer.name}': {what} does not run as whole tensors{instead}" for what in _unknown(layer)]
    optimiser = network.optimiser
    asked = {
        f"network.threshold_schedule {network.threshold_schedule}": network.threshold_schedule is not None,
        f"loss {network.loss} (it knows the cross-entropy of summed spikes)": network.loss != Loss(),
        f"weight_decay = {optimiser.weight_decay:g}": bool(optimiser.weight_decay),
        f"momentum = {getattr(optimiser, 'momentum', 0):g}": bool(getattr(optimiser, "momentum", 0)),
        f"largest_gradient_norm = {network.largest_gradient_norm:g}": bool(network.largest_gradient_norm),
    }
    problems += [f"{what} is not known to whole tensors{instead}" for what, wanted in asked.items() if wanted]
    return problems


def _unknown(layer: Layer) -> list[str]:
    selection, neuron = layer.selection, layer.neuron
    asked = {
        f"neuron '{neuron.model}' (it knows 'lif' as published)": not (neuron.fused and neuron.resets),
        f"recurrence '{layer.recurrence}'": layer.recurrence != "none",
        "a bias": layer.bias,
        "a read-out that does not spike": not layer.spiking,
        "a smooth spike": selection.smooth,
        f"surrogate '{selection.surrogate}' (it knows superspike)": selection.surrogate != "superspike",
        f"truncation '{selection.truncation}' (it keeps the lowest ids)": selection.truncation != "lowest",
    }
    return [what for what, wanted in asked.items() if wanted]
