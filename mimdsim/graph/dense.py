"""Dense algebra: products with 0/1 spike arrays, sums, zeros. The sparse operations must agree with these.

The attribute of a product is its number of groups (None: one): the columns of what is read, of the weights and of what
is made are cut into as many, and each group of the first meets its own of the second: weights are [columns read by a
group, columns made].
"""

from __future__ import annotations

from dataclasses import dataclass
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
