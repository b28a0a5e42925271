"""Loss and update: spike counts summed over time, cross-entropy from logits; clipping, SGD and Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.definition import Backward, OpDef, elements, like
from mimdsim.graph.records import GraphBuilder, Operation, SparseSpikes, Value

LEARNING_RATE = "learning_rate"  # graph input of a scheduled rate
NORM_FLOOR = 1e-6  # added to the norm of the gradients before the bound is divided by it, as PyTorch does


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """w <- w - learning_rate * b with b <- momentum * b + gradient + weight_decay * w (PyTorch's convention).

    scheduled: the rate is a run-time input, `learning_rate` the highest it reaches.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    scheduled: bool = False


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Kingma & Ba 2015; `training_step` is a run-time input that counts from 1.

    weight_decay is decoupled (AdamW, Loshchilov & Hutter 2019): w <- (1 - rate * weight_decay) * w before the update.
    scheduled: the rate is a run-time input, `learning_rate` the highest it reaches.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-7  # Keras' default, which the published code uses
    weight_decay: float = 0.0
    scheduled: bool = False


def optimiser_state(optimiser: Sgd | Adam) -> tuple[str, ...]:
    """What an optimiser keeps per weight from one training step to the next, e.g. ('moment1', 'moment2')."""
    if isinstance(optimiser, Adam):
        return "moment1", "moment2"
    return ("momentum",) if optimiser.momentum else ()


def moment_name(moment: str, parameter: str) -> str:
    """'moment1.hidden0' of the weights 'w.hidden0', 'moment1.b.hidden0' of 'b.hidden0'."""
    return f"{moment}.{parameter.removeprefix('w.')}"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A weight, its gradient and the layer it belongs to."""

    weight: str
    gradient: str
    layer: str


def add_updates(
    build: GraphBuilder, optimiser: Sgd | Adam, largest_norm: float, trained: tuple[Trained, ...]
) -> tuple[str, ...]:
    """Append the update of every weight; returns the gradients as they are used, then the updated weights and state.

    With a `largest_norm` above 0 all gradients are scaled down together where their common norm exceeds it.
    """
    if largest_norm:
        trained = _clipped(build, largest_norm, trained)
    kind = "adam" if isinstance(optimiser, Adam) else "momentum" if optimiser.momentum else "sgd"
    scalars: tuple[str, ...] = ("training_step",) if kind == "adam" else ()
    scalars += (LEARNING_RATE,) if optimiser.scheduled else ()
    for scalar in scalars:
        build.declare(Value(name=scalar, shape=()))
    outputs = [item.gradient for item in trained]
    for item in trained:
        state = tuple(moment_name(slot, item.weight) for slot in optimiser_state(optimiser))
        for name in state:
            build.declare(Value(name=name, shape=build.values[item.weight].shape))
        given = (item.weight, item.gradient, *state, *scalars)
        outputs += build.add(kind, given, f"next.{item.weight}", layer=item.layer, attributes=optimiser)
    return tuple(outputs)


def _clipped(build: GraphBuilder, largest_norm: float, trained: tuple[Trained, ...]) -> tuple[Trained, ...]:
    squares = tuple(
        build.one("sum_squares", (item.gradient,), f"squares.{item.weight}", layer=item.layer) for item in trained
    )
    factor = build.one("clip_factor", squares, "clip_factor", attributes=largest_norm)
    made = []
    for item in trained:
        gradient = build.one("scale", (item.gradient, factor), f"clipped.{item.weight}", layer=item.layer)
        made.append(Trained(weight=item.weight, gradient=gradient, layer=item.layer))
    return tuple(made)


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


def _rate(optimiser: Sgd | Adam, given: tuple[Any, ...]) -> float:
    """The learning rate: the optimiser's own, or what is given at run time."""
    return float(np.asarray(given[0]).item()) if given else optimiser.learning_rate


def _sgd(sgd: Sgd, w: np.ndarray, gradient: np.ndarray, *rate: Any) -> tuple[np.ndarray]:
    kind = w.dtype.type
    if sgd.weight_decay:
        gradient = gradient + kind(sgd.weight_decay) * w
    return (w - kind(_rate(sgd, rate)) * gradient,)


def _momentum(
    sgd: Sgd, w: np.ndarray, gradient: np.ndarray, buffer: np.ndarray, *rate: Any
) -> tuple[np.ndarray, np.ndarray]:
    kind = w.dtype.type
    if sgd.weight_decay:
        gradient = gradient + kind(sgd.weight_decay) * w
    buffer = kind(sgd.momentum) * buffer + gradient
    return w - kind(_rate(sgd, rate)) * buffer, buffer


def _adam(
    adam: Adam, w: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, training_step: int, *given: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kind = w.dtype.type
    learning_rate = _rate(adam, given)
    if adam.weight_decay:
        w = w * kind(1 - learning_rate * adam.weight_decay)
    m = kind(adam.beta1) * m + kind(1 - adam.beta1) * gradient
    v = kind(adam.beta2) * v + kind(1 - adam.beta2) * gradient * gradient
    rate = learning_rate * (1 - adam.beta2**training_step) ** 0.5 / (1 - adam.beta1**training_step)
    return w - kind(rate) * m / (np.sqrt(v) + kind(adam.epsilon)), m, v


def _clip_factor(largest_norm: float, *squares: Any) -> tuple[Any]:
    """min(1, largest_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_."""
    kind = np.asarray(squares[0]).dtype.type
    norm = np.sqrt(sum(squares[1:], squares[0]))
    return (min(kind(1), kind(largest_norm) / (norm + kind(NORM_FLOOR))),)


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
        name="momentum",
        shapes=lambda values, _: (*like(values[0]), *like(values[0], "momentum")),
        evaluate=_momentum,
        flops=lambda values, _: 4 * elements(values[0]),
    ),
    OpDef(
        name="sum_squares",
        shapes=lambda _values, _: (("", Value(name="", shape=())),),
        evaluate=lambda _, gradient: ((gradient * gradient).sum(),),
        flops=lambda values, _: 2 * elements(values[0]),
    ),
    OpDef(
        name="clip_factor",
        shapes=lambda _values, _: (("", Value(name="", shape=())),),
        evaluate=_clip_factor,
        flops=lambda values, _: len(values) + 3,
    ),
    OpDef(
        name="scale",
        shapes=lambda values, _: like(values[0]),
        evaluate=lambda _, gradient, factor: (gradient * factor,),
        flops=lambda values, _: elements(values[0]),
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
