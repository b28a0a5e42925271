"""Update of what is trained: clipping by the global norm, SGD with momentum, Adam and AdamW."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.graph.definition import OpDef, elements, like
from mimdsim.graph.names import LEARNING_RATE, TRAINING_STEP, Parameter
from mimdsim.graph.records import GraphBuilder, Value

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

    @property
    def kind(self) -> str:
        """The operation that updates a weight."""
        return "momentum" if self.momentum else "sgd"

    @property
    def state(self) -> tuple[str, ...]:
        """What is kept per weight from one training step to the next."""
        return ("momentum",) if self.momentum else ()

    @property
    def scalars(self) -> tuple[str, ...]:
        """Run-time inputs that all weights share."""
        return (LEARNING_RATE,) if self.scheduled else ()


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

    @property
    def kind(self) -> str:
        """The operation that updates a weight."""
        return "adam"

    @property
    def state(self) -> tuple[str, ...]:
        """What is kept per weight from one training step to the next."""
        return "moment1", "moment2"

    @property
    def scalars(self) -> tuple[str, ...]:
        """Run-time inputs that all weights share."""
        return (TRAINING_STEP, *((LEARNING_RATE,) if self.scheduled else ()))


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A parameter and its gradient."""

    parameter: Parameter
    gradient: str


def add_updates(
    build: GraphBuilder, optimiser: Sgd | Adam, largest_norm: float, trained: tuple[Trained, ...]
) -> tuple[str, ...]:
    """Append the update of every weight; returns the gradients as they are used, then the updated weights and state.

    With a `largest_norm` above 0 all gradients are scaled down together where their common norm exceeds it.
    """
    if largest_norm:
        trained = _clipped(build, largest_norm, trained)
    for scalar in optimiser.scalars:
        build.declare(Value(name=scalar, shape=()))
    outputs = [item.gradient for item in trained]
    for item in trained:
        parameter, layer = item.parameter, item.parameter.layer
        state = tuple(parameter.kept(slot) for slot in optimiser.state)
        for name in state:
            build.declare(Value(name=name, shape=parameter.shape, layer=layer))
        given = (parameter.name, item.gradient, *state, *optimiser.scalars)
        outputs += build.add(optimiser.kind, given, f"next.{parameter.name}", layer=layer, attributes=optimiser)
    return tuple(outputs)


def _clipped(build: GraphBuilder, largest_norm: float, trained: tuple[Trained, ...]) -> tuple[Trained, ...]:
    squares = tuple(
        build.one("sum_squares", (item.gradient,), f"squares.{item.parameter.name}", layer=item.parameter.layer)
        for item in trained
    )
    factor = build.one("clip_factor", squares, "clip_factor", attributes=largest_norm)
    made = []
    for item in trained:
        name, layer = f"clipped.{item.parameter.name}", item.parameter.layer
        made.append(replace(item, gradient=build.one("scale", (item.gradient, factor), name, layer=layer)))
    return tuple(made)


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
