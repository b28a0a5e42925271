"""Recordings in a user's folder, binned one by one into event lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.files import with_home
from mimdsim.base.rng import stream
from mimdsim.base.units import counted
from mimdsim.workload.data import braille, dvs_gesture, event_file, nmnist, shd
from mimdsim.workload.data.choose import held_out, limited, refuse_too_large
from mimdsim.workload.data.event_filters import centre_cropped, denoised
from mimdsim.workload.data.events import EventLists, Events, EventUse, Ints, bin_events, duration_microseconds
from mimdsim.workload.description.sections import Data

Progress = Callable[[int, int], None]
RANDOM_INSTEAD = {"data.source": "random", "training.weight_scale": 8}  # larger weights: random spikes are few
INSTEAD = (
    f"{' '.join(f'--set {key}={value}' for key, value in RANDOM_INSTEAD.items())} substitutes random spikes of the "
    "same shape, and weights at which layers fire on them, for recordings you do not have"
)


def open_nmnist(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of a folder of N-MNIST recordings."""

    def made(split: Literal["Train", "Test"], limit: int) -> EventLists:
        files = nmnist.list_recordings(_path(data, f"a folder with {nmnist.LAYOUT}", part=split), split)
        labels = np.array([label for _, label in files])
        chosen = limited(labels, limit, seed, split)
        recordings = ((place, nmnist.read_recording(files[sample][0])) for place, sample in enumerate(chosen.tolist()))
        return _binned(data, recordings, labels[chosen], seed, split, progress)

    return made("Train", data.train_samples), made("Test", data.test_samples)


def open_shd(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of a folder with the two files of SHD, or of SSC."""
    source = data.source

    def made(name: str, limit: int) -> EventLists:
        path = _path(data, f"a folder with {shd.layout(source)}", part=name, missing="no such file") / name
        labels = shd.read_labels(path, source=source)
        chosen = limited(labels, limit, seed, name)
        places = np.argsort(chosen, kind="stable")  # read in file order, stored in the seeded order
        recordings = zip(places.tolist(), shd.read_samples(path, chosen[places].tolist(), source=source), strict=True)
        return _binned(data, recordings, labels[chosen], seed, name, progress)

    train, test = shd.files(source)
    return made(train, data.train_samples), made(test, data.test_samples)


def open_dvs_gesture(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of a folder of DVS-Gesture recordings."""
    duration = duration_microseconds(data.timesteps, data.bin_seconds)

    def cut(wanted: Iterable[tuple[int, dvs_gesture.Gesture]]) -> Iterator[tuple[int, Events]]:
        for _, group in groupby(wanted, key=lambda item: item[1].recording):
            places, gestures = zip(*group, strict=True)
            yield from zip(places, dvs_gesture.read_gestures(gestures, duration_microseconds=duration), strict=True)

    def made(split: Literal["train", "test"], limit: int) -> EventLists:
        gestures = dvs_gesture.list_gestures(_path(data, f"a folder with {dvs_gesture.LAYOUT}"), split)
        labels = np.array([gesture.label for gesture in gestures])
        chosen = limited(labels, limit, seed, split)
        places = np.argsort(chosen, kind="stable").tolist()  # gestures of one recording are adjacent in the list
        wanted = [(place, gestures[chosen[place]]) for place in places]
        return _binned(data, cut(wanted), labels[chosen], seed, split, progress)

    return made("train", data.train_samples), made("test", data.test_samples)


def open_events(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of an event file with or without a split, or of a folder with two event files."""
    path, sensor = _path(data, event_file.LAYOUT, missing="no such file or folder"), event_file.sensor_of(data)

    def cut(file: event_file.EventFile, chosen: Ints, name: str) -> EventLists:
        places = np.argsort(chosen, kind="stable")  # read in file order, stored in the seeded order
        recordings = zip(places.tolist(), file.samples(chosen[places].tolist()), strict=True)
        return _binned(data, recordings, file.labels[chosen], seed, name, progress)

    def half_of(name: str, limit: int) -> EventLists:
        with event_file.EventFile(event_file.half(path, name), sensor=sensor, classes=data.classes) as file:
            if file.split is not None:
                raise DataFileError(file.path, "has 'split', but is one of two files; leave it out")
            return cut(file, limited(file.labels, limit, seed, name), name)

    if path.is_dir():
        return half_of("train", data.train_samples), half_of("test", data.test_samples)
    with event_file.EventFile(path, sensor=sensor, classes=data.classes) as file:
        if file.split is None:
            train, test = held_out(file.labels, data, seed)
        else:
            members = [np.flatnonzero(file.split == half) for half in (0, 1)]
            train, test = (
                of[limited(file.labels[of], limit, seed, name)]
                for of, limit, name in zip(
                    members, (data.train_samples, data.test_samples), ("train", "test"), strict=True
                )
            )
        return cut(file, train, "train"), cut(file, test, "test")


def open_braille(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of a file of Braille letters; a fifth of every letter is held out by seed."""

    def cut(file: braille.BrailleFile, chosen: Ints, name: str) -> EventLists:
        lists = _no_events(data, file.labels[chosen])
        use = EventUse.of(chosen.size, "rows", data.timesteps)
        surplus = 0
        places = np.argsort(chosen, kind="stable")  # read in file order, stored in the seeded order
        for done, (place, pressures) in enumerate(
            zip(places.tolist(), file.samples(chosen[places].tolist()), strict=True), start=1
        ):
            lists.ids[place], lists.counts[place], extra = braille.crossings(
                pressures,
                levels=data.levels,
                timesteps=data.timesteps,
                capacity=data.input_capacity,
                rng=stream(seed, "surplus", name, place),
            )
            surplus += extra
            braille.note_crossings(use, place, pressures, levels=data.levels)
            progress(done, chosen.size)
        return _used(data, replace(lists, surplus=surplus, use=use), name)

    path = _path(data, braille.LAYOUT, missing="no such file")
    with braille.BrailleFile(path) as file:
        train, test = held_out(file.labels, data, seed)
        return cut(file, train, "train"), cut(file, test, "test")


def _path(data: Data, layout: str, *, part: str = "", missing: str = "no such folder") -> Path:
    """The path of the recordings; if they, or `part` of them, are missing, the error says what to use instead."""
    if not data.path:
        problem = f"'data.path' must name {layout}; source '{data.source}' reads your own files; {INSTEAD}"
        raise DescriptionError("workload data", [problem])
    path = with_home(data.path)
    if not os.path.lexists(path / part):
        raise DataFileError(path / part, f"{missing}; 'data.path' must name {layout}; {INSTEAD}")
    return path


def _binned(
    data: Data, recordings: Iterable[tuple[int, Events]], labels: Ints, seed: int, split: str, progress: Progress
) -> EventLists:
    """Event lists of (place, events), one by one; only one recording is held in memory at a time."""
    lists = _no_events(data, labels)
    use = EventUse.of(labels.size, "microseconds", duration_microseconds(data.timesteps, data.bin_seconds))
    surplus = 0
    for done, (place, events) in enumerate(recordings, start=1):
        filtered = centre_cropped(denoised(events, data.denoise_seconds), data.crop)
        use.note(place, events, filtered, data.timesteps, data.bin_seconds)
        lists.ids[place], lists.counts[place], extra = bin_events(
            filtered,
            timesteps=data.timesteps,
            bin_seconds=data.bin_seconds,
            grid=data.grid,
            capacity=data.input_capacity,
            rng=stream(seed, "surplus", split, place),
        )
        surplus += extra
        progress(done, labels.size)
    return _used(data, replace(lists, surplus=surplus, use=use), split)


def _used(data: Data, lists: EventLists, split: str) -> EventLists:
    """The same lists; raises DataFileError if not one event is in them, with where the events are."""
    use = lists.use
    assert use is not None
    if not use.used.any():
        raise DataFileError(with_home(data.path), f"{split}: {nothing_used(use, data)}")
    return lists


def nothing_used(use: EventUse, data: Data) -> str:
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


def _no_events(data: Data, labels: Ints) -> EventLists:
    """Room for the event lists of `labels`; raises DescriptionError if that would be too much."""
    refuse_too_large(data, labels.size)
    ids = np.zeros((labels.size, data.timesteps, data.input_capacity), dtype=np.int32)
    return EventLists(ids=ids, counts=np.zeros(ids.shape[:2], dtype=np.int32), labels=labels, surplus=0)
