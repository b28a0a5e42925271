"""Where the scan for spikes starts, and so which spikes are dropped when a list is too short for all.

'lowest': at neuron 0, as published, so that the highest ids are dropped. 'random': at a neuron drawn afresh for every
timestep and sample, from which the scan runs once round the layer; no id is preferred. (The published scan draws such
an offset for each of its workers and then ignores it.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.graph.records import OpDef, Value, no_flops

TRUNCATIONS = ("lowest", "random")
# The linear congruential generator of Knuth and Lewis (Press et al., Numerical Recipes, 2nd edition, 7.1), modulo 2^32;
# its high bits are used, as the low ones are poor.
MULTIPLIER, INCREMENT, STATE_BITS = 1_664_525, 1_013_904_223, 32


def known_truncation(name: str) -> str:
    """`name` itself; raises MappingError if it is unknown."""
    if name not in TRUNCATIONS:
        raise MappingError(f"network.truncation = {name!r} is not a valid choice{suggest(name, TRUNCATIONS)}")
    return name


def next_state(state: np.ndarray) -> np.ndarray:
    """int64[batch]: the next state of the generator."""
    return (state.astype(np.int64) * MULTIPLIER + INCREMENT) & ((1 << STATE_BITS) - 1)


def scan_starts(state: np.ndarray, neurons: int) -> np.ndarray:
    """int64[batch]: the neuron from which each sample's scan runs, 0 to neurons - 1."""
    return (state.astype(np.int64) * neurons) >> STATE_BITS


def from_start(ids: np.ndarray, start: int) -> np.ndarray:
    """Ascending `ids` in the order of a scan from `start` once round."""
    cut = int(np.searchsorted(ids, start))
    return np.concatenate([ids[cut:], ids[:cut]])


def _shapes(values: tuple[Value, ...], _attributes: Any) -> tuple[tuple[str, Value], ...]:
    return (("", replace(values[0], shift=0)),)


TRUNCATION = (
    OpDef(name="next_random", shapes=_shapes, evaluate=lambda _, state: (next_state(state),), flops=no_flops),
)
