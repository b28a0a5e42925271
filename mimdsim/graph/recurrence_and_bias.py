"""Wiring besides the synapses between layers: from a neuron onto itself, and a bias per neuron.

Their trained numbers are rows [1, neurons], so that every parameter has two axes like weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.graph.records import (
    Backward,
    OpDef,
    Operation,
    SparseSpikes,
    Value,
    elements,
    like,
    listed_like,
    no_flops,
    per_element,
    shaped,
    summed,
)


def _self_synapse(_attributes: Any, spikes: Any, row: np.ndarray) -> tuple[np.ndarray]:
    if not isinstance(spikes, SparseSpikes):
        return (spikes * row,)
    current = np.zeros((spikes.ids.shape[0], row.shape[1]), row.dtype)
    for sample in range(current.shape[0]):
        fired = spikes.ids[sample, : spikes.counts[sample, 0]]
        current[sample, fired] = row[0, fired]
    return (current,)


def _self_synapse_vjp(build: Backward, op: Operation, q: str) -> tuple[str | None, ...]:
    layer, (spikes, row) = op.layer, op.inputs
    saved = build.saved(spikes)
    d_row = build.one("self_synapse_weight_gradient", (q, saved), f"{layer}.dr_now", layer=layer)
    d_spikes = build.one(
        "self_synapse_spike_gradient",
        (q, saved, build.saved(row)),
        f"{layer}.d_own",
        layer=layer,
        attributes=build.forward_value(spikes).capacity,
    )
    return d_spikes, d_row


def _row_gradient(_attributes: Any, q: np.ndarray, spikes: Any) -> tuple[np.ndarray]:
    if not isinstance(spikes, SparseSpikes):
        return ((q * spikes).sum(axis=0, keepdims=True),)
    gradient = np.zeros((1, q.shape[1]), q.dtype)
    for sample in range(q.shape[0]):
        fired = spikes.ids[sample, : spikes.counts[sample, 0]]
        gradient[0, fired] += q[sample, fired]
    return (gradient,)


def _own_spike_gradient(capacity: int, q: np.ndarray, spikes: Any, row: np.ndarray) -> tuple[np.ndarray]:
    if not isinstance(spikes, SparseSpikes):
        return (q * row,)
    gradient = np.zeros((q.shape[0], capacity), q.dtype)
    for sample in range(q.shape[0]):
        count = spikes.counts[sample, 1]
        listed = spikes.ids[sample, :count]
        gradient[sample, :count] = row[0, listed] * q[sample, listed]
    return (gradient,)


def _to_every_bias(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    name = f"d.{op.outputs[0]}.each"
    return build.add("bias_sum_gradient", (gradient,), name, layer=op.layer, attributes=op.attributes)


_row = shaped(lambda values, _: (1, values[0].shape[1]))


WIRING = (
    OpDef(name="self_synapse", shapes=like(0), evaluate=_self_synapse, vjp=_self_synapse_vjp, flops=per_element(1)),
    OpDef(name="self_synapse_weight_gradient", shapes=_row, evaluate=_row_gradient, flops=per_element(2)),
    OpDef(
        name="self_synapse_spike_gradient",
        shapes=listed_like(1),
        evaluate=_own_spike_gradient,
        flops=per_element(1),
    ),
    OpDef(
        name="bias_sum",
        shapes=lambda values, _: (("", Value(name="", shape=values[0].shape, role="bias")),),
        evaluate=lambda _, first, *more: (sum(more, first),),
        vjp=_to_every_bias,
        flops=lambda values, _: (len(values) - 1) * elements(values[0]),
    ),
    OpDef(
        name="bias_sum_gradient",
        shapes=lambda values, count: tuple((str(n), Value(name="", shape=values[0].shape)) for n in range(count)),
        evaluate=lambda count, gradient, *_: tuple(gradient.copy() for _ in range(count)),
        flops=no_flops,
    ),
    OpDef(
        name="bias_add",
        shapes=like(0),
        evaluate=lambda _, current, row: (current + row,),
        vjp=lambda build, op, q: (q, build.one("bias_gradient", (q,), f"{op.layer}.db_now", layer=op.layer)),
        flops=per_element(1),
    ),
    OpDef(
        name="bias_gradient",
        shapes=_row,
        evaluate=lambda _, q: (summed(q),),
        flops=per_element(1),
    ),
)
