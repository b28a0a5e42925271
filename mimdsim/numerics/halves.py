"""Rounding to numbers of two bytes, IEEE half precision and bfloat16, in float32 arrays."""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled

_LARGEST = np.uint32(0x477FE000)  # 65504 as the bits of a float32
_INFINITE = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)
_SMALLEST_NORMAL = np.float32(2.0**-14)
_SPACED = np.float32(0.75)  # float32 values next to 0.75 are 2^-24 apart, like subnormal halves


@compiled
def round_to_half(values, bits):  # type: ignore[no-untyped-def]
    """Every float32 of `values` to the nearest half, ties to even, infinite beyond 65504; `bits`: its uint32 view."""
    for i in range(values.size):
        size = bits[i] & ~_SIGN
        if size > _INFINITE:
            continue  # not a number
        if abs(values[i]) < _SMALLEST_NORMAL:
            values[i] = (values[i] + _SPACED) - _SPACED
            continue
        sign = bits[i] & _SIGN
        # 13 bits fewer: add half of the part cut off, one less if the last remaining bit is even
        size = (size + np.uint32(0xFFF) + ((size >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
        if size > _LARGEST:
            size = _INFINITE
        bits[i] = sign | size


@compiled
def round_to_bfloat16(values, bits):  # type: ignore[no-untyped-def]
    """Every float32 of `values` to the nearest bfloat16, its upper 16 bits, ties to even, infinite beyond the largest;
    `bits`: its uint32 view."""
    for i in range(values.size):
        if bits[i] & ~_SIGN > _INFINITE:
            continue  # not a number
        bits[i] = (bits[i] + np.uint32(0x7FFF) + ((bits[i] >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
