"""Rounding to IEEE half precision, in float32 arrays."""

from __future__ import annotations

import numba
import numpy as np

_LARGEST = np.uint32(0x477FE000)  # 65504 as the bits of a float32
_INFINITE = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)
_SMALLEST_NORMAL = np.float32(2.0**-14)
_SPACED = np.float32(0.75)  # neighbours of 0.75 are 2^-24 apart in float32, as subnormal halves are


@numba.njit(cache=True, nogil=True)
def round_to_half(values, bits):  # type: ignore[no-untyped-def]
    """Every float32 of `values` to the nearest half, ties to even, beyond 65504 infinite; `bits` are its own uint32."""
    for i in range(values.size):
        size = bits[i] & ~_SIGN
        if size > _INFINITE:
            continue  # not a number
        if abs(values[i]) < _SMALLEST_NORMAL:
            values[i] = (values[i] + _SPACED) - _SPACED
            continue
        sign = bits[i] & _SIGN
        # 13 bits less: half of what is cut off, one less where the last bit that stays is even
        size = (size + np.uint32(0xFFF) + ((size >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
        if size > _LARGEST:
            size = _INFINITE
        bits[i] = sign | size
