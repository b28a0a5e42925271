"""Surrogate gradients: stand-ins for the derivative of a spike, as functions of u - threshold and a slope.

To add one: a record here, its branch in numerics/equations.py, its bundles in codelets/surrogates.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near

# of "multi_gaussian": how much higher the middle bell is, how much wider the two beside it, and how far they stand off,
# which those of "double_gaussian" do not
LIFTED, WIDER, ASIDE = 0.15, 6.0, math.sqrt(0.5)
Shape = Callable[[np.ndarray, Any], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """derivative(x, slope) at x = u - threshold, in the dtype of x; `smooth` is a spike with that derivative, for
    finite differences. source: who uses it, under which name and with which default slope."""

    name: str
    derivative: Shape
    smooth: Shape
    slope: float
    source: str


def _superspike(x: np.ndarray, k: Any) -> np.ndarray:
    scaled = k * np.abs(x) + x.dtype.type(1)
    result: np.ndarray = x.dtype.type(1) / (scaled * scaled)
    return result


def _arctan(x: np.ndarray, k: Any) -> np.ndarray:
    half = k * x.dtype.type(0.5)
    scaled = x.dtype.type(np.pi) * half * x
    result: np.ndarray = half / (scaled * scaled + x.dtype.type(1))
    return result


def _sigmoid(x: np.ndarray, k: Any) -> np.ndarray:
    decay = np.exp(-k * np.abs(x))  # even in x; the absolute value keeps it from overflowing
    raised = decay + x.dtype.type(1)
    result: np.ndarray = k * decay / (raised * raised)
    return result


def _gaussian(x: np.ndarray, k: Any) -> np.ndarray:
    result: np.ndarray = k * x.dtype.type(1 / math.sqrt(math.pi)) * np.exp(-(k * k) * (x * x))
    return result


def _multi_gaussian(x: np.ndarray, k: Any) -> np.ndarray:
    real = x.dtype.type
    aside, wide = real(ASIDE) / k, k * real(1 / WIDER)
    beside = _gaussian(x - aside, wide) + _gaussian(x + aside, wide)
    result: np.ndarray = real(1 + LIFTED) * _gaussian(x, k) - real(LIFTED) * beside
    return result


def _double_gaussian(x: np.ndarray, k: Any) -> np.ndarray:
    real = x.dtype.type
    beneath = _gaussian(x, k * real(1 / WIDER))
    result: np.ndarray = real(1 + LIFTED) * _gaussian(x, k) - real(2 * LIFTED) * beneath
    return result


def _smooth_gaussian(x: np.ndarray, k: Any) -> np.ndarray:
    result: np.ndarray = np.vectorize(math.erf, otypes=[float])(k * x) / 2
    return result


def _smooth_multi_gaussian(x: np.ndarray, k: Any) -> np.ndarray:
    beside = sum(_smooth_gaussian(x + side * ASIDE / k, k / WIDER) for side in (-1, 1))
    result: np.ndarray = (1 + LIFTED) * _smooth_gaussian(x, k) - LIFTED * beside
    return result


def _smooth_triangular(x: np.ndarray, k: Any) -> np.ndarray:
    inside = np.clip(k * x, -1, 1)
    result: np.ndarray = inside - np.sign(inside) * inside * inside / 2
    return result


SURROGATES = {
    record.name: record
    for record in (
        Surrogate(
            name="superspike",
            derivative=_superspike,
            smooth=lambda x, k: x / (1 + k * np.abs(x)),
            slope=10.0,
            source="1/(k|x|+1)^2: Zenke & Ganguli 2018; snnTorch fast_sigmoid (25); norse 'super' after 1.1.0",
        ),
        Surrogate(
            name="arctan",
            derivative=_arctan,
            smooth=lambda x, k: np.arctan(np.pi * k * x / 2) / np.pi,
            slope=2.0,
            source="(k/2)/(1+(pi k x/2)^2): code of snnTorch atan (2) and SpikingJelly ATan (2)",
        ),
        Surrogate(
            name="sigmoid",
            derivative=_sigmoid,
            smooth=lambda x, k: 1 / (1 + np.exp(-k * x)),
            slope=25.0,
            source="k e^-kx/(1+e^-kx)^2: snnTorch sigmoid (25), SpikingJelly Sigmoid (4)",
        ),
        Surrogate(
            name="triangular",
            derivative=lambda x, k: np.maximum(k - k * k * np.abs(x), x.dtype.type(0)),
            smooth=_smooth_triangular,
            slope=1.0,
            source="max(0, k - k^2|x|): SpikingJelly PiecewiseQuadratic (1); norse 'triangle' at alpha 1",
        ),
        Surrogate(
            name="boxcar",
            derivative=lambda x, k: np.where(k * np.abs(x) < x.dtype.type(0.5), k, x.dtype.type(0)),
            smooth=lambda x, k: np.clip(k * x, -0.5, 0.5),
            slope=1.0,
            source="k where |x| < 1/(2k): SpikingJelly Rect (1)",
        ),
        Surrogate(
            name="straight_through",
            derivative=lambda x, _: np.ones_like(x),
            smooth=lambda x, _: x.copy(),
            slope=1.0,
            source="1: snnTorch straight_through_estimator; the slope is not used",
        ),
        Surrogate(
            name="gaussian",
            derivative=_gaussian,
            smooth=_smooth_gaussian,
            slope=2.0,
            source="(k/sqrt(pi)) e^(-(kx)^2), a normal density with sigma = 1/(k sqrt(2)): SpikingJelly Erf (2)",
        ),
        Surrogate(
            name="multi_gaussian",
            derivative=_multi_gaussian,
            smooth=_smooth_multi_gaussian,
            slope=math.sqrt(2),
            source="1.15 N(x; 0, s) - 0.15 (N(x; s, 6 s) + N(x; -s, 6 s)), s = 1/(k sqrt(2)): Yin, Corradi & Bohte "
            "2021 (s = 0.5, times 0.5)",
        ),
        Surrogate(
            name="double_gaussian",
            derivative=_double_gaussian,
            smooth=lambda x, k: (1 + LIFTED) * _smooth_gaussian(x, k) - 2 * LIFTED * _smooth_gaussian(x, k / WIDER),
            slope=math.sqrt(2),
            source="1.15 N(x; 0, s) - 0.3 N(x; 0, 6 s), s = 1/(k sqrt(2)): Higuchi, Kairat, Bohte & Otte 2024 "
            "(s = 0.5, times 0.5)",
        ),
        Surrogate(
            name="exponential",
            derivative=lambda x, k: k * x.dtype.type(0.5) * np.exp(-k * np.abs(x)),
            smooth=lambda x, k: np.sign(x) * (1 - np.exp(-k * np.abs(x))) / 2,
            slope=1.0,
            source="(k/2) e^-k|x|: SpikingJelly PiecewiseExp (1); SLAYER (Shrestha & Orchard 2018), times a factor",
        ),
    )
}


def known_surrogate(name: str) -> Surrogate:
    """The record of `name`; raises MappingError listing the known names."""
    if name not in SURROGATES:
        raise MappingError(
            f"network.surrogate = {name!r} is not known{near(name, list(SURROGATES))}; write one of "
            f"{', '.join(SURROGATES)}"
        )
    return SURROGATES[name]


@cache
def half_width(name: str) -> float:
    """Slope times x where the derivative is half as high as at 0; infinite where it is the same everywhere."""
    derivative = SURROGATES[name].derivative
    peak, inside, beyond = float(derivative(np.zeros(1), 1.0)[0]), 0.0, 1e3
    if derivative(np.array([beyond]), 1.0)[0] > peak / 2:
        return math.inf
    for _ in range(200):
        middle = (inside + beyond) / 2
        above = derivative(np.array([middle]), 1.0)[0] > peak / 2
        inside, beyond = (middle, beyond) if above else (inside, middle)
    return beyond
