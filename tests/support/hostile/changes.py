"""Changes of bytes: bits, lengths, pieces put in, taken out and doubled."""

from __future__ import annotations

import re
import struct

import numpy as np

EXTREMES = (0, 1, 2, 127, 128, 255, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
FIELDS = (("<B", 1), ("<H", 2), (">H", 2), ("<I", 4), (">I", 4), ("<Q", 8))


def changed(content: bytes, fields: list[int], rng: np.random.Generator, *, text: bool) -> bytes:
    """One to three changes: bits flipped, cut off, put in, taken out, a byte of the head or a length field replaced."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(data))) if data else 0
        change = int(rng.integers(0, 7))
        if change == 0:
            for place in rng.integers(0, max(len(data), 1), int(rng.integers(1, 9))) if data else ():
                data[place] ^= 1 << int(rng.integers(0, 8))
        elif change == 1:
            del data[at:]
        elif change == 2:
            data[at:at] = rng.bytes(int(rng.integers(1, 33)))
        elif change == 3:
            data[at:at] = data[at : at + int(rng.integers(1, 65))]
        elif change == 4:
            del data[at : at + int(rng.integers(1, 65))]
        elif change == 5 and data:
            data[int(rng.integers(0, min(len(data), 128)))] = int(rng.integers(0, 256))
        elif text:
            numbers = list(re.finditer(rb"[0-9]+", data))
            if numbers:
                found = numbers[int(rng.integers(0, len(numbers)))]
                data[found.start() : found.end()] = b"%d" % EXTREMES[int(rng.integers(0, len(EXTREMES)))]
        else:
            layout, width = FIELDS[int(rng.integers(0, len(FIELDS)))]
            place = fields[int(rng.integers(0, len(fields)))]
            if place + width <= len(data):
                (now,) = struct.unpack_from(layout, data, place)
                chance = int(rng.integers(0, len(EXTREMES) + 4))
                new = EXTREMES[chance] if chance < len(EXTREMES) else now + (-1, 1, 8, now)[chance - len(EXTREMES)]
                struct.pack_into(layout, data, place, new & ((1 << 8 * width) - 1))
    return bytes(data)
