"""How a stack of outputs over the timesteps is read, and the gradient of that: counts, potentials, pooled classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.records import (
    OpDef,
    SparseSpikes,
    like,
    listed_like,
    no_flops,
    per_element,
    pulled_back_by,
    shaped,
)


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Spikes of `neurons` neurons, from timestep `first` on."""

    neurons: int
    first: int = 0


def _counts(counting: Counting, spikes: Any) -> tuple[np.ndarray]:
    """float64[batch, neurons]: whole numbers, exact in any order."""
    if not isinstance(spikes, SparseSpikes):
        return (spikes[counting.first :].sum(axis=0),)
    return (_listed_as_array(spikes, counting.neurons)[counting.first :].sum(axis=0),)


def _listed_as_array(spikes: SparseSpikes, neurons: int) -> np.ndarray:
    """float64[timesteps, batch, neurons]: 1 where a neuron fired."""
    timesteps, batch, capacity = spikes.ids.shape
    real = np.arange(capacity) < spikes.counts[..., :1]
    found = np.zeros((timesteps, batch, neurons), np.float64)
    t, sample, _ = np.nonzero(real)
    found[t, sample, spikes.ids[real]] = 1.0
    return found


def _counts_gradient(counting: Counting, gradient: np.ndarray, spikes: Any) -> tuple[np.ndarray]:
    shape = spikes.ids.shape if isinstance(spikes, SparseSpikes) else spikes.shape
    every = np.broadcast_to(gradient, (shape[0], *gradient.shape)).copy()
    every[: counting.first] = 0
    return _listed_of(None, every, spikes)


def _listed_of(_attributes: Any, gradient: np.ndarray, spikes: Any) -> tuple[np.ndarray]:
    """The gradient [timesteps, batch, neurons] at the listed ids."""
    if not isinstance(spikes, SparseSpikes):
        return (gradient,)
    timesteps, batch, capacity = spikes.ids.shape
    listed = np.arange(capacity) < spikes.counts[..., 1:]
    t, sample = np.arange(timesteps)[:, None, None], np.arange(batch)[None, :, None]
    return (np.where(listed, gradient[t, sample, spikes.ids], 0).astype(gradient.dtype),)


def _read_out(over: str, u: np.ndarray) -> tuple[np.ndarray]:
    if over == "last":
        return (u[-1].copy(),)
    return (u.max(axis=0) if over == "max" else u.mean(axis=0) if over == "mean" else u.sum(axis=0),)


def _read_out_gradient(over: str, gradient: np.ndarray, u: np.ndarray) -> tuple[np.ndarray]:
    """max: to the first timestep that attains it."""
    if over in ("sum", "mean"):
        share = gradient if over == "sum" else gradient * u.dtype.type(1 / len(u))
        return (np.broadcast_to(share, u.shape).copy(),)
    chosen = np.full(u.shape[1:], len(u) - 1) if over == "last" else u.argmax(axis=0)
    return (np.where(np.arange(len(u))[:, None, None] == chosen, gradient, 0).astype(u.dtype),)


def _pool(each: int, scores: np.ndarray) -> tuple[np.ndarray]:
    return (scores.reshape(*scores.shape[:-1], -1, each).sum(axis=-1),)


_of_a_timestep = shaped(lambda values, _: values[0].shape[1:])

READ_OUTS = (
    OpDef(
        name="spike_counts",
        shapes=_of_a_timestep,
        evaluate=_counts,
        vjp=pulled_back_by("spike_counts_gradient", "output.d_spikes", 0),
        flops=per_element(1),
    ),
    OpDef(name="spike_counts_gradient", shapes=listed_like(1), evaluate=_counts_gradient, flops=per_element(1, 1)),
    OpDef(
        name="spikes_by_timestep",
        shapes=like(0),
        evaluate=lambda neurons, spikes: (
            _listed_as_array(spikes, neurons) if isinstance(spikes, SparseSpikes) else spikes.copy(),
        ),
        vjp=pulled_back_by("listed_of", "output.d_spikes", 0),
        flops=no_flops,
    ),
    OpDef(name="listed_of", shapes=listed_like(1), evaluate=_listed_of, flops=no_flops),
    OpDef(
        name="read_out",
        shapes=_of_a_timestep,
        evaluate=_read_out,
        vjp=pulled_back_by("read_out_gradient", "output.d_potential", 0),
        flops=per_element(1),
    ),
    OpDef(name="read_out_gradient", shapes=like(1), evaluate=_read_out_gradient, flops=per_element(1, 1)),
    OpDef(
        name="pool_classes",
        shapes=shaped(lambda values, each: (*values[0].shape[:-1], values[0].shape[-1] // each)),
        evaluate=_pool,
        vjp=pulled_back_by("spread_classes", "loss.d_{input}"),
        flops=per_element(1),
    ),
    OpDef(
        name="spread_classes",
        shapes=shaped(lambda values, each: (*values[0].shape[:-1], values[0].shape[-1] * each)),
        evaluate=lambda each, gradient: (np.repeat(gradient, each, axis=-1),),
        flops=no_flops,
    ),
)
