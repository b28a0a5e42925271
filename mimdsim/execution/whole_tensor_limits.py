"""What of a network whole-tensor execution does not know, named one by one."""

from __future__ import annotations

from mimdsim.graph import SpikingNetwork


def refusals(network: SpikingNetwork) -> list[str]:
    """What of `network` whole-tensor execution does not know, and what to use instead."""
    problems = []
    instead = '; use the compiled program (training.engine = "program", Executor) or the interpreter'
    if network.spikes != "sparse":
        problems.append(f'spikes = "{network.spikes}": only sparse spikes are run as whole tensors{instead}')
    for layer in network.layers:
        if layer.selection.smooth:
            problems.append(f"layer '{layer.name}': a smooth spike does not run as whole tensors{instead}")
    return problems
