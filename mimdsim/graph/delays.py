"""Delays that are learned: a weight and a delay for every synapse, of which a matrix for every age is made before the
timesteps.

The weights at age a are w * k(a), k = softmax over the ages of -(a - delay)^2 / (2 width^2): the Gaussian of Hammouamri
et al. 2024 (DCLS), whose width shrinks while the network learns. A width of 0 rounds delays to whole timesteps. They
are not clamped: the softmax of one beyond the ages is next to 1 at the last of them. DCLS adds an `epsilon` of 1e-7 to
the sum of the Gaussian, which takes that weight away. All is worked out in float64 and rounded once: in float32 the
exponentials alone would put gradients further off than PyTorch's are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.graph.records import Backward, OpDef, Operation, Value, elements

MOST_EXPONENT = 80.0  # exp of it, which is far beyond what any share could be


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Synapses have delays of 0 to `ages` - 1 timesteps beyond the age at which the layer reads its source; `width`
    shrinks by the same factor in each of `training_steps` to `final_width`, and stays. `epsilon` is added to the sum
    of the Gaussian."""

    ages: int
    width: float
    final_width: float
    training_steps: int = 0
    epsilon: float = 0.0

    def at(self, training_step: int) -> float:
        """The width in a training step, counted from 0."""
        passed = min(1.0, training_step / self.training_steps) if self.training_steps else 1.0
        return float(self.width * (self.final_width / self.width) ** passed)


def kernel(ages: int, epsilon: float, delay: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """float64 ([ages, *delay.shape]: the share of a weight at every age; how far the age is from the delay)."""
    age = np.arange(ages, dtype=np.float64).reshape(-1, *(1,) * delay.ndim)
    away = age - delay
    if width == 0:
        return (age == np.clip(np.rint(delay), 0, ages - 1)).astype(np.float64), away
    scaled = -np.square(away / width) / 2
    largest = scaled.max(axis=0)
    made = np.exp(scaled - largest)
    beside = epsilon * np.exp(np.minimum(-largest, MOST_EXPONENT))
    return made / (made.sum(axis=0) + beside), away


def delayed_weights(
    ages: int, epsilon: float, w: np.ndarray, delay: np.ndarray, width: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The weights at every age."""
    return tuple((w * kernel(ages, epsilon, delay, float(width.item()))[0]).astype(w.dtype))


def delayed_weights_gradient(
    ages: int, epsilon: float, w: np.ndarray, delay: np.ndarray, width: np.ndarray, *given: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of weights and delays from those of the weights at every age; rounded delays have none."""
    share, away = kernel(ages, epsilon, delay, of := float(width.item()))
    pulled = share * np.stack(given)
    if of == 0:
        return pulled.sum(axis=0).astype(w.dtype), np.zeros_like(delay)
    moved = (pulled * (away - (share * away).sum(axis=0))).sum(axis=0)
    return pulled.sum(axis=0).astype(w.dtype), (w * moved / of**2).astype(w.dtype)


def _vjp(build: Backward, op: Operation, *given: str | None) -> tuple[str | None, ...]:
    held = tuple(name for name in given if name is not None)
    assert len(held) == op.attributes.ages  # every age is read
    made = build.add(
        "delayed_weights_gradient", (*op.inputs, *held), f"d.{op.name}", layer=op.layer, attributes=op.attributes
    )
    return *made, None


def _matrices(values: tuple[Value, ...], count: int) -> tuple[tuple[str, Value], ...]:
    return tuple((str(number), Value(name="", shape=values[0].shape, role="weights")) for number in range(count))


# of a weight and age: distance, square, scale, exponential, sum, quotient, product
FLOPS, GRADIENT_FLOPS = 8, 14

DELAYS = (
    OpDef(
        name="delayed_weights",
        shapes=lambda values, about: _matrices(values, about.ages),
        evaluate=lambda about, *given: delayed_weights(about.ages, about.epsilon, *given),
        vjp=_vjp,
        flops=lambda values, about: FLOPS * about.ages * elements(values[0]),
    ),
    OpDef(
        name="delayed_weights_gradient",
        shapes=lambda values, _: tuple((each, Value(name="", shape=values[0].shape)) for each in ("weights", "delay")),
        evaluate=lambda about, *given: delayed_weights_gradient(about.ages, about.epsilon, *given),
        flops=lambda values, about: GRADIENT_FLOPS * about.ages * elements(values[0]),
    ),
)
