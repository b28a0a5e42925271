"""Dense algebra: products with 0/1 spike arrays, sums, zeros. The sparse operations must agree with these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.records import (
    Backward,
    Flops,
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


def _matmul_vjp(build: Backward, op: Operation, q: str) -> tuple[str | None, ...]:
    spikes, weights = (build.saved(name) for name in op.inputs)
    d_weights = build.one("matmul_weight_gradient", (q, spikes), f"{op.layer}.dw_now", layer=op.layer)
    d_input = build.one("matmul_input_gradient", (q, weights), f"{op.layer}.d_input", layer=op.layer)
    return d_input, d_weights


def _product_flops(axis: int) -> Flops:
    """axis: of the second input, that the product sums over no more."""
    return lambda values, _: 2 * elements(values[0]) * values[1].shape[axis]


DENSE = (
    OpDef(
        name="matmul",
        shapes=shaped(lambda values, _: (values[0].shape[0], values[1].shape[1])),
        evaluate=lambda _, spikes, weights: (spikes @ weights,),
        vjp=_matmul_vjp,
        flops=_product_flops(1),
    ),
    OpDef(
        name="matmul_weight_gradient",
        shapes=shaped(lambda values, _: (values[1].shape[1], values[0].shape[1])),
        evaluate=lambda _, q, spikes: (spikes.T @ q,),
        flops=_product_flops(1),
    ),
    OpDef(
        name="matmul_input_gradient",
        shapes=shaped(lambda values, _: (values[0].shape[0], values[1].shape[0])),
        evaluate=lambda _, q, weights: (q @ weights.T,),
        flops=_product_flops(0),
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
