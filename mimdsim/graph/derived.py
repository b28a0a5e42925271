"""What is made of parameters before the timesteps: weights at delays that are learned, see there, and weights that are
functions of parameters: Dale's law and others that keep the sign of what a source does, and weights in a format of
fewer bits, of which the parameters are the master copy.

Before the timesteps a matrix is made of every parameter with a function, element by element, times a fixed sign per
row: that of the neuron which acts by it. Gradients of the parameters follow from those of the matrix after the
timesteps; they pass the rounding of a format unchanged. Functions are worked out in float64 and rounded once. To add
one, write a row of FUNCTIONS and what it costs in codelets/derived.py; a format is a row of
numerics/number_formats.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.graph.records import Backward, OpDef, Operation, Value, elements, like, pulled_back_by
from mimdsim.numerics.number_formats import FORMATS, NumberFormat

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Function:
    """of and slope: of float64 weights; PyTorch's where a derivative jumps. inverse: of what it makes. keeps_zeros:
    weights of 0 act as 0 and get no gradient, so that a mask of the parameter is one of the weights. flops: of a weight
    and its sign, and of the gradient. format: what it rounds to."""

    of: Callable[..., Array]
    slope: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    keeps_zeros: bool
    flops: tuple[int, int]
    format: NumberFormat | None = None


LEAST_LOG = -200.0  # exp of it is 0 in float32


def _sigmoid(w: Array) -> Array:
    made: Array = np.exp(-np.logaddexp(0, -w))
    return made


def _softplus_inverse(y: Array) -> Array:
    return np.where(y > 0, y + np.log(-np.expm1(-np.maximum(y, 1e-300))), LEAST_LOG)


FUNCTIONS = {
    "identity": Function(of=np.array, slope=np.ones_like, inverse=np.array, keeps_zeros=True, flops=(1, 1)),
    "abs": Function(of=np.abs, slope=np.sign, inverse=np.array, keeps_zeros=True, flops=(2, 3)),
    "relu": Function(
        of=lambda w: np.maximum(w, 0), slope=lambda w: (w > 0).astype(w.dtype), inverse=np.array, keeps_zeros=True,
        flops=(2, 2),
    ),
    "exp": Function(
        of=np.exp, slope=np.exp, inverse=lambda y: np.where(y > 0, np.log(np.maximum(y, 1e-300)), LEAST_LOG),
        keeps_zeros=False, flops=(2, 3),
    ),
    "softplus": Function(
        of=lambda w: np.logaddexp(0, w), slope=lambda w: np.exp(-np.logaddexp(0, -w)), inverse=_softplus_inverse,
        keeps_zeros=False, flops=(4, 5),
    ),
    "square": Function(of=np.square, slope=lambda w: 2 * w, inverse=np.sqrt, keeps_zeros=True, flops=(2, 3)),
    "sigmoid": Function(
        of=_sigmoid, slope=lambda w: _sigmoid(w) * _sigmoid(-w),
        inverse=lambda y: np.where(y > 0, np.log(np.maximum(y, 1e-300) / np.maximum(1 - y, 1e-16)), LEAST_LOG),
        keeps_zeros=False, flops=(4, 6),
    ),
    "tanh": Function(
        of=np.tanh, slope=lambda w: 1 - np.tanh(w) ** 2,
        inverse=lambda y: np.arctanh(np.clip(y, -1 + 1e-16, 1 - 1e-16)), keeps_zeros=True, flops=(2, 4),
    ),
    **{
        name: Function(
            of=each.rounded, slope=np.ones_like, inverse=np.array, keeps_zeros=True, flops=(2, 1), format=each
        )
        for name, each in FORMATS.items()
    },
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WeightFunction:
    """`function` of every weight, times a sign per row, times a factor. signs: so many rows that excite (4) and inhibit
    (-2), one run after another; none: all excite. Raises MappingError for an unknown function, for a run of no rows and
    for a factor that is 0 or not finite."""

    function: str
    signs: tuple[int, ...] = ()
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            hint = suggest(self.function, FUNCTIONS)
            raise MappingError(f"function {self.function!r} is not known{hint}; there are {', '.join(FUNCTIONS)}")
        if 0 in self.signs:
            raise MappingError("signs hold a run of 0 rows; give counts, below 0 of rows that inhibit, as in [24, -6]")
        if not (self.factor and np.isfinite(self.factor)):
            raise MappingError(f"factor is {self.factor:g}; give a number other than 0")

    def __str__(self) -> str:
        factor = () if self.factor == 1 else (f"*{self.factor!r}",)
        return ",".join([self.function, *map(str, self.signs), *factor])

    @property
    def about(self) -> Function:
        return FUNCTIONS[self.function]

    @property
    def format(self) -> str:
        """The format that it rounds to, '' for none."""
        return self.function if self.about.format else ""

    def check(self, rows: int) -> None:
        """Raises MappingError where the signs are not those of so many rows."""
        if self.signs and (given := sum(map(abs, self.signs))) != rows:
            raise MappingError(f"signs are of {given} rows, the weights have {rows}")

    def sign(self, first: int, last: int) -> Array:
        """float64[rows, 1] of rows `first` to `last` - 1, times the factor."""
        every = np.repeat(np.sign(self.signs).astype(np.float64), np.abs(self.signs)) if self.signs else np.ones(last)
        return every[first:last, None] * self.factor

    def of_rows(self, first: int, last: int | None, negative: bool = False) -> WeightFunction:
        """That of some of the rows, or of what is subtracted."""
        if not self.signs and (self.factor != 1 or not negative):
            return replace(self, factor=-self.factor) if negative else self
        last = sum(map(abs, self.signs)) if last is None else last
        signs = np.sign(self.sign(first, last)[:, 0] * self.factor) * (-1 if negative else 1)
        return replace(self, signs=run_lengths(signs))


def run_lengths(signs: Array) -> tuple[int, ...]:
    """`WeightFunction.signs` of a number of 1 or -1 for every row."""
    edges = [0, *(np.flatnonzero(np.diff(signs)) + 1).tolist(), len(signs)]
    runs = tuple(int(signs[first]) * (last - first) for first, last in pairwise(edges) if last > first)
    return () if all(run > 0 for run in runs) else runs


def weights_of_function(about: WeightFunction, w: Array, first: int = 0, *largest: float) -> Array:
    """What acts in place of rows `first` and following of a parameter; largest: in size, of all its numbers, which set
    the scale of whole numbers."""
    made: Array = (about.about.of(w.astype(np.float64), *largest) * about.sign(first, first + len(w))).astype(w.dtype)
    return made


def weight_function_gradient(about: WeightFunction, gradient: Array, w: Array, first: int = 0) -> Array:
    """The gradient of rows of a parameter from that of what acts in their place."""
    slope = about.about.slope(w.astype(np.float64)) * about.sign(first, first + len(w))
    made: Array = (gradient * slope).astype(w.dtype)
    return made


WEIGHT_FUNCTIONS = (
    OpDef(
        name="weight_function",
        shapes=lambda values, _: (("", Value(name="", shape=values[0].shape, role=values[0].role)),),
        evaluate=lambda about, w: (weights_of_function(about, w),),
        vjp=pulled_back_by("weight_function_gradient", "d.{input}", 0),
        flops=lambda values, about: about.about.flops[0] * elements(values[0]),
    ),
    OpDef(
        name="weight_function_gradient",
        shapes=like(0),
        evaluate=lambda about, gradient, w: (weight_function_gradient(about, gradient, w),),
        flops=lambda values, about: about.about.flops[1] * elements(values[0]),
    ),
)


# ---- delays that are learned: a weight and a delay for every synapse, of which a matrix for every age is made before
# the timesteps.
#
# The weights at age a are w * k(a), k = softmax over the ages of -(a - delay)^2 / (2 width^2): the Gaussian of
# Hammouamri et al. 2024 (DCLS), whose width shrinks while the network learns. A width of 0 rounds delays to whole
# timesteps. They are not clamped: the softmax of one beyond the ages is next to 1 at the last of them. DCLS adds an
# `epsilon` of 1e-7 to the sum of the Gaussian, which takes that weight away. All is worked out in float64 and rounded
# once: in float32 the exponentials alone would put gradients further off than PyTorch's are.


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
DELAY_FLOPS, DELAY_GRADIENT_FLOPS = 8, 14

DELAYS = (
    OpDef(
        name="delayed_weights",
        shapes=lambda values, about: _matrices(values, about.ages),
        evaluate=lambda about, *given: delayed_weights(about.ages, about.epsilon, *given),
        vjp=_vjp,
        flops=lambda values, about: DELAY_FLOPS * about.ages * elements(values[0]),
    ),
    OpDef(
        name="delayed_weights_gradient",
        shapes=lambda values, _: tuple((each, Value(name="", shape=values[0].shape)) for each in ("weights", "delay")),
        evaluate=lambda about, *given: delayed_weights_gradient(about.ages, about.epsilon, *given),
        flops=lambda values, about: DELAY_GRADIENT_FLOPS * about.ages * elements(values[0]),
    ),
)
