"""Codelets of delays that are learned."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mimdsim.codelets.surrogates import DIVIDE, EXPONENTIAL
from mimdsim.codelets.vertex_costs import by_item_bytes, by_runs, on_elements
from mimdsim.graph import delays
from mimdsim.program import Codelet
from mimdsim.program.instruction_mix import Mix

GIVEN = ("w", "delay", "width")
READ = "read w[:, start:stop]; read delay[:, start:stop]; read width[:]"
# of an age: distance, square, scale, less the largest, exponential, sum, share, product, store
EACH = 8 + EXPONENTIAL
BESIDE = 2 + 6 + DIVIDE  # of a synapse: two loads, the largest, a quotient
COUNTED = (
    f"instruction count of our own, a guess: {EACH} for an age, with an exponential ({EXPONENTIAL}), and {BESIDE} for "
    "a synapse, one at a time, shared by all worker contexts"
)


@cache
def delayed_weights(ages: int, epsilon: float = 0.0) -> Codelet:
    """The weights of the vertex at every age."""
    matrices = "; ".join(f"write at{age}[:, start:stop]" for age in range(ages))

    def compute(*given: np.ndarray) -> None:
        for target, made in zip(given, delays.delayed_weights(ages, epsilon, *given[ages:]), strict=False):
            target[:] = made

    return _on_synapses("DelayedWeights", f"{matrices}; {READ}", compute, (ages, epsilon), EACH * ages, delays.FLOPS)


@cache
def delayed_weights_gradient(ages: int, epsilon: float = 0.0) -> Codelet:
    """The gradients of weights and delays of the vertex, whose shares are worked out anew."""
    matrices = "; ".join(f"read at{age}[:, start:stop]" for age in range(ages))
    fields = f"write dw[:, start:stop]; write ddelay[:, start:stop]; {READ}; {matrices}"

    def compute(dw: np.ndarray, ddelay: np.ndarray, *given: np.ndarray) -> None:
        dw[:], ddelay[:] = delays.delayed_weights_gradient(ages, epsilon, *given)

    # of an age more: a load, the share of the gradient, and two sums of products
    return _on_synapses("DelayGradient", fields, compute, (ages, epsilon), (EACH + 5) * ages, delays.GRADIENT_FLOPS)


def _on_synapses(
    kind: str, fields: str, compute: Callable[..., None], of: tuple[int, float], bundles: int, flops: int
) -> Codelet:
    ages, epsilon = of
    name = f"{kind}({ages}, {epsilon:g})" if epsilon else f"{kind}({ages})"
    cut = ["start" in field for field in fields.split(";")]

    mix = Mix(add=4, multiply=4, function=1) * ages + Mix(divide=1)

    @by_item_bytes("assumed", COUNTED, mix=mix)
    def formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
        each = -(-np.asarray(extents["elements"]) // contexts)
        return np.ceil(11 + contexts * (29 + (BESIDE + bundles) * each)).astype(np.int64)

    return on_elements(name, fields, by_runs(compute, cut), formula(4), "w", flops=flops * ages, code_bytes=512)
