"""N-MNIST recordings: `Train/<digit>/*.bin` and `Test/<digit>/*.bin`, 5 bytes an event.

Format: Orchard et al. 2015, "Converting static image datasets to spiking neuromorphic datasets using saccades",
Frontiers in Neuroscience 9:437. An event is 40 bits, big-endian: byte 0 = x, byte 1 = y, then 1 bit polarity (1 = ON)
and 23 bits of microseconds. An event with y = 240 is not a spike but marks that all following timestamps are
2^13 microseconds later (as in the reader of the package tonic).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import open_data
from mimdsim.workload.data.events import Events

PIXELS = 34
CLASSES = 10
EVENT_BYTES = 5
OVERFLOW_Y = 240
OVERFLOW_MICROSECONDS = 1 << 13
MAX_RECORDING_BYTES = 5 << 20  # assumed: a million events; published recordings have about 4,000 (20 kB)
LAYOUT = "Train/<0 to 9>/*.bin and Test/<0 to 9>/*.bin, as published"


def list_recordings(folder: Path, split: Literal["Train", "Test"]) -> tuple[tuple[Path, int], ...]:
    """(file, digit) of every recording of `split`, by digit and then by name.

    Raises DataFileError when the folder of the split or of a digit is missing, or holds no recording.
    """
    if not (folder / split).is_dir():
        raise DataFileError(folder / split, f"no such folder; 'data.path' must hold {LAYOUT}")
    found = []
    for digit in range(CLASSES):
        place = folder / split / str(digit)
        if not place.is_dir():
            raise DataFileError(place, f"no such folder; 'data.path' must hold {LAYOUT}")
        names = sorted(place.glob("*.bin"), key=lambda path: path.name)
        if not names:
            raise DataFileError(place, f"holds no .bin file; 'data.path' must hold {LAYOUT}")
        found += [(name, digit) for name in names]
    return tuple(found)


def read_recording(path: Path) -> Events:
    """The events of one recording; raises DataFileError with the byte at which the file is wrong."""
    with open_data(path, "cannot be read: No such file or directory") as file:
        content = file.read(MAX_RECORDING_BYTES + 1)
    if len(content) > MAX_RECORDING_BYTES:
        raise DataFileError(path, f"is over {MAX_RECORDING_BYTES} bytes, not an N-MNIST recording")
    if not content:
        raise DataFileError(path, "is empty; fetch the recording again", byte_offset=0)
    left_over = len(content) % EVENT_BYTES
    if left_over:
        raise DataFileError(
            path,
            f"ends in the middle of an event ({left_over} of {EVENT_BYTES} bytes); fetch the recording again",
            byte_offset=len(content) - left_over,
        )
    table = np.frombuffer(content, dtype=np.uint8).reshape(-1, EVENT_BYTES).astype(np.int64)
    x, y = table[:, 0], table[:, 1]
    overflow = y == OVERFLOW_Y
    outside = np.flatnonzero(~overflow & ((x >= PIXELS) | (y >= PIXELS)))
    if outside.size:
        first = int(outside[0])
        raise DataFileError(
            path,
            f"event {first} is at x {x[first]}, y {y[first]}, outside the {PIXELS} x {PIXELS} sensor",
            byte_offset=first * EVENT_BYTES,
        )
    if overflow.all():
        raise DataFileError(path, f"holds no event, only {overflow.size} overflow marks", byte_offset=0)
    t = ((table[:, 2] & 127) << 16) | (table[:, 3] << 8) | table[:, 4]
    t += np.cumsum(overflow) * OVERFLOW_MICROSECONDS
    real = ~overflow
    return Events(
        x=x[real], y=y[real], polarity=table[real, 2] >> 7, t_microseconds=t[real], width=PIXELS, height=PIXELS
    )
