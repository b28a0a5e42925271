"""The equations of one neuron, called by every kernel that uses them; constants have the dtype of the state."""

from __future__ import annotations

import math

import numpy as np

from mimdsim.numerics.compiled import compiled

KINDS = (
    "superspike",
    "arctan",
    "sigmoid",
    "triangular",
    "boxcar",
    "straight_through",
    "gaussian",
    "multi_gaussian",
    "double_gaussian",
    "exponential",
)
SUPERSPIKE, ARCTAN, SIGMOID, TRIANGULAR, BOXCAR = range(5)
STRAIGHT_THROUGH, GAUSSIAN, MULTI_GAUSSIAN, DOUBLE_GAUSSIAN, EXPONENTIAL = range(5, 10)
# of the multi-Gaussian, as in graph/surrogates.py: how much higher, wider and aside its bells are
LIFTED, WIDER, ASIDE = 0.15, 6.0, math.sqrt(0.5)


@compiled
def integrated(v, current, decay, scale, threshold, zero):  # type: ignore[no-untyped-def]
    """The potential a timestep later: (0 if v > threshold else decay * v) + scale * current."""
    kept = v * decay
    if v > threshold:
        kept = zero
    return kept + scale * current


@compiled
def unless_spiked(value, v_previous, threshold, zero):  # type: ignore[no-untyped-def]
    """The gradient masked by the reset: 0 where v_previous > threshold."""
    return zero if v_previous > threshold else value


@compiled(error_model="numpy")  # the divisor is never zero
def superspike(x, slope, one):  # type: ignore[no-untyped-def]
    """1 / (slope * |x| + 1)^2, in place of the derivative of a spike at x = v - threshold."""
    scaled = slope * abs(x) + one
    return one / (scaled * scaled)


@compiled
def bell(x, slope, real):  # type: ignore[no-untyped-def]
    """The normal density with deviation 1 / (slope * sqrt(2))."""
    return slope * real(1 / math.sqrt(math.pi)) * real(math.exp(-(slope * slope) * (x * x)))


@compiled
def surrogate(kind, x, slope, like):  # type: ignore[no-untyped-def]
    """The surrogate for the derivative of a spike, at x = u - threshold; all in the dtype of the array `like`."""
    real = like.dtype.type
    zero, half, one = real(0), real(0.5), real(1)
    if kind == SUPERSPIKE:
        return superspike(x, slope, one)
    if kind == ARCTAN:
        top = slope * half
        scaled = real(np.pi) * top * x
        return top / (scaled * scaled + one)
    if kind == SIGMOID:
        decay = real(math.exp(-slope * abs(x)))
        raised = decay + one
        return slope * decay / (raised * raised)
    if kind == TRIANGULAR:
        return max(slope - slope * slope * abs(x), zero)
    if kind == BOXCAR:
        return slope if slope * abs(x) < half else zero
    if kind == GAUSSIAN:
        return bell(x, slope, real)
    if kind == MULTI_GAUSSIAN:
        aside, wide = real(ASIDE) / slope, slope * real(1 / WIDER)
        beside = bell(x - aside, wide, real) + bell(x + aside, wide, real)
        return real(1 + LIFTED) * bell(x, slope, real) - real(LIFTED) * beside
    if kind == DOUBLE_GAUSSIAN:
        beneath = bell(x, slope * real(1 / WIDER), real)
        return real(1 + LIFTED) * bell(x, slope, real) - real(2 * LIFTED) * beneath
    if kind == EXPONENTIAL:
        return slope * half * real(math.exp(-slope * abs(x)))
    return one
