"""The published leaky integrate-and-fire neuron: its row of the table of models, and its own operations.

Facts: Finkbeiner et al. 2024, arXiv 2311.04386, equations of the fused layer.

v[t] = 0            + (1 - decay) * gain * current[t]   if v[t-1] > threshold   (hard reset, state-based)
v[t] = decay*v[t-1] + (1 - decay) * gain * current[t]   otherwise

The results are those of the linear family. The operations are separate because the published code is: it keeps
one state and no read-out, fuses the update with the sum of the current, and its codelets have published costs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mimdsim.graph.linear_neurons import LinearNeuron, advance, pull_back
from mimdsim.graph.neuron_parts import Model, Parameter, Parts, decay, positive
from mimdsim.graph.records import Backward, OpDef, Operation, Value, elements, like


def _parts(p: dict[str, Any]) -> Parts:
    return Parts(matrix=[[p["decay"]]], drive=[(1.0 - p["decay"]) * p["current_gain"]], threshold=p["threshold"])


LIF = Model(
    name="lif",
    states=("potential",),
    parameters=(
        decay("decay", 0.95, "what a timestep keeps of the membrane potential"),
        Parameter(
            name="current_gain",
            default=10.0,
            unit="of potential per current",
            meaning="gain of the current",
            low=1e-37,  # about the smallest normal float32
            high=1e38,
        ),
        positive("threshold", 1.0, "of the potential", "a spike where the potential is above it"),
    ),
    resets=("zero", "subtract", "none"),
    reset_gradient="pass",
    parts=_parts,
    equation="v = decay v + (1 - decay) current_gain I; zero: v before the integration; subtract: not decayed",
    source="Finkbeiner et al. 2024; its code with reset 'zero' by state, reset gradient 'pass' or 'mask'",
    published=True,
)


class Constants(NamedTuple):
    """The constants that published codelets take, each rounded once; `threshold` is that of the reset."""

    decay: np.float32
    scale: np.float32
    threshold: np.float32


def constants_of(neuron: LinearNeuron) -> Constants:
    """The constants of a fused neuron; one that is never reset has an infinite threshold."""
    return Constants(
        decay=np.float32(neuron.quiet.matrix[0, 0, 0]),
        scale=np.float32(neuron.quiet.drive[0, 0]),
        threshold=np.float32(neuron.threshold if neuron.resets else math.inf),
    )


def _cleared(neuron: LinearNeuron, v: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values`, zero where a potential `v` makes its neuron fire and be reset."""
    zero, threshold = (v.dtype.type(number) for number in (0, neuron.threshold))
    return np.where(v > threshold, zero, values) if neuron.resets else values


def _lif(neuron: LinearNeuron, v: np.ndarray, current: np.ndarray) -> tuple[np.ndarray]:
    return (advance(neuron.quiet, _cleared(neuron, v, v)[None], current)[0],)


def _lif_vjp(build: Backward, op: Operation, cotangents: tuple[str | None, ...]) -> tuple[str | None, ...]:
    (dv,) = cotangents
    if dv is None:
        return None, None
    layer, neuron = op.layer, op.attributes
    current = build.one("lif_current_gradient", (dv,), f"{layer}.q", layer=layer, attributes=neuron)
    masked = neuron.resets and neuron.reset_gradient == "mask"
    inputs = (dv, build.saved(op.inputs[0])) if masked else (dv,)
    previous = build.one("lif_state_gradient", inputs, f"{layer}.dv_previous", layer=layer, attributes=neuron)
    return previous, current


def _current_gradient(neuron: LinearNeuron, dv: np.ndarray) -> tuple[np.ndarray]:
    return (pull_back(neuron.quiet, dv[None])[1],)


def _state_gradient(neuron: LinearNeuron, dv: np.ndarray, v_previous: np.ndarray | None = None) -> tuple[np.ndarray]:
    (previous,), _ = pull_back(neuron.quiet, dv[None])
    return (previous if v_previous is None else _cleared(neuron, v_previous, previous),)


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
        evaluate=_current_gradient,
        flops=_per_element(1),
    ),
    OpDef(
        name="lif_state_gradient",
        shapes=lambda values, _: like(values[0]),
        evaluate=_state_gradient,
        flops=_per_element(1),
    ),
)
