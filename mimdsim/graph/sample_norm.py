"""Layer, group and instance norm: currents of a sample, of mean 0 and variance 1 over equal shares of its columns; and
of the root mean square alone, whose mean stays (RMSNorm).

Gain and bias are rows that are multiplied and added after it (`self_synapse`, `bias_add`). Nothing is averaged over
samples, so that evaluations do the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.graph.batch_norm import BatchNorm
from mimdsim.graph.records import Backward, OpDef, Operation, Value, elements, like


@dataclass(frozen=True, kw_only=True)
class SampleNorm:
    """Statistics of a sample, which has so many rows (positions), for each of `groups` equal shares of the columns.
    epsilon: added to the variance. centred: the mean is taken off; else the variance is about 0."""

    positions: int
    groups: int
    epsilon: float
    centred: bool = True

    def shares(self, x: np.ndarray) -> np.ndarray:
        """[samples, positions, groups, columns of a group] of [rows, columns]."""
        return x.reshape(-1, self.positions, self.groups, x.shape[-1] // self.groups)

    def values(self, columns: int) -> int:
        """How many have a mean and a variance in common."""
        return self.positions * columns // self.groups


def of_sample(norm: BatchNorm, positions: int) -> SampleNorm:
    centred = norm.per == "sample"
    return SampleNorm(positions=positions, groups=norm.groups, epsilon=norm.epsilon, centred=centred)


def _mean(shares: np.ndarray) -> np.ndarray:
    """[samples, 1, groups, 1]; numpy adds float32 one by one."""
    mean: np.ndarray = shares.mean(axis=(1, 3), keepdims=True, dtype=np.float64).astype(shares.dtype)
    return mean


def _inverse(norm: SampleNorm, variance: np.ndarray) -> np.ndarray:
    kind = variance.dtype.type
    inverse: np.ndarray = kind(1) / np.sqrt(variance + kind(norm.epsilon))
    return inverse


def _standardise(norm: SampleNorm, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the shape of x, and the variances [samples, groups]."""
    shares = norm.shares(x)
    apart = shares - _mean(shares) if norm.centred else shares
    variance = _mean(apart * apart)
    made = apart * _inverse(norm, variance)
    return made.reshape(x.shape), variance.reshape(-1, norm.groups)


def _gradient(norm: SampleNorm, q: np.ndarray, made: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray]:
    gradient, normal = norm.shares(q), norm.shares(made)
    inverse = _inverse(norm, variance).reshape(-1, 1, norm.groups, 1)
    apart = gradient - normal * _mean(gradient * normal)
    apart = apart - _mean(gradient) if norm.centred else apart
    return ((inverse * apart).reshape(q.shape),)


def _vjp(build: Backward, op: Operation, q: str | None, _variance: str | None) -> tuple[str | None, ...]:
    assert q is not None
    inputs = (q, *map(build.saved, op.outputs))
    layer = op.layer
    return (build.one("standardise_gradient", inputs, f"{layer}.d_current", layer=layer, attributes=op.attributes),)


SAMPLE_NORM = (
    OpDef(
        name="standardise",
        shapes=lambda values, norm: (
            ("", Value(name="", shape=values[0].shape)),
            ("variance", Value(name="", shape=(values[0].shape[0] // norm.positions, norm.groups))),
        ),
        evaluate=_standardise,
        vjp=_vjp,
        flops=lambda values, norm: (6 if norm.centred else 4) * elements(values[0]),
    ),
    OpDef(
        name="standardise_gradient",
        shapes=like(0),
        evaluate=_gradient,
        flops=lambda values, norm: (7 if norm.centred else 5) * elements(values[0]),
    ),
)
