"""Recordings in a user's folder, read one by one and binned."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.files import with_home
from mimdsim.base.rng import stream
from mimdsim.base.units import counted
from mimdsim.workload.data import braille, dvs_gesture, event_file, nmnist, shd
from mimdsim.workload.data.choose import SUBSETS, choose_samples, limits, split_samples
from mimdsim.workload.data.event_filters import crop_centre, denoise
from mimdsim.workload.data.events import Events, EventUse, Ints, Subset, bin_events, duration_microseconds, timesteps_of
from mimdsim.workload.description.sections import Data

RANDOM_INSTEAD = {"data.source": "random", "training.weight_scale": 8}  # larger weights: random spikes are few
INSTEAD = (
    f"{' '.join(f'--set {key}={value}' for key, value in RANDOM_INSTEAD.items())} substitutes random spikes of the "
    "same shape, and weights at which layers fire on them, for recordings you do not have"
)


def open_nmnist(data: Data, seed: int) -> Iterator[Subset]:
    """Samples of a folder of N-MNIST recordings."""
    splits: tuple[Literal["Train", "Test"], ...] = ("Train", "Test")
    for split, limit in zip(splits, limits(data), strict=True):
        files = nmnist.list_recordings(path_of(data, f"a folder with {nmnist.LAYOUT}", part=split), split)
        labels = np.array([label for _, label in files])
        chosen = choose_samples(labels, limit, seed, split)
        paths = (files[sample][0] for sample in np.sort(chosen))
        yield _subset(data, split, labels, chosen, map(nmnist.read_recording, paths), seed)


def open_shd(data: Data, seed: int) -> Iterator[Subset]:
    """Samples of a folder with the two files of SHD, or of SSC."""
    source = data.source
    for name, limit in zip(shd.files(source), limits(data), strict=True):
        path = path_of(data, f"a folder with {shd.layout(source)}", part=name, missing="no such file") / name
        labels = shd.read_labels(path, source=source)
        chosen = choose_samples(labels, limit, seed, name)
        yield _subset(data, name, labels, chosen, shd.read_samples(path, np.sort(chosen).tolist(), source=source), seed)


def open_dvs_gesture(data: Data, seed: int) -> Iterator[Subset]:
    """Samples of a folder of DVS-Gesture recordings."""
    duration = duration_microseconds(data.timesteps, data.bin_seconds)
    for split, limit in zip(SUBSETS, limits(data), strict=True):
        gestures = dvs_gesture.list_gestures(path_of(data, f"a folder with {dvs_gesture.LAYOUT}"), split)
        labels = np.array([gesture.label for gesture in gestures])
        chosen = choose_samples(labels, limit, seed, split)
        # gestures of one recording are adjacent in the list
        groups = groupby([gestures[sample] for sample in np.sort(chosen)], key=lambda gesture: gesture.recording)
        cut = (dvs_gesture.read_gestures([*group], duration_microseconds=duration) for _, group in groups)
        yield _subset(data, split, labels, chosen, chain.from_iterable(cut), seed)


def open_events(data: Data, seed: int) -> Iterator[Subset]:
    """Samples of an event file with or without a split, or of a folder with two event files."""
    path = path_of(data, event_file.LAYOUT, missing="no such file or folder")
    open_file = partial(event_file.EventFile, sensor=event_file.sensor_of(data), classes=data.classes)

    def cut(file: event_file.EventFile, chosen: Ints, name: str) -> Subset:
        return _subset(data, name, file.labels, chosen, file.samples(np.sort(chosen).tolist()), seed)

    if path.is_dir():
        for name, limit in zip(SUBSETS, limits(data), strict=True):
            with open_file(event_file.file_of_subset(path, name)) as file:
                if file.split is not None:
                    raise DataFileError(file.path, "has 'split', but is one of two files; leave it out")
                yield cut(file, choose_samples(file.labels, limit, seed, name), name)
        return
    with open_file(path) as file:
        if file.split is None:
            parts = [*split_samples(file.labels, data, seed)]
        else:
            members = [np.flatnonzero(file.split == subset) for subset in (0, 1)]
            wanted = zip(members, limits(data), SUBSETS, strict=True)
            parts = [of[choose_samples(file.labels[of], limit, seed, name)] for of, limit, name in wanted]
        for name, chosen in zip(SUBSETS, parts, strict=True):
            yield cut(file, chosen, name)


def open_braille(data: Data, seed: int) -> Iterator[Subset]:
    """Samples of a file of Braille letters; a fifth of every letter is held out by seed."""
    with braille.BrailleFile(path_of(data, braille.LAYOUT, missing="no such file")) as file:
        for name, chosen in zip(SUBSETS, split_samples(file.labels, data, seed), strict=True):
            yield _subset(data, name, file.labels, chosen, file.samples(np.sort(chosen).tolist()), seed)


def path_of(data: Data, layout: str, *, part: str = "", missing: str = "no such folder") -> Path:
    """The path of the recordings; if they, or `part` of them, are missing, the error says what to use instead."""
    if not data.path:
        problem = f"'data.path' must name {layout}; source '{data.source}' reads your own files; {INSTEAD}"
        raise DescriptionError("workload data", [problem])
    path = with_home(data.path)
    if not os.path.lexists(path / part):
        raise DataFileError(path / part, f"{missing}; 'data.path' must name {layout}; {INSTEAD}")
    return path


def _subset(data: Data, name: str, labels: Ints, chosen: Ints, recordings: Iterable[Any], seed: int) -> Subset:
    """The samples `chosen`, of which `recordings` are events, or pressures, in the order of the file; only one of these
    is held in memory at a time."""
    by_row = data.source == "braille"
    covered = data.timesteps if by_row else duration_microseconds(data.timesteps, data.bin_seconds)
    use = EventUse.of(chosen.size, "rows" if by_row else "microseconds", covered)
    keys_of = _crossings if by_row else _binned

    def groups() -> Iterator[tuple[Ints, Ints, np.random.Generator]]:
        places = np.argsort(chosen, kind="stable")  # stored in the seeded order
        for place, recording in zip(places.tolist(), recordings, strict=True):
            yield np.array([place]), keys_of(data, use, place, recording), stream(seed, "surplus", name, place)

    return Subset(name=name, labels=labels[chosen], groups=groups(), use=use)


def _binned(data: Data, use: EventUse, place: int, events: Events) -> Ints:
    filtered = crop_centre(denoise(events, data.denoise_seconds), data.crop)
    timesteps = timesteps_of(filtered, data.bin_seconds)
    later = {"unread": events.unread, "unread_from": events.unread_from_microseconds}
    use.note(place, events.t_microseconds, timesteps, data.timesteps, **later)
    return bin_events(filtered, timesteps=data.timesteps, bin_seconds=data.bin_seconds, grid=data.grid)


def _crossings(data: Data, use: EventUse, place: int, pressures: Ints) -> Ints:
    keys = braille.crossings(pressures, levels=data.levels)
    rows = keys // braille.inputs_of(data.levels)
    use.note(place, rows, rows, data.timesteps)
    return keys[rows < data.timesteps]


def refuse_unused(subset: Subset, data: Data) -> None:
    """Raise DataFileError if not one event of recordings that have been read is used, with where the events are."""
    if subset.use is not None and not subset.use.used.any():
        raise DataFileError(with_home(data.path), f"{subset.name}: {why_unused(subset.use, data)}")


def why_unused(use: EventUse, data: Data) -> str:
    """Why no event of recordings is used, and what to change."""
    samples = counted(use.read.size, "sample")
    if not use.read.any():
        return f"there is no event in the {samples} that are read"
    first, last = use.ends()
    said = f"events used: 0 of {use.read.sum():,} in {samples}; the first is at {first}, the last at {last}"
    if not use.late.any():
        keys = [key for key in ("denoise_seconds", "crop") if getattr(data, key)]
        named = " and ".join(f"data.{key}" for key in keys)
        return f"{said}; {named} leave nothing: lower what is filtered" if keys else said
    covered = f"the {counted(data.timesteps, 'timestep')} end at {use.shown(use.covered)}"
    if use.unit == "rows":
        return f"{said}, but {covered}: raise data.timesteps"
    return (
        f"{said}, but {covered}: raise data.bin_seconds or data.timesteps, count times from the start of each sample, "
        "and look at their unit"
    )
