"""Randman: spike times on smooth random manifolds, one per class; every input fires once, so rates carry no
information.

Zenke and Vogels 2021, "The remarkable robustness of surrogate gradient learning ...", Neural Computation 33:899, and
the authors' package randman: y_u(x) = product over d of sum over i of a_i s_i sin(2 pi (i x_d b_i + c_i)), with
a, b, c uniform in 0..1, s_i = 1/((i + 1)^smoothness + 1), and no term i = 0.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mimdsim.base.rng import stream
from mimdsim.workload.data.events import Ints

PRECISION = 1e-3  # terms weaker than this share are left out (the package's default)
MAX_TERMS = 1000  # the package's limit


def terms(smoothness: float) -> int:
    """How many frequencies are summed: ceil(PRECISION^(-1/smoothness)), at most MAX_TERMS; 32 for smoothness 2."""
    if smoothness <= -math.log(PRECISION) / math.log(MAX_TERMS):
        return MAX_TERMS
    return int(min(math.ceil(PRECISION ** (-1 / smoothness)), MAX_TERMS))


def manifold(
    points: npt.NDArray[np.float64], units: int, smoothness: float, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """A random smooth manifold, drawn from `rng`, at `points` [samples, dimensions]: float64[samples, units]."""
    samples, dimensions = points.shape
    values = np.ones((samples, units))
    frequencies = terms(smoothness)
    theta = rng.random((units, dimensions, 3, frequencies))
    for d in range(dimensions):
        amplitude, stretch, phase = theta[:, d].transpose(1, 2, 0)  # each [frequencies, units]
        wave = np.zeros((samples, units))
        for i in range(1, frequencies):
            strength = amplitude[i] / ((i + 1) ** smoothness + 1)
            wave += strength * np.sin(2 * np.pi * (i * points[:, d, None] * stretch[i] + phase[i]))
        values *= wave
    return values


def spike_timesteps(
    *, samples_per_class: int, classes: int, inputs: int, timesteps: int, dimensions: int, smoothness: float, seed: int
) -> tuple[Ints, Ints]:
    """(timestep of every input's only spike int64[samples, inputs], labels int64[samples]), class after class.

    Standardised per input to 0..1 over all samples of a class: call once for training and test samples together,
    because the smallest and largest value depend on the set.
    """
    blocks = []
    for label in range(classes):
        rng = stream(seed, "randman", label)
        points = rng.random((samples_per_class, dimensions))
        values = manifold(points, inputs, smoothness, rng)
        low, high = values.min(axis=0), values.max(axis=0)
        share = (values - low) / np.where(high > low, high - low, 1.0)
        # The largest value is exactly 1, which would be one timestep past the end.
        blocks.append(np.minimum((share * timesteps).astype(np.int64), timesteps - 1))
    return np.concatenate(blocks), np.repeat(np.arange(classes), samples_per_class)


def keys_of(when: Ints, timesteps: int) -> Ints:
    """Keys, as in `Subset`, of spike timesteps int64[samples, inputs], one spike each."""
    samples, inputs = when.shape
    keys: Ints = np.sort(((np.arange(samples)[:, None] * timesteps + when) * inputs + np.arange(inputs)).ravel())
    return keys
