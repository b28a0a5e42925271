"""Any data source of a description, opened as lists of input ids per sample and timestep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import with_home
from mimdsim.base.identity import files_below
from mimdsim.workload.data import braille, digits, dvs_gesture, event_file, nmnist, shd
from mimdsim.workload.data.event_file import sensor_of
from mimdsim.workload.data.event_filters import Augmentation, cropped_grid
from mimdsim.workload.data.events import POLARITIES, EventLists, EventUse, Ids, bin_nanoseconds, reduced_grid
from mimdsim.workload.data.files.hdf5 import shared_process
from mimdsim.workload.data.generated import open_digits, open_images, open_randman, open_random
from mimdsim.workload.data.recorded import open_braille, open_dvs_gesture, open_events, open_nmnist, open_shd
from mimdsim.workload.description.sections import Data

Progress = Callable[[int, int], None]

SOURCES: dict[str, Callable[[Data, int, Progress], tuple[EventLists, EventLists]]] = {
    "digits": open_digits,
    "mnist5k": open_digits,
    "nmnist": open_nmnist,
    "shd": open_shd,
    "ssc": open_shd,
    "dvs_gesture": open_dvs_gesture,
    "braille": open_braille,
    "events": open_events,
    "randman": open_randman,
    "random": open_random,
}
Files = list[tuple[str, Path]]  # by their name below what the description names


def _below(folder: Path, *suffixes: str) -> Files:
    return list(files_below(folder, suffixes))


def _halves(path: Path) -> Files:
    names = [f"{half}{suffix}" for half in ("train", "test") for suffix in event_file.SUFFIXES]
    return [(name, path / name) for name in names] if path.is_dir() else [("", path)]


FILES: dict[str, Callable[[Path], Files]] = {  # what a source reads of the path that is given to it
    "nmnist": lambda path: _below(path, ".bin"),
    "shd": lambda path: [(name, path / name) for name in shd.files("shd")],
    "ssc": lambda path: [(name, path / name) for name in shd.files("ssc")],
    "dvs_gesture": lambda path: _below(path, ".txt", ".aedat", ".csv"),
    "events": _halves,
    "braille": lambda path: [("", path)],
    "digits": lambda _: digits.files("digits"),  # these come with packages
    "mnist5k": lambda _: digits.files("mnist5k"),
    "randman": lambda _: [],
    "random": lambda _: [],
}
CAMERAS = {"nmnist": (nmnist.PIXELS, nmnist.CLASSES), "dvs_gesture": (dvs_gesture.PIXELS, dvs_gesture.CLASSES)}
CHANNELLED = {"shd": "SHD has channels", "ssc": "SSC has channels", "braille": "Braille has taxels"}


@dataclass(frozen=True, kw_only=True)
class SpikeDataset:
    """Samples as event lists: for every timestep the ascending ids of the inputs that spike.

    `ids` [samples, timesteps, capacity] (uint16 where the inputs allow it, else int32) are valid up to `counts`
    int32[samples, timesteps]; `labels` int32[samples]; `surplus_events` were left out because the lists were full.
    `images` float32[samples, inputs], where given, are the input of every timestep, and nothing is listed.
    `augmentation`, where given, changes samples when they are trained on. `use` says what became of the events of
    recordings.
    """

    ids: npt.NDArray[np.uint16] | Ids
    counts: Ids
    labels: Ids
    inputs: int
    classes: int
    surplus_events: int
    images: npt.NDArray[np.float32] | None = None
    augmentation: Augmentation | None = None
    use: EventUse | None = None

    def __post_init__(self) -> None:
        if self.ids.shape[:2] != self.counts.shape or self.labels.shape != self.ids.shape[:1]:
            raise ValueError(f"ids {self.ids.shape}, counts {self.counts.shape}, labels {self.labels.shape} disagree")

    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self.labels.size)

    @property
    def activity(self) -> float:
        """The share of inputs that spike in a timestep, mean over samples and timesteps."""
        return float(self.counts.mean() / self.inputs) if self.counts.size else 0.0

    def batch(self, indices: npt.ArrayLike) -> tuple[Ids, Ids, Ids]:
        """(ids int32[timesteps, batch, capacity], counts int32[timesteps, batch], labels int32[batch]), C-contiguous.

        Raises IndexError for a sample that is not there.
        """
        chosen = np.asarray(indices, dtype=np.int64)
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < self.samples:
            raise IndexError(f"samples {chosen.min()} to {chosen.max()} requested, there are 0 to {self.samples - 1}")
        ids = np.ascontiguousarray(self.ids[chosen].transpose(1, 0, 2), dtype=np.int32)
        return ids, np.ascontiguousarray(self.counts[chosen].T), self.labels[chosen]

    def training_batch(self, indices: npt.ArrayLike, epoch: int) -> tuple[Ids, Ids, Ids]:
        """As `batch`, of samples that are trained on in `epoch` (from 0): augmented, if the workload says so."""
        ids, counts, labels = self.batch(indices)
        if self.augmentation is not None:
            self.augmentation.change(ids, counts, np.asarray(indices, dtype=np.int64), self.samples, epoch)
        return ids, counts, labels


def source_files(data: Data) -> Files:
    """(name, path) of every file that a data source reads, those that are there."""
    return FILES[data.source](with_home(data.path))


def input_shape(data: Data) -> tuple[int, int]:
    """(inputs, classes) of a source, known without reading a sample; raises DescriptionError where it cannot be."""
    shape = _shape(data)
    _check_shift(data)
    return shape


def pixel_grid(data: Data) -> tuple[int, int] | None:
    """Columns and lines of the pixels whose events are listed, after crop and reduction; None where there are none.

    Raises DescriptionError for a crop or reduction beyond the sensor.
    """
    if data.source in digits.DEFAULT_GRID and data.encoding == "events":
        grid = data.grid or digits.DEFAULT_GRID[data.source]
        return grid, grid
    if data.source in CAMERAS:
        pixels, _ = CAMERAS[data.source]
        return reduced_grid(*cropped_grid(pixels, pixels, data.crop), data.grid)
    if data.source == "events" and data.sensor:
        width, height, _ = data.sensor
        return reduced_grid(*cropped_grid(width, height, data.crop), data.grid)
    return None


def _check_shift(data: Data) -> None:
    """Raise DescriptionError for a shift of data without pixels, or by the full sensor."""
    if not data.shift_pixels:
        return
    grid = pixel_grid(data)
    asked = f"'data.shift_pixels' is {data.shift_pixels}, but"
    if grid is None:
        shown = "images are used as they are" if data.encoding == "image" else f"source '{data.source}' has no pixels"
        if data.source == "events":
            shown = "'data.inputs' gives units, not pixels"
        raise _refused([f"{asked} {shown}; leave it out"])
    if data.shift_pixels >= min(grid):
        raise _refused([f"{asked} events are on {grid[0]} x {grid[1]} pixels; give 0 to {min(grid) - 1}"])


def _shape(data: Data) -> tuple[int, int]:
    if data.source != "events" and data.sensor:
        raise _refused([f"'data.sensor' is for source 'events', not for '{data.source}'; leave it out"])
    if data.source not in CAMERAS and not data.sensor:
        given = [key for key in ("crop", "denoise_seconds") if getattr(data, key)]
        if given:
            raise _refused([f"'data.{key}' needs recordings with pixels; leave it out" for key in given])
    if data.source != "braille" and data.levels:
        raise _refused([f"'data.levels' is for source 'braille', not for '{data.source}'; leave it out"])
    if data.source == "events":
        return _events_shape(data)
    if data.source in ("randman", "random"):
        missing = [key for key in ("inputs", "classes") if not getattr(data, key)]
        if missing:
            raise _refused([f"'data.{key}' must be given for source '{data.source}'" for key in missing])
        return data.inputs, data.classes
    given = [key for key in ("inputs", "classes") if getattr(data, key)]
    if given:
        raise _refused([f"'data.{key}' is fixed by source '{data.source}'; leave it out" for key in given])
    if data.source in CHANNELLED:
        if data.grid:
            named = CHANNELLED[data.source]
            raise _refused([f"'data.grid' is {data.grid}, but {named}, not pixels; leave it out"])
        if data.source == "braille":
            return braille.inputs_of(data.levels), braille.CLASSES
        return shd.CHANNELS, shd.CLASSES[data.source]
    if data.source in CAMERAS:
        return _area(data) * POLARITIES, CAMERAS[data.source][1]
    if data.encoding == "image":
        if data.grid:
            raise _refused([f"'data.grid' is {data.grid}, but images are used as they are; leave it out"])
        return digits.PIXELS[data.source], digits.CLASSES
    return _area(data) * POLARITIES, digits.CLASSES


def _area(data: Data) -> int:
    """Pixels of a source that has them."""
    columns, lines = pixel_grid(data) or (0, 0)
    return columns * lines


def _events_shape(data: Data) -> tuple[int, int]:
    sensor = sensor_of(data)
    if sensor.by_unit:
        if data.grid:
            raise _refused([f"'data.grid' is {data.grid}, but 'data.inputs' gives units, not pixels; leave it out"])
        return sensor.inputs, data.classes
    return _area(data) * sensor.polarities, data.classes


def open_dataset(data: Data, seed: int, progress: Progress | None = None) -> tuple[SpikeDataset, SpikeDataset]:
    """The training and the test samples of `data`; the same seed gives the same bytes.

    At most `train_samples` and `test_samples` are read (0: all), an even share of every class, interleaved so that
    any run of samples holds all classes. Sources without a published split hold back a fifth, or `test_samples`.
    Training samples can be augmented as `data` says, test samples cannot. `progress(done, total)` is called while
    samples are made, starting again from 0 for the test samples.
    Raises DataFileError for bad files, MissingExtra for a missing package, DescriptionError for what does not fit.
    """
    inputs, classes = input_shape(data)
    if data.encoding == "image":
        return tuple(_image_dataset(part, classes) for part in open_images(data, seed))  # type: ignore[return-value]
    bin_nanoseconds(data.bin_seconds)  # refuses an impossible bin before any file is read
    with shared_process():
        train, test = SOURCES[data.source](data, seed, progress or _silent)
    augmented = replace(_dataset(train, inputs, classes), augmentation=_augmentation(data, seed))
    return augmented, _dataset(test, inputs, classes)


def _augmentation(data: Data, seed: int) -> Augmentation | None:
    grid = pixel_grid(data)
    if not data.shift_pixels or grid is None:
        return None
    return Augmentation(seed=seed, columns=grid[0], lines=grid[1], shift_pixels=data.shift_pixels)


def _image_dataset(part: digits.Images, classes: int) -> SpikeDataset:
    samples = len(part.labels)
    return SpikeDataset(
        ids=np.zeros((samples, 1, 0), np.uint16),
        counts=np.zeros((samples, 1), np.int32),
        labels=part.labels.astype(np.int32),
        inputs=int(np.prod(part.pixels.shape[1:])),
        classes=classes,
        surplus_events=0,
        images=(part.pixels.reshape(samples, -1) / np.float32(part.brightest)).astype(np.float32),
    )


def _dataset(lists: EventLists, inputs: int, classes: int) -> SpikeDataset:
    fits_uint16 = inputs <= 1 << 16
    return SpikeDataset(
        ids=lists.ids.astype(np.uint16) if fits_uint16 else lists.ids,
        counts=lists.counts,
        labels=lists.labels.astype(np.int32),
        inputs=inputs,
        classes=classes,
        surplus_events=lists.surplus,
        use=lists.use,
    )


def _refused(problems: list[str]) -> DescriptionError:
    return DescriptionError("workload data", problems)


def _silent(done: int, total: int) -> None:
    """Progress that is not shown."""
