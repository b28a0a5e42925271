"""Loss and update: spike counts summed over time, cross-entropy from logits, SGD and Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.definition import Backward, OpDef, elements, like
from mimdsim.graph.records import Operation, SparseSpikes, Value


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """w <- w - learning_rate * gradient, without momentum."""

    learning_rate: float


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Kingma & Ba 2015; `training_step` is a run-time input that counts from 1."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-7  # Keras' default, which the published code uses


@dataclass(frozen=True, kw_only=True)
class Logits:
    """logits = scale * spike counts."""

    scale: float


def _counts(neurons: int, spikes: Any) -> tuple[np.ndarray]:
    """float64[batch, neurons]: whole numbers, exact in any order."""
    if not isinstance(spikes, SparseSpikes):
        return (spikes.sum(axis=0),)
    _, batch, capacity = spikes.ids.shape
    real = np.arange(capacity) < spikes.counts[..., :1]
    sample = np.broadcast_to(np.arange(batch)[None, :, None], real.shape)
    counts = np.zeros((batch, neurons), np.float64)
    np.add.at(counts, (sample[real], spikes.ids[real]), 1.0)
    return (counts,)


def _counts_vjp(build: Backward, op: Operation, cotangents: tuple[str | None, ...]) -> tuple[str | None, ...]:
    if cotangents[0] is None:
        return (None,)
    inputs = (cotangents[0], build.saved(op.inputs[0]))
    return (build.one("spike_counts_gradient", inputs, "output.d_spikes", layer=op.layer),)


def _counts_gradient(_attributes: Any, gradient: np.ndarray, spikes: Any) -> tuple[np.ndarray]:
    if not isinstance(spikes, SparseSpikes):
        return (np.broadcast_to(gradient, spikes.shape).copy(),)
    _, batch, capacity = spikes.ids.shape
    listed = np.arange(capacity) < spikes.counts[..., 1:]
    sample = np.arange(batch)[None, :, None]
    return (np.where(listed, gradient[sample, spikes.ids], 0).astype(gradient.dtype),)


def _counts_gradient_shapes(values: tuple[Value, ...], _attributes: Any) -> tuple[tuple[str, Value], ...]:
    return (("", Value(name="", shape=values[1].shape, capacity=values[1].capacity)),)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Rows that sum to one."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def _cross_entropy(logits: Logits, counts: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray]:
    scores = counts * logits.scale
    shifted = scores - scores.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(labels.size), labels]
    return (np.mean(np.log(np.exp(shifted).sum(axis=1)) - chosen),)


def _cross_entropy_vjp(build: Backward, op: Operation, cotangents: tuple[str | None, ...]) -> tuple[str | None, ...]:
    if cotangents[0] is not None:
        raise ValueError("cross_entropy must be the loss itself: its gradient rule takes no factor")
    inputs = tuple(build.saved(name) for name in op.inputs)
    gradient = build.one("cross_entropy_gradient", inputs, "loss.d_counts", layer=op.layer, attributes=op.attributes)
    return gradient, None


def _cross_entropy_gradient(logits: Logits, counts: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray]:
    gradient = softmax(counts * logits.scale)
    gradient[np.arange(labels.size), labels] -= 1
    return (gradient * (logits.scale / labels.size),)


def _sgd(sgd: Sgd, w: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray]:
    return (w - w.dtype.type(sgd.learning_rate) * gradient,)


def _adam(
    adam: Adam, w: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, training_step: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kind = w.dtype.type
    m = kind(adam.beta1) * m + kind(1 - adam.beta1) * gradient
    v = kind(adam.beta2) * v + kind(1 - adam.beta2) * gradient * gradient
    rate = adam.learning_rate * (1 - adam.beta2**training_step) ** 0.5 / (1 - adam.beta1**training_step)
    return w - kind(rate) * m / (np.sqrt(v) + kind(adam.epsilon)), m, v


TRAINING = (
    OpDef(
        name="spike_counts",
        shapes=lambda values, _: (("", Value(name="", shape=values[0].shape[1:])),),
        evaluate=_counts,
        vjp=_counts_vjp,
        flops=lambda values, _: elements(values[0]),
    ),
    OpDef(
        name="spike_counts_gradient",
        shapes=_counts_gradient_shapes,
        evaluate=_counts_gradient,
        flops=lambda values, _: elements(values[1]),
    ),
    OpDef(
        name="cross_entropy",
        shapes=lambda _values, _: (("", Value(name="", shape=())),),
        evaluate=_cross_entropy,
        vjp=_cross_entropy_vjp,
        flops=lambda values, _: 4 * elements(values[0]),
    ),
    OpDef(
        name="cross_entropy_gradient",
        shapes=lambda values, _: like(values[0]),
        evaluate=_cross_entropy_gradient,
        flops=lambda values, _: 4 * elements(values[0]),
    ),
    OpDef(
        name="sgd",
        shapes=lambda values, _: like(values[0]),
        evaluate=_sgd,
        flops=lambda values, _: 2 * elements(values[0]),
    ),
    OpDef(
        name="adam",
        shapes=lambda values, _: (
            ("", Value(name="", shape=values[0].shape)),
            ("m", Value(name="", shape=values[0].shape)),
            ("v", Value(name="", shape=values[0].shape)),
        ),
        evaluate=_adam,
        flops=lambda values, _: 12 * elements(values[0]),
    ),
)
