"""The leaky integrate-and-fire neuron (facts: Finkbeiner et al. 2024, arXiv 2311.04386, equations of the fused layer).

v[t] = 0            + (1 - decay) * gain * current[t]   if v[t-1] > threshold   (hard reset, state-based)
v[t] = decay*v[t-1] + (1 - decay) * gain * current[t]   otherwise
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.definition import Backward, OpDef, elements, like
from mimdsim.graph.records import Operation, Value


@dataclass(frozen=True, kw_only=True)
class Lif:
    """Constants of a layer. reset_gradient 'pass': dv/dv_prev = decay (as published); 'mask': 0 after a spike."""

    decay: float
    gain: float
    threshold: float
    reset_gradient: str = "pass"

    def input_scale(self, dtype: Any) -> Any:
        """(1 - decay) * gain, rounded once to `dtype` as a constant tensor would be."""
        return np.dtype(dtype).type((1.0 - self.decay) * self.gain)


def _lif(lif: Lif, v: np.ndarray, current: np.ndarray) -> tuple[np.ndarray]:
    kind = v.dtype.type
    kept = np.where(v > kind(lif.threshold), kind(0), kind(lif.decay) * v)
    return (kept + lif.input_scale(v.dtype) * current,)


def _lif_vjp(build: Backward, op: Operation, cotangents: tuple[str | None, ...]) -> tuple[str | None, ...]:
    (dv,) = cotangents
    if dv is None:
        return None, None
    layer, lif = op.layer, op.attributes
    current = build.one("lif_current_gradient", (dv,), f"{layer}.q", layer=layer, attributes=lif)
    inputs = (dv, build.saved(op.inputs[0])) if lif.reset_gradient == "mask" else (dv,)
    previous = build.one("lif_state_gradient", inputs, f"{layer}.dv_previous", layer=layer, attributes=lif)
    return previous, current


def _state_gradient(lif: Lif, dv: np.ndarray, v_previous: np.ndarray | None = None) -> tuple[np.ndarray]:
    kind = dv.dtype.type
    decayed = kind(lif.decay) * dv
    if v_previous is not None:
        decayed = np.where(v_previous > kind(lif.threshold), kind(0), decayed)
    return (decayed,)


def _per_element(count: int) -> Any:
    def flops(inputs: tuple[Value, ...], _attributes: Any) -> int:
        return count * elements(inputs[0])

    return flops


NEURONS = (
    OpDef(
        name="lif",
        shapes=lambda values, _: like(values[0]),
        evaluate=_lif,
        vjp=_lif_vjp,
        flops=_per_element(3),
    ),
    OpDef(
        name="lif_current_gradient",
        shapes=lambda values, _: like(values[0]),
        evaluate=lambda lif, dv: (dv * lif.input_scale(dv.dtype),),
        flops=_per_element(1),
    ),
    OpDef(
        name="lif_state_gradient",
        shapes=lambda values, _: like(values[0]),
        evaluate=_state_gradient,
        flops=_per_element(1),
    ),
)
