"""Spikes: selection by two thresholds, synaptic currents from ids, and their gradients at the listed ids only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.records import (
    Backward,
    OpDef,
    Operation,
    Outputs,
    SparseSpikes,
    Value,
    like,
    listed_like,
    per_element,
    pulled_back_by,
    shaped,
)
from mimdsim.graph.surrogates import known_surrogate
from mimdsim.graph.truncation import from_start, known_truncation, scan_starts


@dataclass(frozen=True, kw_only=True)
class Selection:
    """v > threshold is a true spike, second_threshold < v <= threshold a gradient entry; at most `capacity` listed.

    surrogate names a record of `surrogates.SURROGATES`, slope is its parameter (beta of SuperSpike). `smooth` replaces
    the spike of the dense form by a function whose derivative is that surrogate: for finite differences only.
    truncation: where the scan for them starts, see `truncation.py`; with 'random', selection takes the state of a
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
        known_truncation(self.truncation)


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


def _select_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    others = (None,) * (len(op.inputs) - 1)  # given at run time; no gradient is taken with respect to them
    inputs = (gradient, build.saved(op.outputs[0]), build.saved(op.inputs[0]))
    dv = build.one("select_gradient", inputs, f"{op.layer}.dv_spike", layer=op.layer, attributes=op.attributes)
    return (dv, *others)


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
    OpDef(name="select_spikes", shapes=_select_shapes, evaluate=_select, vjp=_select_vjp, flops=per_element(2)),
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
