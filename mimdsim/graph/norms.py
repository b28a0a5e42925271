"""Norms. Batch norm of what a layer reads: its current, of mean 0 and variance 1 over the samples, times a gain, plus a
bias; norms of single samples follow it.

Gain and bias are trained, one number for each column: a neuron, or a channel of planes, whose positions count like
samples. A training step normalises by the statistics of its batch and keeps running averages of them; what is not
learned from uses those, which are then constants of the layer (`folded`).

Norms of "each_timestep" (BNTT, Kim and Panda 2021) have a gain, a bias and statistics for every timestep. They are made
of the whole sequence at once: rows [timesteps, columns] instead of [1, columns], each with its own share of the values.
Statistics that differ from timestep to timestep do not fold into weights: these stay as rows (`fixed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mimdsim.base.errors import MappingError, check_choice
from mimdsim.graph.records import Backward, OpDef, Operation, Value, elements, like, per_element, summed

if TYPE_CHECKING:
    from mimdsim.graph.layer import Layer


OF_SAMPLES = ("sample", "root_mean_square", "position")
PER = ("timestep", "sequence", "each_timestep", *OF_SAMPLES)
STATISTICS = ("mean", "variance")  # roles of the running averages, which are kept like parameters and not trained


@dataclass(frozen=True, kw_only=True)
class BatchNorm:
    """per: the statistics are those of every timestep, or of all timesteps of the sequence together; or, of a "sample",
    those of each of so many `groups` of its columns in a timestep, which nothing is averaged of (`SampleNorm`); of
    a "root_mean_square" alike, about 0 instead of the mean; of every "position" of planes by itself, over its channels.
    rows: of gain, bias and statistics, one for each timestep where these are of "each_timestep". fixed: by the running
    averages, which stay as they are. epsilon: added to the variance. momentum: the share that a new value has of a
    running average (0 to 1)."""

    per: str = "timestep"
    epsilon: float = 1e-5
    momentum: float = 0.1
    groups: int = 1
    rows: int = 1
    fixed: bool = False

    def __post_init__(self) -> None:
        check_choice("network.batch_norm", self.per, PER)
        if not self.epsilon > 0 or not 0 <= self.momentum <= 1:
            raise MappingError(
                f"batch norm with epsilon {self.epsilon} and momentum {self.momentum} is not valid: epsilon must be "
                "above 0, momentum from 0 to 1"
            )
        if self.groups != 1 and self.averages:
            raise MappingError(
                f'network.batch_norm_groups = {self.groups}: only a batch_norm of a "sample" or "root_mean_square", or '
                'of every "position", has groups'
            )

    @property
    def at_once(self) -> bool:
        """Whether it is made of all timesteps at once, before those of the layer's neurons."""
        return self.per in ("sequence", "each_timestep")

    @property
    def averages(self) -> tuple[str, ...]:
        """Roles of the running averages that it keeps."""
        return () if self.per in OF_SAMPLES else STATISTICS


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """A running average: `kept` times what it was, plus `share` times the new value."""

    kept: float
    share: float


def averaging(norm: BatchNorm, role: str, values: int) -> Averaging:
    """Of a statistic of so many values; of the variance, the average is of the unbiased one, as in PyTorch."""
    factor = values / (values - 1) if role == "variance" else 1.0
    return Averaging(kept=1 - norm.momentum, share=norm.momentum * factor)


def folded(layers: tuple[Layer, ...], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters of the same layers without batch norm: weights and biases with the running averages in them."""
    made = dict(weights)
    for layer in layers:
        if layer.norm is None or not layer.folds:
            continue
        named = {each.role: each.name for each in layer.parameters}
        gain, variance = (np.asarray(weights[named[role]], np.float64).reshape(1, -1) for role in ("gain", "variance"))
        scale = gain / np.sqrt(variance + layer.norm.epsilon)
        kind = weights[named["bias"]].dtype
        for each in layer.parameters:
            if each.role == "weights":
                made[each.name] = (weights[each.name] * scale).astype(kind)
        mean, bias = (weights[named[role]].reshape(1, -1).astype(np.float64) for role in ("mean", "bias"))
        made[named["bias"]] = (bias - mean * scale).astype(kind).reshape(weights[named["bias"]].shape)
        for role in ("gain", *STATISTICS):
            del made[named[role]]
    return made


def _batch_norm(norm: BatchNorm, x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, ...]:
    """[..., columns], and mean and variance [rows, columns] over all other axes, or those of a timestep."""
    shares = _shares(x, len(gain))
    share = x.dtype.type(1 / shares.shape[1])
    mean = _summed(shares) * share
    apart = shares - mean[:, None]
    variance = _summed(apart * apart) * share
    return _normalise(norm, x, gain, bias, mean, variance)[0], mean, variance


def _normalise(
    norm: BatchNorm, x: np.ndarray, gain: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray]:
    """By statistics that are given."""
    scale = gain * _inverse(variance, norm)
    made = (_shares(x, len(gain)) - mean[:, None]) * scale[:, None] + bias[:, None]
    return (made.reshape(x.shape),)


def _shares(x: np.ndarray, rows: int) -> np.ndarray:
    """[rows, values, columns]: what has each row of statistics in common."""
    return x.reshape(rows, -1, x.shape[-1])


def _summed(shares: np.ndarray) -> np.ndarray:
    return np.concatenate([summed(each) for each in shares])


def _inverse(variance: np.ndarray, norm: BatchNorm) -> np.ndarray:
    kind = variance.dtype.type
    found: np.ndarray = kind(1) / np.sqrt(variance + kind(norm.epsilon))
    return found


def _sums(
    norm: BatchNorm, q: np.ndarray, x: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of gain and bias."""
    shares, apart = _shares(q, len(mean)), _shares(x, len(mean)) - mean[:, None]
    return _summed(shares * apart) * _inverse(variance, norm), _summed(shares)


def _input_gradient(
    norm: BatchNorm,
    q: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    gain: np.ndarray,
    d_gain: np.ndarray,
    d_bias: np.ndarray,
) -> tuple[np.ndarray]:
    inverse, shares = _inverse(variance, norm), _shares(q, len(mean))
    share = q.dtype.type(1 / shares.shape[1])
    slope = (_shares(x, len(mean)) - mean[:, None]) * inverse[:, None] * d_gain[:, None]
    made: np.ndarray = (gain * inverse)[:, None] * (shares - share * (d_bias[:, None] + slope))
    return (made.reshape(q.shape),)


def _vjp(build: Backward, op: Operation, q: str | None, *_statistics: str | None) -> tuple[str | None, ...]:
    """Only the normalised values have a gradient; statistics go nowhere else but to the running averages."""
    assert q is not None
    (x, gain, _), (_, mean, variance) = op.inputs, op.outputs
    layer, norm = op.layer, op.attributes
    given = (q, *(build.saved(name) for name in (x, mean, variance)))
    names = f"{layer}.dgain_now", f"{layer}.db_now"
    sums = build.add("batch_norm_sums", given, f"{layer}.norm_sums", layer=layer, attributes=norm, names=names)
    inputs = (*given, build.saved(gain), *sums)
    d_x = build.one("batch_norm_input_gradient", inputs, f"{layer}.d_current", layer=layer, attributes=norm)
    return d_x, *sums


def _row(value: Value) -> Value:
    return Value(name="", shape=value.shape)


BATCH_NORM = (
    OpDef(
        name="batch_norm",
        shapes=lambda values, _: (
            ("", _row(values[0])),
            ("mean", _row(values[1])),
            ("variance", _row(values[1])),
        ),
        evaluate=_batch_norm,
        vjp=_vjp,
        flops=lambda values, _: 7 * elements(values[0]) + 4 * elements(values[1]),
    ),
    OpDef(
        name="batch_norm_fixed",  # by statistics that stay as they are
        shapes=like(0),
        evaluate=_normalise,
        flops=lambda values, _: 3 * elements(values[0]) + 3 * elements(values[1]),
    ),
    OpDef(
        name="batch_norm_sums",
        shapes=lambda values, _: (("gain", _row(values[2])), ("bias", _row(values[2]))),
        evaluate=_sums,
        flops=lambda values, _: 4 * elements(values[0]) + 4 * elements(values[2]),
    ),
    OpDef(
        name="batch_norm_input_gradient",
        shapes=like(0),
        evaluate=_input_gradient,
        flops=lambda values, _: 5 * elements(values[0]) + 7 * elements(values[2]),
    ),
    OpDef(
        name="running_average",
        shapes=like(0),
        evaluate=lambda how, held, now: (held.dtype.type(how.kept) * held + held.dtype.type(how.share) * now,),
        flops=per_element(3),
    ),
)


# ---- layer, group and instance norm: currents of a sample, of mean 0 and variance 1 over equal shares of its columns;
# and of the root mean square alone, whose mean stays (RMSNorm).
#
# Gain and bias are rows that are multiplied and added after it (`self_synapse`, `bias_add`). Nothing is averaged over
# samples, so that evaluations do the same.


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
    """The statistics of a norm of what has so many positions."""
    rows = 1 if norm.per == "position" else positions
    return SampleNorm(positions=rows, groups=norm.groups, epsilon=norm.epsilon, centred=norm.per != "root_mean_square")


def _mean(shares: np.ndarray) -> np.ndarray:
    """[samples, 1, groups, 1]; numpy adds float32 one by one."""
    mean: np.ndarray = shares.mean(axis=(1, 3), keepdims=True, dtype=np.float64).astype(shares.dtype)
    return mean


def _inverse_deviation(norm: SampleNorm, variance: np.ndarray) -> np.ndarray:
    kind = variance.dtype.type
    inverse: np.ndarray = kind(1) / np.sqrt(variance + kind(norm.epsilon))
    return inverse


def _standardise(norm: SampleNorm, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the shape of x, and the variances [samples, groups]."""
    shares = norm.shares(x)
    apart = shares - _mean(shares) if norm.centred else shares
    variance = _mean(apart * apart)
    made = apart * _inverse_deviation(norm, variance)
    return made.reshape(x.shape), variance.reshape(-1, norm.groups)


def _gradient(norm: SampleNorm, q: np.ndarray, made: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray]:
    gradient, normal = norm.shares(q), norm.shares(made)
    inverse = _inverse_deviation(norm, variance).reshape(-1, 1, norm.groups, 1)
    apart = gradient - normal * _mean(gradient * normal)
    apart = apart - _mean(gradient) if norm.centred else apart
    return ((inverse * apart).reshape(q.shape),)


def _standardise_vjp(build: Backward, op: Operation, q: str | None, _variance: str | None) -> tuple[str | None, ...]:
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
        vjp=_standardise_vjp,
        flops=lambda values, norm: (6 if norm.centred else 4) * elements(values[0]),
    ),
    OpDef(
        name="standardise_gradient",
        shapes=like(0),
        evaluate=_gradient,
        flops=lambda values, norm: (7 if norm.centred else 5) * elements(values[0]),
    ),
)
