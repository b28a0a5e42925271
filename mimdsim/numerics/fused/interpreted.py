"""What `vectors` computes, in numpy: with NUMBA_DISABLE_JIT=1, when no instructions are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import intrinsic

from mimdsim.numerics.compiled import CONFIG

LANES = 16  # floats per vector; machines with narrower or wider registers split or join them
WIDTH = 64  # floats per strip: eight vectors, which with eight for loads fit the sixteen registers of most processors


def in_registers(interpreted: Callable[..., Any]) -> Callable[[Any], Any]:
    """An intrinsic, or what it computes where nothing is compiled."""
    return lambda made: np.errstate(all="ignore")(interpreted) if CONFIG.DISABLE_JIT else intrinsic(made)


def _flat(array: Any) -> Any:
    return array.reshape(-1)


def _strip(array: Any, start: Any, width: int = WIDTH) -> Any:
    """A view of so many neighbours."""
    return _flat(array)[int(start) : int(start) + width]


def strip(vectors: int, start: str) -> Callable[..., None]:
    width = vectors * LANES

    def add(out: Any, out_start: int, rows: Any, row_start: int, stride: int, ids: Any, first: int, last: int) -> None:
        place = _strip(out, out_start, width)
        total = place.copy() if start == "out" else np.zeros(width, np.float32)
        for k in range(first, last):
            total += _strip(rows, row_start + int(ids[k]) * stride, width)
        place[:] = total

    return add


def dot_strip(
    out: Any, rows: Any, row_start: int, stride: int, ids: Any, first: int, last: int, q: Any, q_start: int
) -> None:
    factors = _strip(q, q_start)
    for k in range(first, last):
        terms = (factors * _strip(rows, row_start + int(ids[k]) * stride)).reshape(WIDTH // LANES, LANES)
        while len(terms) > 1:
            terms = terms[::2] + terms[1::2]
        lanes = terms[0]
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        _flat(out)[k] += lanes[0]


def above(numbers: Any, begin: int, limit: Any) -> int:
    return sum(1 << int(n) for n in np.flatnonzero(_strip(numbers, begin) > limit))


def lowest_bit(bits: int) -> int:
    return (int(bits) & -int(bits)).bit_length() - 1


def integrate_strip(
    v: Any, start: int, rows: Any, row_start: int, ids: Any, first: int, last: int, decay: Any, scale: Any, limit: Any
) -> None:
    current = np.zeros(WIDTH, np.float32)
    for k in range(first, last):
        current += _strip(rows, row_start + int(ids[k]) * WIDTH)
    before = _strip(v, start)
    kept = np.where(before > np.float32(limit), np.float32(0), before * np.float32(decay))
    before[:] = kept + np.float32(scale) * current


def weigh_strips(strips: Any, sums: Any, count: int, sources: Any, coefficients: Any, begin: int, bits: int) -> None:
    chosen = np.array([int(bits) >> n & 1 for n in range(WIDTH)], bool)
    for into, first, last in sums[:count].tolist():
        total = np.zeros(WIDTH, np.float32)
        for term in range(first, last):
            at = int(begin) + 2 * term * WIDTH
            weight = np.where(chosen, _strip(coefficients, at + WIDTH), _strip(coefficients, at))
            adds = (weight != 0) & ~np.isnan(weight)
            total += np.where(adds, weight * _strip(strips, int(_flat(sources)[term]) * WIDTH), np.float32(0))
        _strip(strips, into * WIDTH)[:] = total


def copy(made: Any, made_start: int, given: Any, given_start: int, count: int) -> None:
    width = int(count) * WIDTH
    _strip(made, made_start, width)[:] = _strip(given, given_start, width)


def add_products(made: Any, made_start: int, one: Any, one_start: int, other: Any, other_start: int) -> None:
    _strip(made, made_start)[:] += _strip(one, one_start) * _strip(other, other_start)


def fetch_strips(rows: Any, row_start: int, ids: Any, first: int, last: int) -> None:
    """Nothing is computed."""
