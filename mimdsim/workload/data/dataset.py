"""Any data source of a description, opened as lists of input ids per sample and timestep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import with_home
from mimdsim.base.identity import files_below
from mimdsim.base.schema import build
from mimdsim.workload.data import braille, digits, dvs_gesture, event_file, nmnist, shd, sources
from mimdsim.workload.data.events import (
    POLARITIES,
    Augmentation,
    EventUse,
    Ids,
    Subset,
    bin_nanoseconds,
    pack_rows,
    refused,
    smaller_grid,
)
from mimdsim.workload.data.hdf5 import shared_process
from mimdsim.workload.data.values import Numbers, file_values, grey_images, random_values
from mimdsim.workload.description.sections import FILE_SOURCES, IMAGE_SOURCES, STEADY, Data

Progress = Callable[[int, int], None]
Files = list[tuple[str, Path]]  # by their name below what the description names


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where samples come from. opens: those to train on and then those to test on, by encoding, the usual first: of
    events a `Subset`, which is read or made while it is listed, else `Numbers`; files: what is read of the path that is
    given; classes, and of a camera or film the pixels of a side: 0 where the description says them; channels: what it
    has instead of pixels.
    """

    opens: Mapping[str, Callable[[Data, int], Iterable[Any]]]
    files: Callable[[Data, Path], Files] = lambda *_: []
    classes: int = 0
    pixels: int = 0
    channels: str = ""


def _below(*suffixes: str) -> Callable[[Data, Path], Files]:
    return lambda _, folder: list(files_below(folder, suffixes))


def _speech(data: Data, folder: Path) -> Files:
    return [(name, folder / name) for name in shd.files(data.source)]


def _event_files(_: Data, path: Path) -> Files:
    names = [f"{subset}{suffix}" for subset in sources.SUBSETS for suffix in event_file.SUFFIXES]
    return [(name, path / name) for name in names] if path.is_dir() else [("", path)]


def _recorded(parts: Callable[[Data], Iterator[sources.Part]], **about: Any) -> Source:
    return Source(opens={"events": partial(sources.open_recordings, parts)}, **about)


SOURCES = {
    **{
        name: Source(
            opens={"events": sources.open_digits, STEADY: grey_images},
            files=lambda data, _: digits.files(data.source),
            classes=digits.CLASSES,
            pixels=collection.grid,
        )
        for name, collection in digits.COLLECTIONS.items()
    },
    **{
        name: _recorded(sources.shd_parts, files=_speech, classes=classes, channels=f"{name.upper()} has channels")
        for name, classes in shd.CLASSES.items()
    },
    "nmnist": _recorded(sources.nmnist_parts, files=_below(".bin"), classes=nmnist.CLASSES, pixels=nmnist.PIXELS),
    "dvs_gesture": _recorded(
        sources.dvs_gesture_parts,
        files=_below(".txt", ".aedat", ".csv"),
        classes=dvs_gesture.CLASSES,
        pixels=dvs_gesture.PIXELS,
    ),
    "braille": _recorded(
        sources.braille_parts,
        files=lambda _, path: [("", path)],
        classes=braille.CLASSES,
        channels="Braille has taxels",
    ),
    "events": _recorded(sources.event_parts, files=_event_files),
    "randman": Source(opens={"events": sources.open_randman}),
    "random": Source(opens={"events": sources.open_random, STEADY: random_values, "values": random_values}),
    "values": Source(
        opens={STEADY: file_values, "values": file_values},
        files=lambda _, path: [("", path)],
        channels="a file of values has inputs",
    ),
}
GENERATED = ("randman", "random")
WITH_PIXELS = ("events", "nmnist", "dvs_gesture")
READERS: dict[str, tuple[str, ...]] = {  # keys that some sources do not have, and those that do
    "path": FILE_SOURCES,
    "sensor": ("events",),
    "crop": WITH_PIXELS,
    "denoise_seconds": WITH_PIXELS,
    "grid": (*WITH_PIXELS, *IMAGE_SOURCES),
    "shift_pixels": (*WITH_PIXELS, *IMAGE_SOURCES),
    "levels": ("braille",),
    "inputs": ("events", "values", *GENERATED),
    "classes": ("events", "values", *GENERATED),
}


@dataclass(frozen=True, kw_only=True)
class SpikeDataset:
    """Samples as event lists: for every timestep the ascending ids of the inputs that spike.

    `ids` [samples, timesteps, capacity] (uint16 where the inputs allow it, else int32) are valid up to `counts`
    int32[samples, timesteps]; `labels` int32[samples]; `surplus_events` were left out because the lists were full.
    `values` float32[samples, inputs] of every timestep, or [samples, timesteps, inputs], where given, are the input,
    and nothing is listed.
    `augmentation`, where given, changes samples when they are trained on. `use` says what became of the events of
    recordings.
    """

    ids: npt.NDArray[np.uint16] | Ids
    counts: Ids
    labels: Ids
    inputs: int
    classes: int
    surplus_events: int
    values: npt.NDArray[np.float32] | None = None
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


def encodings_of(source: str) -> list[str]:
    """What samples of a source can be, the usual first."""
    return [*SOURCES[source].opens]


def source_files(data: Data) -> Files:
    """(name, path) of every file that a data source reads, those that are there."""
    return SOURCES[data.source].files(data, with_home(data.path))


def pixel_grid(data: Data) -> tuple[int, int] | None:
    """Columns and lines of the pixels whose events are listed, after crop and reduction; None where there are none.

    Raises DescriptionError for a crop or reduction beyond the sensor.
    """
    pixels = SOURCES[data.source].pixels
    if data.source in IMAGE_SOURCES:
        side = data.grid or pixels
        return None if data.encoding == STEADY else (side, side)
    width, height = data.sensor[:2] if data.source == "events" and data.sensor else (pixels, pixels)
    if not width:
        return None
    return smaller_grid("grid", *smaller_grid("crop", width, height, data.crop), data.grid)


def input_shape(data: Data) -> tuple[int, int]:
    """(inputs, classes) of a source, known without reading a sample; raises DescriptionError where it cannot be."""
    shape = _shape(data)
    if data.shift_pixels:
        grid = pixel_grid(data)
        asked = f"'data.shift_pixels' is {data.shift_pixels}, but"
        if grid is None:
            instead = _no_pixels(data) or f"source '{data.source}' has no pixels"
            raise refused(f"{asked} {instead}; leave it out")
        if data.shift_pixels >= min(grid):
            raise refused(f"{asked} events are on {grid[0]} x {grid[1]} pixels; give 0 to {min(grid) - 1}")
    return shape


def _shape(data: Data) -> tuple[int, int]:
    source, given = SOURCES[data.source], [key for key in READERS if getattr(data, key)]
    for key in ("sensor", "levels"):
        if key in given and data.source not in READERS[key]:
            raise refused(f"'data.{key}' is for source '{READERS[key][0]}', not for '{data.source}'; leave it out")
    if data.source not in WITH_PIXELS or (data.source == "events" and not data.sensor):
        filters = [key for key in ("crop", "denoise_seconds") if key in given]
        if filters:
            raise refused(*(f"'data.{key}' needs recordings with pixels; leave it out" for key in filters))
    sensor = event_file.sensor_of(data) if data.source == "events" else None
    described = [key for key in ("inputs", "classes") if key in given]
    if data.source in (*GENERATED, "values") and len(described) < 2:
        missing = [key for key in ("inputs", "classes") if key not in given]
        raise refused(*(f"'data.{key}' must be given for source '{data.source}'" for key in missing))
    if source.classes and described:
        raise refused(*(f"'data.{key}' is fixed by source '{data.source}'; leave it out" for key in described))
    instead = f"{source.channels}, not pixels" if source.channels else _no_pixels(data)
    if data.grid and instead:
        raise refused(f"'data.grid' is {data.grid}, but {instead}; leave it out")
    grid = pixel_grid(data)
    if grid is not None:
        return grid[0] * grid[1] * (sensor.polarities if sensor else POLARITIES), source.classes or data.classes
    if data.source == "braille":
        return braille.inputs_of(data.levels), source.classes
    if data.source in IMAGE_SOURCES:
        return digits.COLLECTIONS[data.source].side ** 2, source.classes
    return (shd.CHANNELS, source.classes) if source.classes else (data.inputs, data.classes)


def _no_pixels(data: Data) -> str:
    """Why there are no pixels where there could be."""
    if data.encoding == STEADY:
        return "images are used as they are"
    return "'data.inputs' gives units, not pixels" if data.source == "events" and data.inputs else ""


def change_source(data: dict[str, Any], source: Any, given: Collection[str]) -> None:
    """Remove from a [data] table what `source` does not read, except for the keys `given` with it.

    A generated source gets as many inputs and classes as the former source had, where its description says that.
    """
    former = data.get("source")
    if former == source or not isinstance(source, str):
        return
    shape: dict[str, int] = {}
    if source in GENERATED:
        with contextlib.suppress(DescriptionError):
            shape = dict(zip(("inputs", "classes"), input_shape(build(Data, data, where="data")), strict=True))
    for key, readers in READERS.items():
        if source not in readers and key not in given:
            data.pop(key, None)
    if source in SOURCES and data.get("encoding", "") not in encodings_of(source) and "encoding" not in given:
        data.pop("encoding", None)
    for key, number in shape.items():
        data.setdefault(key, number)


def open_dataset(data: Data, seed: int, progress: Progress | None = None) -> tuple[SpikeDataset, SpikeDataset]:
    """The training and the test samples of `data`; the same seed gives the same bytes.

    At most `train_samples` and `test_samples` are read (0: all), an even share of every class, interleaved so that
    any run of samples holds all classes. Sources without a published split hold back a fifth, or `test_samples`.
    Training samples can be augmented as `data` says, test samples cannot. `progress(done, total)` is called while
    samples are made, starting again from 0 for the test samples.
    Raises DataFileError for bad files, MissingExtra for a missing package, DescriptionError for what does not fit.
    """
    inputs, classes = input_shape(data)
    samples = SOURCES[data.source].opens[data.encoding]
    if data.encoding != "events":
        train, test = (_of_numbers(part, inputs, classes) for part in samples(data, seed))
        return train, test
    bin_nanoseconds(data.bin_seconds)  # refuses an impossible bin before any file is read
    grid = pixel_grid(data)
    augmentation = None
    if data.shift_pixels and grid is not None:
        augmentation = Augmentation(seed=seed, columns=grid[0], lines=grid[1], shift_pixels=data.shift_pixels)
    with shared_process():
        train, test = (_list_spikes(data, subset, inputs, classes, progress) for subset in samples(data, seed))
    return replace(train, augmentation=augmentation), test


def _list_spikes(data: Data, subset: Subset, inputs: int, classes: int, progress: Progress | None) -> SpikeDataset:
    """The lists of a subset, whose samples are read or made here.

    Raises DescriptionError if they would be too large, DataFileError if recordings leave nothing to list.
    """
    samples = subset.labels.size
    sources.refuse_too_large(data, samples)
    shape = (samples, data.timesteps, data.input_capacity)
    ids = np.zeros(shape, np.uint16 if inputs <= 1 << 16 else np.int32)
    counts = np.zeros(shape[:2], np.int32)
    surplus = done = 0
    for places, keys, rng in subset.groups:
        rows = places.size * data.timesteps
        packed, filled, extra = pack_rows(keys, inputs, row_count=rows, capacity=data.input_capacity, rng=rng)
        ids[places], counts[places] = packed.reshape(-1, *shape[1:]), filled.reshape(-1, data.timesteps)
        surplus += extra
        done += places.size
        if progress is not None:
            progress(done, samples)
    sources.refuse_unused(subset, data)
    labels = subset.labels.astype(np.int32)
    return SpikeDataset(
        ids=ids, counts=counts, labels=labels, inputs=inputs, classes=classes, surplus_events=surplus, use=subset.use
    )


def _of_numbers(part: Numbers, inputs: int, classes: int) -> SpikeDataset:
    samples = len(part.labels)
    return SpikeDataset(
        ids=np.zeros((samples, 1, 0), np.uint16),
        counts=np.zeros((samples, 1), np.int32),
        labels=part.labels.astype(np.int32),
        inputs=inputs,
        classes=classes,
        surplus_events=0,
        values=part.values,
    )
