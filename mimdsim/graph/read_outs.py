"""How a stack of outputs over the timesteps is read, and the gradient of that: counts, potentials, pooled classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.records import Backward, OpDef, Operation, SparseSpikes, Value, elements, like


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


def _counts_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    inputs = (gradient, build.saved(op.inputs[0]))
    d_spikes = build.one("spike_counts_gradient", inputs, "output.d_spikes", layer=op.layer, attributes=op.attributes)
    return (d_spikes,)


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


def _like_spikes(values: tuple[Value, ...], _attributes: Any) -> tuple[tuple[str, Value], ...]:
    return (("", Value(name="", shape=values[1].shape, capacity=values[1].capacity)),)


def _by_timestep_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    inputs = (gradient, build.saved(op.inputs[0]))
    return (build.one("listed_of", inputs, "output.d_spikes", layer=op.layer),)


def _read_out(over: str, u: np.ndarray) -> tuple[np.ndarray]:
    if over == "last":
        return (u[-1].copy(),)
    return (u.max(axis=0) if over == "max" else u.mean(axis=0) if over == "mean" else u.sum(axis=0),)


def _read_out_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    inputs = (gradient, build.saved(op.inputs[0]))
    made = build.one("read_out_gradient", inputs, "output.d_potential", layer=op.layer, attributes=op.attributes)
    return (made,)


def _read_out_gradient(over: str, gradient: np.ndarray, u: np.ndarray) -> tuple[np.ndarray]:
    """max: to the first timestep that attains it."""
    if over in ("sum", "mean"):
        share = gradient if over == "sum" else gradient * u.dtype.type(1 / len(u))
        return (np.broadcast_to(share, u.shape).copy(),)
    chosen = np.full(u.shape[1:], len(u) - 1) if over == "last" else u.argmax(axis=0)
    return (np.where(np.arange(len(u))[:, None, None] == chosen, gradient, 0).astype(u.dtype),)


def _pool(each: int, scores: np.ndarray) -> tuple[np.ndarray]:
    return (scores.reshape(*scores.shape[:-1], -1, each).sum(axis=-1),)


def _pool_vjp(build: Backward, op: Operation, gradient: str) -> tuple[str | None, ...]:
    name = f"loss.d_{op.inputs[0]}"
    return (build.one("spread_classes", (gradient,), name, layer=op.layer, attributes=op.attributes),)


def _with_width(value: Value, width: int) -> tuple[tuple[str, Value], ...]:
    return (("", Value(name="", shape=(*value.shape[:-1], width))),)


def _flops(each: int, operand: int = 0) -> Any:
    return lambda values, _: each * elements(values[operand])


READ_OUTS = (
    OpDef(
        name="spike_counts",
        shapes=lambda values, _: (("", Value(name="", shape=values[0].shape[1:])),),
        evaluate=_counts,
        vjp=_counts_vjp,
        flops=_flops(1),
    ),
    OpDef(name="spike_counts_gradient", shapes=_like_spikes, evaluate=_counts_gradient, flops=_flops(1, 1)),
    OpDef(
        name="spikes_by_timestep",
        shapes=lambda values, _: like(values[0]),
        evaluate=lambda neurons, spikes: (
            _listed_as_array(spikes, neurons) if isinstance(spikes, SparseSpikes) else spikes.copy(),
        ),
        vjp=_by_timestep_vjp,
        flops=_flops(0),
    ),
    OpDef(name="listed_of", shapes=_like_spikes, evaluate=_listed_of, flops=_flops(0)),
    OpDef(
        name="read_out",
        shapes=lambda values, _: (("", Value(name="", shape=values[0].shape[1:])),),
        evaluate=_read_out,
        vjp=_read_out_vjp,
        flops=_flops(1),
    ),
    OpDef(
        name="read_out_gradient",
        shapes=lambda values, _: like(values[1]),
        evaluate=_read_out_gradient,
        flops=_flops(1, 1),
    ),
    OpDef(
        name="pool_classes",
        shapes=lambda values, each: _with_width(values[0], values[0].shape[-1] // each),
        evaluate=_pool,
        vjp=_pool_vjp,
        flops=_flops(1),
    ),
    OpDef(
        name="spread_classes",
        shapes=lambda values, each: _with_width(values[0], values[0].shape[-1] * each),
        evaluate=lambda each, gradient: (np.repeat(gradient, each, axis=-1),),
        flops=_flops(0),
    ),
)
