"""Recordings in a user's folder, binned one by one into event lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.workload import dvs_gesture, nmnist, shd
from mimdsim.workload.choose import limited, refuse_too_large
from mimdsim.workload.describe import Data
from mimdsim.workload.events import EventLists, Events, Ints, bin_events, duration_microseconds

Progress = Callable[[int, int], None]


def open_nmnist(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of a folder of N-MNIST recordings."""

    def made(split: Literal["Train", "Test"], limit: int) -> EventLists:
        files = nmnist.list_recordings(_folder(data, nmnist.LAYOUT), split)
        labels = np.array([label for _, label in files])
        chosen = limited(labels, limit, seed, split)
        recordings = ((place, nmnist.read_recording(files[sample][0])) for place, sample in enumerate(chosen.tolist()))
        return _binned(data, recordings, labels[chosen], seed, split, progress)

    return made("Train", data.train_samples), made("Test", data.test_samples)


def open_shd(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of a folder with the two SHD files."""

    def made(name: str, limit: int) -> EventLists:
        path = _folder(data, shd.LAYOUT) / name
        labels = shd.read_labels(path)
        chosen = limited(labels, limit, seed, name)
        places = np.argsort(chosen, kind="stable")  # read in the order of the file, put where the seeded order wants it
        recordings = zip(places.tolist(), shd.read_samples(path, chosen[places].tolist()), strict=True)
        return _binned(data, recordings, labels[chosen], seed, name, progress)

    return made("shd_train.h5", data.train_samples), made("shd_test.h5", data.test_samples)


def open_dvs_gesture(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of a folder of DVS-Gesture recordings."""
    duration = duration_microseconds(data.timesteps, data.bin_seconds)

    def cut(wanted: Iterable[tuple[int, dvs_gesture.Gesture]]) -> Iterator[tuple[int, Events]]:
        for _, group in groupby(wanted, key=lambda item: item[1].recording):
            places, gestures = zip(*group, strict=True)
            yield from zip(places, dvs_gesture.read_gestures(gestures, duration_microseconds=duration), strict=True)

    def made(split: Literal["train", "test"], limit: int) -> EventLists:
        gestures = dvs_gesture.list_gestures(_folder(data, dvs_gesture.LAYOUT), split)
        labels = np.array([gesture.label for gesture in gestures])
        chosen = limited(labels, limit, seed, split)
        places = np.argsort(chosen, kind="stable").tolist()  # gestures of one recording stand together in the list
        wanted = [(place, gestures[chosen[place]]) for place in places]
        return _binned(data, cut(wanted), labels[chosen], seed, split, progress)

    return made("train", data.train_samples), made("test", data.test_samples)


def _folder(data: Data, layout: str) -> Path:
    if not data.path:
        problem = f"'data.path' must name a folder with {layout}; source '{data.source}' reads your own files"
        raise DescriptionError("workload data", [problem])
    return Path(data.path).expanduser()


def _binned(
    data: Data, recordings: Iterable[tuple[int, Events]], labels: Ints, seed: int, split: str, progress: Progress
) -> EventLists:
    """Event lists of (place, events), as they come; only one recording is held at once."""
    refuse_too_large(data, labels.size)
    ids = np.zeros((labels.size, data.timesteps, data.input_capacity), dtype=np.int32)
    counts = np.zeros(ids.shape[:2], dtype=np.int32)
    surplus = 0
    for done, (place, events) in enumerate(recordings, start=1):
        ids[place], counts[place], extra = bin_events(
            events,
            timesteps=data.timesteps,
            bin_seconds=data.bin_seconds,
            grid=data.grid,
            capacity=data.input_capacity,
            rng=stream(seed, "surplus", split, place),
        )
        surplus += extra
        progress(done, labels.size)
    return EventLists(ids=ids, counts=counts, labels=labels, surplus=surplus)
