"""What a layer reads: products with 0/1 spike arrays, with which the sparse operations must agree, sums, zeros;
products of what two layers send; recurrence and bias.

The attribute of a product is its number of groups (None: one): the columns of what is read, of the weights and of what
is made are cut into as many, and each group of the first meets its own of the second: weights are [columns read by a
group, columns made].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.convolution import Planes
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


@dataclass(frozen=True, kw_only=True)
class Zeros:
    """An initial value: no spikes (form 'sparse') or an array of zeros. dtype follows `like`'s array at run time."""

    shape: tuple[int, ...]
    form: str = "array"
    capacity: int = 0


def _zeros(zeros: Zeros, reference: np.ndarray) -> tuple[Any]:
    if zeros.form == "sparse":
        batch = zeros.shape[0]
        return (SparseSpikes(ids=np.zeros((batch, zeros.capacity), np.int32), counts=np.zeros((batch, 2), np.int32)),)
    shape = zeros.shape if not zeros.capacity else (*zeros.shape[:-1], zeros.capacity)
    return (np.zeros(shape, reference.dtype),)


def _apart(matrix: np.ndarray, groups: int | None) -> np.ndarray:
    """[..., groups, rows, columns of a group]"""
    return np.moveaxis(matrix.reshape(*matrix.shape[:-1], groups or 1, -1), -2, -3)


def _together(made: np.ndarray) -> np.ndarray:
    """The inverse of `_apart`."""
    *more, groups, rows, columns = made.shape
    return np.moveaxis(made, -3, -2).reshape(*more, rows, groups * columns)


def product(groups: int | None, read: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[..., rows, columns made] of what is read [..., rows, columns read]."""
    return _together(_apart(read, groups) @ _apart(weights, groups))


def _matmul_vjp(build: Backward, op: Operation, q: str) -> tuple[str | None, ...]:
    spikes, weights = (build.saved(name) for name in op.inputs)
    how: dict[str, Any] = {"layer": op.layer, "attributes": op.attributes}
    d_weights = build.one("matmul_weight_gradient", (q, spikes), f"{op.layer}.dw_now", **how)
    d_input = build.one("matmul_input_gradient", (q, weights), f"{op.layer}.d_input", **how)
    return d_input, d_weights


def _product_flops(values: tuple[Value, ...], groups: int | None) -> int:
    """Of two matrices with a row each for what is summed over, or that is read."""
    return 2 * elements(values[0]) * values[1].shape[1] // (groups or 1)


DENSE = (
    OpDef(
        name="matmul",
        shapes=shaped(lambda values, _: (values[0].shape[0], values[1].shape[1])),
        evaluate=lambda groups, spikes, weights: (product(groups, spikes, weights),),
        vjp=_matmul_vjp,
        flops=_product_flops,
    ),
    OpDef(
        name="matmul_weight_gradient",
        shapes=shaped(lambda values, groups: (values[1].shape[1] // (groups or 1), values[0].shape[1])),
        evaluate=lambda groups, q, spikes: (_together(_apart(spikes, groups).swapaxes(1, 2) @ _apart(q, groups)),),
        flops=_product_flops,
    ),
    OpDef(
        name="matmul_input_gradient",
        shapes=shaped(lambda values, groups: (values[0].shape[0], values[1].shape[0] * (groups or 1))),
        evaluate=lambda groups, q, weights: (_together(_apart(q, groups) @ _apart(weights, groups).swapaxes(1, 2)),),
        flops=lambda values, _: 2 * elements(values[0]) * values[1].shape[0],
    ),
    OpDef(
        name="add",
        shapes=listed_like(0),
        evaluate=lambda _, a, b: (a + b,),
        vjp=lambda _build, _op, gradient: (gradient, gradient),
        flops=per_element(1),
    ),
    OpDef(
        name="zeros",
        shapes=lambda _, zeros: (("", Value(name="", shape=zeros.shape, form=zeros.form, capacity=zeros.capacity)),),
        evaluate=_zeros,
        flops=no_flops,
    ),
    OpDef(
        name="steady",  # the same in every timestep; attributes: how many
        shapes=shaped(lambda values, timesteps: (timesteps, *values[0].shape)),
        evaluate=lambda timesteps, once: (np.broadcast_to(once, (timesteps, *once.shape)),),
        flops=no_flops,
    ),
    OpDef(name="copy", shapes=like(0), evaluate=lambda _, a: (a.copy(),), flops=no_flops),
)


# ---- products of two matrices for each sample and head, of which attention is made.
#
# Rows are positions of samples. The channels of heads lie side by side, as those of groups do; a head of one meets the
# same head of the other: A B ("nn"), A times the transposed B ("nt") or the transposed A times B ("tn"), as BLAS names
# them. Each is a gradient of the others.


@dataclass(frozen=True, kw_only=True)
class HeadProduct:
    """A product of two for each of so many heads: 'matmul_nn', 'matmul_nt' or 'matmul_tn'."""

    kind: str
    heads: int

    def over(self, one: Planes, other: Planes) -> Planes:
        """The planes that it makes, with the height and the width of the first where its rows are theirs; raises
        MappingError for others that do not meet."""
        met, widths = {
            "nn": ((one.channels, self.heads * other.positions), (one.channels, other.channels)),
            "nt": ((one.channels, other.channels), (one.channels, other.channels)),
            "tn": ((one.positions, other.positions), (one.channels, other.channels)),
        }[self.kind[-2:]]
        if self.heads < 1 or met[0] != met[1] or any(width % self.heads for width in widths):
            raise MappingError(f"{self.kind} of planes of {one} and {other} with {self.heads} heads: they do not meet")
        if self.kind.endswith("nt"):
            return Planes(channels=self.heads * other.positions, height=one.height, width=one.width)
        if self.kind.endswith("tn"):
            return Planes(channels=other.channels, height=one.channels // self.heads, width=1)
        return Planes(channels=other.channels, height=one.height, width=one.width)


@dataclass(frozen=True, kw_only=True)
class BySample(HeadProduct):
    """The same of so many samples, one below the other."""

    samples: int

    def apart(self, matrix: np.ndarray) -> np.ndarray:
        """[samples, heads, rows, columns of a head]"""
        return _apart(matrix.reshape(self.samples, -1, matrix.shape[-1]), self.heads)

    def together(self, made: np.ndarray) -> np.ndarray:
        """The inverse of `apart`."""
        whole = _together(made)
        return whole.reshape(-1, whole.shape[-1])

    def sizes(self, one: Value, other: Value) -> tuple[int, int, int]:
        """(rows, columns, what is summed over) of a head of a sample."""
        (rows, inner), (low, wide) = (
            (each.shape[0] // self.samples, each.shape[1] // self.heads) for each in (one, other)
        )
        return {"nn": (rows, wide, inner), "nt": (rows, low, inner), "tn": (inner, wide, rows)}[self.kind[-2:]]


def by_sample(about: BySample, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray]:
    """(made,) of rows of all samples."""
    left, right = about.apart(one), about.apart(other)
    left = left.swapaxes(2, 3) if about.kind.endswith("tn") else left
    right = right.swapaxes(2, 3) if about.kind.endswith("nt") else right
    return (about.together(left @ right),)


def _by_sample_vjp(build: Backward, op: Operation, q: str) -> tuple[str | None, ...]:
    about: BySample = op.attributes
    one, other = (build.saved(name) for name in op.inputs)
    gradients = {
        "nn": (("nt", (q, other)), ("tn", (one, q))),
        "nt": (("nn", (q, other)), ("tn", (q, one))),
        "tn": (("nt", (other, q)), ("nn", (one, q))),
    }[about.kind[-2:]]
    made = []
    for place, (kind, given) in enumerate(gradients):
        name, how = f"d.{op.outputs[0]}.{place}", replace(about, kind=f"matmul_{kind}")
        made.append(build.one("head_product", given, name, layer=op.layer, attributes=how))
    return tuple(made)


def _by_sample_shape(values: tuple[Value, ...], about: BySample) -> tuple[int, int]:
    rows, columns, _ = about.sizes(*values)
    return about.samples * rows, about.heads * columns


HEAD_PRODUCTS = (
    OpDef(
        name="head_product",
        shapes=shaped(_by_sample_shape),
        evaluate=by_sample,
        vjp=_by_sample_vjp,
        flops=lambda values, about: 2 * about.samples * about.heads * int(np.prod(about.sizes(*values))),
    ),
)


# ---- besides the synapses between layers: from a neuron onto itself, and a bias per neuron.
#
# Their trained numbers are rows [1, neurons], so that every parameter has two axes like weights.


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
