"""Spikes: selection by two thresholds, synaptic currents from ids, and their gradients at the listed ids only.

Truncation says where the scan for spikes starts, and so which are dropped when a list is too short for all. 'lowest':
at neuron 0, as published, so that the highest ids are dropped. 'random': at a neuron drawn afresh for every timestep
and sample, from which the scan runs once round the layer; no id is preferred. (The published scan draws such an offset
for each of its workers and then ignores it.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.base.errors import check_choice
from mimdsim.graph.records import (
    Backward,
    OpDef,
    Operation,
    Outputs,
    SparseSpikes,
    Value,
    like,
    listed_like,
    no_flops,
    per_element,
    pulled_back_by,
    shaped,
)
from mimdsim.graph.surrogates import known_surrogate

TRUNCATIONS = ("lowest", "random")
# The linear congruential generator of Knuth and Lewis (Press et al., Numerical Recipes, 2nd edition, 7.1), modulo 2^32;
# its high bits are used, as the low ones are poor.
MULTIPLIER, INCREMENT, STATE_BITS = 1_664_525, 1_013_904_223, 32


def next_state(state: np.ndarray) -> np.ndarray:
    """int64[batch]: the next state of the generator."""
    return (state.astype(np.int64) * MULTIPLIER + INCREMENT) & ((1 << STATE_BITS) - 1)


def scan_starts(state: np.ndarray, neurons: int) -> np.ndarray:
    """int64[batch]: the neuron from which each sample's scan runs, 0 to neurons - 1."""
    return (state.astype(np.int64) * neurons) >> STATE_BITS


def from_start(ids: np.ndarray, start: int) -> np.ndarray:
    """Ascending `ids` in the order of a scan from `start` once round."""
    cut = int(np.searchsorted(ids, start))
    return np.concatenate([ids[cut:], ids[:cut]])


@dataclass(frozen=True, kw_only=True)
class Selection:
    """v > threshold is a true spike, second_threshold < v <= threshold a gradient entry; at most `capacity` listed.

    surrogate names a record of `surrogates.SURROGATES`, slope is its parameter (beta of SuperSpike). `smooth` replaces
    the spike of the dense form by a function whose derivative is that surrogate: for finite differences only.
    truncation: where the scan for them starts; with 'random', selection takes the state of a
    generator as a second input. Raises MappingError for an unknown surrogate or truncation.
    """

    threshold: float
    second_threshold: float
    capacity: int
    slope: float
    surrogate: str = "superspike"
    smooth: bool = False
    truncation: str = "lowest"

    def __post_init__(self) -> None:
        known_surrogate(self.surrogate)
        check_choice("network.truncation", self.truncation, TRUNCATIONS)


@dataclass(frozen=True, kw_only=True)
class ThresholdSchedule:
    """The second threshold of hidden layers moves towards its own value while a network learns.

    In the first training step it is `start`, and in each one after that it moves by `share` of the remaining distance:
    threshold <- threshold + share * (target - threshold), as in the authors' accuracy study (facts: -100 and 0.5).
    The output layer takes part only if `output` is set.
    """

    start: float = -100.0
    share: float = 0.5
    output: bool = False

    def at(self, training_step: int, target: float) -> float:
        """The threshold in a training step, counted from 0."""
        return target + (self.start - target) * float((1.0 - self.share) ** training_step)


def surrogate(selection: Selection, v: np.ndarray) -> np.ndarray:
    """Surrogate gradient at membrane potentials `v`, in their dtype."""
    kind = v.dtype.type
    derivative = known_surrogate(selection.surrogate).derivative
    return derivative(v - kind(selection.threshold), kind(selection.slope))


def smooth_spike(selection: Selection, v: np.ndarray) -> np.ndarray:
    """A smooth spike whose derivative is the surrogate; its value may be of any magnitude."""
    kind = v.dtype.type
    return known_surrogate(selection.surrogate).smooth(v - kind(selection.threshold), kind(selection.slope))


def _select(selection: Selection, v: np.ndarray, *given: Any) -> tuple[SparseSpikes]:
    """given: the second threshold if that moves, then the state of the generators if truncation is random."""
    batch, neurons = v.shape
    drawn = selection.truncation == "random"
    starts = scan_starts(given[-1], neurons) if drawn else np.zeros(batch, np.int64)
    second = given[0] if len(given) > drawn else selection.second_threshold
    ids = np.zeros((batch, selection.capacity), np.int32)
    counts = np.zeros((batch, 2), np.int32)
    fires = v > v.dtype.type(selection.threshold)
    near = (v > v.dtype.type(second)) & ~fires
    for sample in range(batch):
        start = int(starts[sample])
        spikes = from_start(np.flatnonzero(fires[sample]), start)[: selection.capacity]
        listed = np.concatenate([spikes, from_start(np.flatnonzero(near[sample]), start)])[: selection.capacity]
        ids[sample, : listed.size] = listed
        counts[sample] = spikes.size, listed.size
    return (SparseSpikes(ids=ids, counts=counts),)


def _select_shapes(values: tuple[Value, ...], selection: Selection) -> Outputs:
    listed = Value(name="", shape=values[0].shape, form="sparse", capacity=selection.capacity, role="spikes")
    return (("", listed),)


def _select_gradient(
    selection: Selection, gradient: np.ndarray, spikes: SparseSpikes, v: np.ndarray
) -> tuple[np.ndarray]:
    dv = np.zeros_like(v)
    slope = surrogate(selection, v)
    for sample in range(v.shape[0]):
        count = spikes.counts[sample, 1]
        listed = spikes.ids[sample, :count]
        dv[sample, listed] = gradient[sample, :count] * slope[sample, listed]
    return (dv,)


def _spike(selection: Selection, v: np.ndarray) -> tuple[np.ndarray]:
    if selection.smooth:
        return (smooth_spike(selection, v),)
    return ((v > v.dtype.type(selection.threshold)).astype(v.dtype),)


def _synapse(_attributes: Any, spikes: SparseSpikes, weights: np.ndarray) -> tuple[np.ndarray]:
    current = np.zeros((spikes.ids.shape[0], weights.shape[1]), weights.dtype)
    for sample in range(current.shape[0]):
        current[sample] = weights[spikes.ids[sample, : spikes.counts[sample, 0]]].sum(axis=0)
    return (current,)


def _synapse_vjp(build: Backward, op: Operation, q: str) -> tuple[str | None, ...]:
    spikes, weights = op.inputs
    layer = op.layer
    shape = build.forward_value(weights).shape
    d_weights = build.one(
        "synapse_weight_gradient", (q, build.saved(spikes)), f"{layer}.dw_now", layer=layer, attributes=shape
    )
    source = build.forward_value(spikes)
    d_spikes = build.one(
        "synapse_spike_gradient",
        (q, build.saved(spikes), build.saved(weights)),
        f"{layer}.d_input",
        layer=layer,
        attributes=source.capacity,
    )
    return d_spikes, d_weights


def _weight_gradient(shape: tuple[int, int], q: np.ndarray, spikes: SparseSpikes) -> tuple[np.ndarray]:
    gradient = np.zeros(shape, q.dtype)
    for sample in range(q.shape[0]):
        gradient[spikes.ids[sample, : spikes.counts[sample, 0]]] += q[sample]
    return (gradient,)


def _spike_gradient(capacity: int, q: np.ndarray, spikes: SparseSpikes, weights: np.ndarray) -> tuple[np.ndarray]:
    gradient = np.zeros((q.shape[0], capacity), q.dtype)
    for sample in range(q.shape[0]):
        count = spikes.counts[sample, 1]
        gradient[sample, :count] = weights[spikes.ids[sample, :count]] @ q[sample]
    return (gradient,)


def _product_flops(inputs: tuple[Value, ...], attributes: Any) -> int:
    """Dense meaning: 2 * batch * fan_in * neurons."""
    if isinstance(attributes, tuple):
        return int(2 * inputs[0].shape[0] * attributes[0] * attributes[1])
    weights = inputs[-1]
    return 2 * inputs[0].shape[0] * weights.shape[0] * weights.shape[1]


SPIKES = (
    OpDef(
        name="next_random",
        shapes=lambda values, _: (("", replace(values[0], shift=0)),),
        evaluate=lambda _, state: (next_state(state),),
        flops=no_flops,
    ),
    OpDef(
        name="select_spikes",
        shapes=_select_shapes,
        evaluate=_select,
        vjp=pulled_back_by("select_gradient", "{layer}.dv_spike", -1, 0),
        flops=per_element(2),
    ),
    OpDef(name="select_gradient", shapes=like(2), evaluate=_select_gradient, flops=per_element(5, 2)),
    OpDef(
        name="spike",
        shapes=lambda values, _: (("", Value(name="", shape=values[0].shape, role="spikes")),),
        evaluate=_spike,
        vjp=pulled_back_by("spike_gradient", "{layer}.dv_spike", 0),
        flops=per_element(1),
    ),
    OpDef(
        name="spike_gradient",
        shapes=like(1),
        evaluate=lambda selection, gradient, v: (gradient * surrogate(selection, v),),
        flops=per_element(5, 1),
    ),
    OpDef(
        name="synapse",
        shapes=shaped(lambda values, _: (values[0].shape[0], values[1].shape[1])),
        evaluate=_synapse,
        vjp=_synapse_vjp,
        flops=_product_flops,
    ),
    OpDef(
        name="synapse_weight_gradient",
        shapes=shaped(lambda _, shape: shape),
        evaluate=_weight_gradient,
        flops=_product_flops,
    ),
    OpDef(name="synapse_spike_gradient", shapes=listed_like(1), evaluate=_spike_gradient, flops=_product_flops),
)
