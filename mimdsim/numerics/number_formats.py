"""Formats of numbers that take fewer bytes than float32, in which arrays hold them; a further format is a row of
FORMATS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.numerics.compiled import compiled

_INFINITE = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)
FRACTION_BITS = 23  # of a float32


@compiled
def round_to_format(values, bits, cut, smallest_normal, spaced, largest, beyond):  # type: ignore[no-untyped-def]
    """Every float32 of `values` to the nearest number whose fraction has `cut` bits fewer, ties to even; `bits`: its
    uint32 view. spaced: a float32 whose neighbours are as far apart as numbers below `smallest_normal`. What is rounded
    beyond `largest` becomes `beyond`, both as bits."""
    one = np.uint32(1)
    for i in range(values.size):
        size = bits[i] & ~_SIGN
        if size > _INFINITE:
            continue  # not a number
        sign = bits[i] & _SIGN
        if abs(values[i]) < smallest_normal:
            values[i] = (values[i] + spaced) - spaced
            bits[i] |= sign
            continue
        # add half of the part cut off, one less if the last remaining bit is even
        size = (size + (one << (cut - one)) - one + ((size >> cut) & one)) >> cut << cut
        if size > largest:
            size = beyond
        bits[i] = sign | size


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """A format of numbers.

    bytes: of a number. fraction: bits after the binary point, 0 of whole numbers, which share a scale: that of the
    largest of them. least_exponent: of the smallest normal number. largest: finite number; larger ones are rounded to
    it if it saturates, else to infinity. core: the table of a core that computes with it (`[costs.core.CORE]`).
    widened, narrowed: bundles that make a pair of floats of a loaded pair, and back, where nothing computes with it
    (on "colossus"); counted says which.
    """

    bytes: int
    core: str
    largest: float
    fraction: int = 0
    least_exponent: int = 0
    saturates: bool = False
    widened: float
    narrowed: float
    counted: str

    def round(self, values: np.ndarray, bits: np.ndarray) -> None:
        """Round a flat float32 array in place; bits: its uint32 view."""
        normal = np.float32(2.0**self.least_exponent)
        spaced = np.float32(1.5 * 2.0 ** (self.least_exponent - self.fraction + FRACTION_BITS))
        if self.least_exponent < -100:  # as small as those of float32
            normal, spaced = np.float32(0), np.float32(0)
        largest = np.array(self.largest, np.float32).view(np.uint32)[()]
        cut = np.uint32(FRACTION_BITS - self.fraction)
        beyond = largest if self.saturates else _INFINITE
        round_to_format(values, bits, cut, normal, spaced, largest, beyond)

    def rounded(self, values: np.ndarray, largest: float | None = None) -> np.ndarray:
        """float64: the nearest numbers in this format. largest: in size, of all numbers that share a scale; None: of
        these."""
        if self.fraction:
            flat = values.astype(np.float32).reshape(-1)
            self.round(flat, flat.view(np.uint32))
            return flat.reshape(values.shape).astype(np.float64)
        largest = float(np.abs(values).max(initial=0)) if largest is None else largest
        scale = largest / self.largest or 1.0
        return np.asarray(np.rint(values / scale) * scale)


FORMATS = {
    "half": NumberFormat(
        bytes=2, core="halves", fraction=10, least_exponent=-14, largest=65504.0, widened=1, narrowed=1,
        counted="conversions of two at a time",
    ),
    "bfloat16": NumberFormat(
        bytes=2, core="bfloat16", fraction=7, least_exponent=-126, largest=(2 - 2.0**-7) * 2.0**127,
        widened=1, narrowed=9, counted="spread over two words at once; each rounded (4), both packed into a word",
    ),
    "e4m3": NumberFormat(
        bytes=1, core="fp8", fraction=3, least_exponent=-6, largest=448.0, saturates=True, widened=7, narrowed=17,
        counted="shuffled into halves, sign and rest apart (4), scaled, converted; each rounded (6), cut and joined",
    ),
    "e5m2": NumberFormat(
        bytes=1, core="fp8", fraction=2, least_exponent=-14, largest=57344.0, widened=2, narrowed=11,
        counted="shuffled into the upper bytes of halves, converted; each rounded (4), as halves joined",
    ),
    "int8": NumberFormat(
        bytes=1, core="int8", largest=127.0, widened=6, narrowed=8,
        counted="each shifted out with its sign, converted, scaled; each scaled, rounded, cut, joined",
    ),
}  # fmt: skip
