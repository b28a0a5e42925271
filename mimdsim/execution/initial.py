"""Initial weights scaled, layer by layer, until each layer fires as often as asked for on a batch of the data.

In the manner of layer-sequential unit variance (Mishkin & Matas 2016), with the share of spikes in the place of the
variance, as in the authors' accuracy study (facts: 5 %). Only 'w.<layer>' is scaled, of layers with batch norm their
gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.execution.activity import PassingSpikes
from mimdsim.execution.execute import Executor
from mimdsim.execution.trainer import Samples, draw_randomness, load_batch
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.program import Program

MOST_TRIALS = 40  # of factors: doubled or halved until there are two ends, then between them


@dataclass(frozen=True, kw_only=True)
class InitialActivity:
    """The share of neurons that spike in a timestep, and how far off it may be, as a share of itself."""

    share: float
    tolerance: float = 0.1


def scaled_to_activity(
    program: Program,
    network: SpikingNetwork,
    data: Samples,
    weights: dict[str, np.ndarray],
    wanted: InitialActivity,
    seed: int,
) -> dict[str, np.ndarray]:
    """`weights` with each spiking layer's scaled until its mean share of spikes on one batch is within the tolerance.

    Layers are settled in order, each on what the settled ones before it send. Raises DescriptionError for a layer whose
    capacity is too small or that does not get there, with the shares.
    """
    executor = Executor(program)
    executor.write(weights | {name: np.ones(1, np.float32) for name in network.kept_shares})  # nothing is dropped
    chosen = stream(seed, "initial activity").permutation(len(data.labels))
    load_batch(executor, data, np.resize(chosen, network.batch))
    made = dict(weights)
    for layer in network.layers:
        if not layer.spiking:
            continue
        if layer.cell and layer.sends_numbers:
            raise DescriptionError(
                "training.initial_activity",
                [f"cells '{layer.cell.model}' of layer '{layer.name}' send always: leave it out"],
            )
        if layer.unweighted and not layer.norm:
            raise DescriptionError(
                "training.initial_activity", [f"layer '{layer.name}' has no weights that could be scaled: leave it out"]
            )
        room = network.most_spikes(layer) / layer.neurons
        if room < wanted.share:
            raise DescriptionError(
                "training.initial_activity",
                [
                    f"{wanted.share:g} of the neurons of layer '{layer.name}' are more than its capacity of "
                    f"{network.most_spikes(layer)} of {layer.neurons}: raise the capacity or lower the activity"
                ],
            )
        name = next(each.name for each in layer.parameters if each.role == ("gain" if layer.norm else "weights"))
        made[name] = _settled(executor, layer, name, weights[name], wanted, seed)
    return made


def _settled(
    executor: Executor, layer: Layer, name: str, weight: np.ndarray, wanted: InitialActivity, seed: int
) -> np.ndarray:
    """The weight, which has this name, times the factor at which the layer fires as wanted; the executor is left with
    it."""

    def scaled(factor: float) -> np.ndarray:
        return (weight * np.float32(factor)).astype(np.float32)

    def share(factor: float) -> float:
        executor.write({name: scaled(factor)})
        draw_randomness(executor, seed, "initial activity")
        passing = PassingSpikes(executor)
        executor.run(phases=("forward",), observe=passing)
        return float(executor.activity(passing.layers).counts[layer.name][..., 0].mean()) / layer.neurons

    low, high = 0.0, math.inf  # factors with too few and with too many spikes
    reached, factor = share(1.0), 1.0
    for _ in range(MOST_TRIALS):
        if abs(reached - wanted.share) <= wanted.tolerance * wanted.share:
            return scaled(factor)
        low, high = (factor, high) if reached < wanted.share else (low, factor)
        factor = 2.0 * low if math.isinf(high) else 0.5 * high if not low else math.sqrt(low * high)
        reached = share(factor)
    raise DescriptionError(
        "training.initial_activity",
        [
            f"layer '{layer.name}' does not get to {wanted.share:g} of its neurons per timestep by scaling its "
            f"weights: {reached:.3g} at a factor of {factor:.3g}; ask for another activity, or change weight_offset or "
            "weight_scale"
        ],
    )
