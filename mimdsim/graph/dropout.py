"""Dropout: what a layer reads, with a random share of it left out in every training step and the rest made larger.

Masks come from a counter: whether a spike is kept follows from the state of its sample, its number and its timestep, so
that they are the same wherever, and however often, they are made. They are made before the timesteps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.graph.records import OpDef, elements, like, per_element, pulled_back_by, shaped

PER = ("timestep", "sequence")
OF = ("neuron", "plane")
WORD = (1 << 32) - 1
OF_NUMBER, OF_TIMESTEP, OF_SOURCE = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D  # odd, from xxHash's primes


@dataclass(frozen=True, kw_only=True)
class Masks:
    """Masks of [rows, columns], `positions` rows for every sample: one, or one for each of `timesteps` (0: one).

    source: which of the layer's sources they are for. pixels: of a plane, that lie side by side in a row; all that a
    plane has are kept or not (0: every neuron by itself).
    """

    rows: int
    columns: int
    positions: int = 1
    timesteps: int = 0
    source: int = 0
    pixels: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return *((self.timesteps,) if self.timesteps else ()), self.rows, self.columns


def mixed(word: np.ndarray) -> np.ndarray:
    """uint64 below 2^32: the words with their bits mixed (the finaliser of MurmurHash3, Appleby)."""
    word = word ^ (word >> np.uint64(16))
    word = word * np.uint64(0x85EBCA6B) & np.uint64(WORD)
    word = word ^ (word >> np.uint64(13))
    word = word * np.uint64(0xC2B2AE35) & np.uint64(WORD)
    return word ^ (word >> np.uint64(16))


def _masks(masks: Masks, states: np.ndarray, keep: Any) -> tuple[np.ndarray]:
    """1 / keep where a spike is kept, else 0. keep: the share that is; 1 keeps all."""
    row, column = np.arange(masks.rows), np.arange(masks.columns)
    number = (row % masks.positions)[:, None] * masks.columns + column
    if masks.pixels:
        number = np.broadcast_to(column // masks.pixels, number.shape)
    word = states.astype(np.uint64)[row // masks.positions][:, None] + number.astype(np.uint64) * np.uint64(OF_NUMBER)
    timestep = np.arange(max(1, masks.timesteps), dtype=np.uint64)[:, None, None] * np.uint64(OF_TIMESTEP)
    word = word + timestep + np.uint64(masks.source * OF_SOURCE)
    kept = mixed(word & np.uint64(WORD)) < np.uint64(int(float(keep) * (WORD + 1)))
    dtype = np.asarray(keep).dtype if np.asarray(keep).dtype.kind == "f" else np.dtype(np.float64)
    made: np.ndarray = np.where(kept, dtype.type(1) / dtype.type(keep), dtype.type(0)).reshape(masks.shape)
    return (made,)


DROPOUT = (
    OpDef(
        name="dropout_masks",
        shapes=shaped(lambda _, masks: masks.shape),
        evaluate=_masks,
        flops=lambda values, masks: elements(values[0]) and int(np.prod(masks.shape)),
    ),
    OpDef(
        name="drop",
        shapes=like(0),
        evaluate=lambda _, values, mask: (values * mask.astype(values.dtype),),
        vjp=pulled_back_by("drop", "{layer}.d_dropped", 1),
        flops=per_element(1),
    ),
)
