"""How the samples of every source are read or made, and which of them: an even share of every class, the same for the
same seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import with_home
from mimdsim.base.rng import stream
from mimdsim.base.units import counted
from mimdsim.workload.data import braille, digits, dvs_gesture, event_file, nmnist, randman, shd
from mimdsim.workload.data.events import (
    Events,
    EventUse,
    Ints,
    Subset,
    bin_events,
    crop_centre,
    denoise,
    duration_microseconds,
    rank_in_run,
    refused,
    timesteps_of,
)
from mimdsim.workload.description.sections import Data

SUBSETS: tuple[Literal["train", "test"], ...] = ("train", "test")
TEST_SHARE = 0.2  # of the samples, for sources without a published split (assumed, a usual choice)
GENERATED_PER_CLASS = 1000  # randman: setting of Zenke and Vogels 2021; random: assumed, the same
MAX_LIST_BYTES = 4 << 30  # assumed: what a small computer can hold in addition to the run itself
_ID_BYTES = 4
_EVENTS_AT_ONCE = 1 << 20  # random spikes are drawn in groups of about this many, to bound memory
# larger weights: random spikes are few; a few training steps: there is nothing to learn, and times need no more
RANDOM_INSTEAD = {"data.source": "random", "training.weight_scale": 8, "training.max_training_steps": 20}
INSTEAD = (
    f"{' '.join(f'--set {key}={value}' for key, value in RANDOM_INSTEAD.items())} substitutes random spikes of the "
    "same shape, weights at which layers fire on them, and a few training steps, for recordings you do not have"
)


def seeded_order(labels: Ints, seed: int, *names: str | int) -> Ints:
    """An order of all samples in which every prefix holds each class in proportion; random within a class."""
    chance = stream(seed, "order", *names).random(labels.size)
    # Sorting random numbers, not Generator.permutation: the same order on every platform and numpy version.
    by_class = np.lexsort((chance, labels))
    ordered = labels[by_class]
    return by_class[np.argsort((rank_in_run(ordered) + 0.5) / np.bincount(labels)[ordered], kind="stable")]


def choose_samples(labels: Ints, limit: int, seed: int, split: str) -> Ints:
    """At most `limit` samples (0: all), in seeded order."""
    order = seeded_order(labels, seed, split)
    return order[:limit] if limit else order


def split_samples(labels: Ints, data: Data, seed: int) -> tuple[Ints, Ints]:
    """(samples to train on, samples held out), disjoint; raises DescriptionError if one of them is empty."""
    order = seeded_order(labels, seed, "split")
    tests = data.test_samples or max(round(TEST_SHARE * labels.size), 1)
    if not 0 < tests < labels.size:
        raise refused(f"'data.test_samples' is {tests} of {labels.size} samples; leave some to train on")
    rest = order[tests:]
    return rest[: data.train_samples] if data.train_samples else rest, order[:tests]


def cut_samples(labels: Ints, split: Ints | None, data: Data, seed: int) -> dict[str, Ints]:
    """The samples to train on and to test on, by name: those that are 0 and 1 in `split`, without one by seed."""
    if split is None:
        return dict(zip(SUBSETS, split_samples(labels, data, seed), strict=True))
    members = zip(SUBSETS, (np.flatnonzero(split == number) for number in (0, 1)), strict=True)
    limits = {"train": data.train_samples, "test": data.test_samples}
    return {name: of[choose_samples(labels[of], limits[name], seed, name)] for name, of in members}


def sample_counts(data: Data) -> tuple[int, int]:
    """(training, test) samples of a generated source; where no numbers are given, GENERATED_PER_CLASS in all."""
    train = data.train_samples or round((1 - TEST_SHARE) * GENERATED_PER_CLASS) * data.classes
    return train, data.test_samples or max(round(train * TEST_SHARE / (1 - TEST_SHARE)), 1)


def refuse_too_large(data: Data, samples: int) -> None:
    """Raise DescriptionError when the event lists of `samples` would not fit MAX_LIST_BYTES."""
    wanted = samples * data.timesteps * data.input_capacity * _ID_BYTES
    if wanted > MAX_LIST_BYTES:
        raise refused(
            f"{samples} samples x {data.timesteps} timesteps x {data.input_capacity} input ids are {wanted} bytes, "
            f"over {MAX_LIST_BYTES}; lower 'data.train_samples', 'data.timesteps' or 'data.input_capacity'"
        )


def digit_images(data: Data, seed: int) -> list[digits.Images]:
    """Training and test images of `digits` or `mnist5k`, split by seed."""
    images = digits.load_images(data.source)
    return [images.some(chosen) for chosen in split_samples(images.labels, data, seed)]


def open_digits(data: Data, seed: int) -> Iterator[Subset]:
    """Films of the images of `digits` or `mnist5k`."""
    grid = data.grid or digits.COLLECTIONS[data.source].grid
    for name, images in zip(SUBSETS, digit_images(data, seed), strict=True):
        films = digits.film(images, timesteps=data.timesteps, grid=grid)
        rng = stream(seed, "surplus", name)
        yield Subset(name=name, labels=images.labels, groups=((*film, rng) for film in films))


def open_randman(data: Data, seed: int) -> Iterator[Subset]:
    """Samples of `randman`, standardised together and split by seed."""
    train, test = sample_counts(data)
    refuse_too_large(data, train + test)
    when, labels = randman.spike_timesteps(
        samples_per_class=-(-(train + test) // data.classes),
        classes=data.classes,
        inputs=data.inputs,
        timesteps=data.timesteps,
        dimensions=data.manifold_dimensions,
        smoothness=data.smoothness,
        seed=seed,
    )
    order = seeded_order(labels, seed, "split")
    for name, chosen in zip(SUBSETS, (order[test : test + train], order[:test]), strict=True):
        keys = randman.keys_of(when[chosen], data.timesteps)
        group = (np.arange(chosen.size), keys, stream(seed, "surplus", name))
        yield Subset(name=name, labels=labels[chosen], groups=[group])


def open_random(data: Data, seed: int) -> Iterator[Subset]:
    """Samples of `random`: every input spikes in every timestep with chance `activity`."""
    places = data.timesteps * data.inputs
    most = max(int(_EVENTS_AT_ONCE / max(places * data.activity, 1.0)), 1)

    def groups(labels: Ints, rng: np.random.Generator) -> Iterator[tuple[Ints, Ints, np.random.Generator]]:
        for first in range(0, labels.size, most):
            samples = np.arange(first, min(first + most, labels.size))
            yield samples, bernoulli_places(samples.size * places, data.activity, rng), rng
        labels[:] = rng.integers(0, data.classes, labels.size)  # drawn after the spikes, by the same generator

    for name, samples in zip(SUBSETS, sample_counts(data), strict=True):
        labels = np.zeros(samples, np.int64)
        yield Subset(name=name, labels=labels, groups=groups(labels, stream(seed, "random", name)))


def bernoulli_places(places: int, chance: float, rng: np.random.Generator) -> Ints:
    """Which of `places` independent coin flips succeed, ascending int64; work grows with successes, not with places."""
    if chance <= 0:
        return np.zeros(0, dtype=np.int64)
    pieces = []
    last = -1
    while last < places:
        expected = int((places - last) * chance * 1.05) + 16
        # The gap to the next success is geometric; cut off so that a tiny chance cannot overflow the sum.
        gaps = np.minimum(rng.geometric(chance, expected), places + 1)
        pieces.append(last + np.cumsum(gaps))
        last = int(pieces[-1][-1])
    found = np.concatenate(pieces)
    return found[found < places]


class Part(NamedTuple):
    """Recordings of one subset, or (no name) of both, cut as by `cut_samples`. read: those of samples in ascending
    order, one in memory at once: events, or of Braille pressures."""

    name: str
    labels: Ints
    read: Callable[[Sequence[int]], Iterable[Any]]
    split: Ints | None = None


def open_recordings(parts: Callable[[Data], Iterator[Part]], data: Data, seed: int) -> Iterator[Subset]:
    """Samples of a user's files, read one by one and binned."""
    for part, limit in zip(parts(data), (data.train_samples, data.test_samples), strict=False):
        chosen_by_name = (
            {part.name: choose_samples(part.labels, limit, seed, part.name)}
            if part.name
            else cut_samples(part.labels, part.split, data, seed)
        )
        for name, chosen in chosen_by_name.items():
            yield _subset(data, name, part.labels[chosen], chosen, part.read(np.sort(chosen).tolist()), seed)


def nmnist_parts(data: Data) -> Iterator[Part]:
    """A folder of N-MNIST recordings."""
    splits: tuple[Literal["Train", "Test"], ...] = ("Train", "Test")

    def read(files: Sequence[tuple[Path, int]], chosen: Sequence[int]) -> Iterator[Events]:
        return (nmnist.read_recording(files[sample][0]) for sample in chosen)

    for split in splits:
        files = nmnist.list_recordings(path_of(data, f"a folder with {nmnist.LAYOUT}", part=split), split)
        yield Part(split, np.array([label for _, label in files]), partial(read, files))


def shd_parts(data: Data) -> Iterator[Part]:
    """A folder with the two files of SHD, or of SSC."""
    source = data.source
    for name in shd.files(source):
        path = path_of(data, f"a folder with {shd.layout(source)}", part=name, missing="no such file") / name
        yield Part(name, shd.read_labels(path, source=source), partial(shd.read_samples, path, source=source))


def dvs_gesture_parts(data: Data) -> Iterator[Part]:
    """A folder of DVS-Gesture recordings."""
    duration = duration_microseconds(data.timesteps, data.bin_seconds)

    def read(gestures: Sequence[dvs_gesture.Gesture], chosen: Sequence[int]) -> Iterator[Events]:
        # gestures of one recording are adjacent in the list
        groups = groupby([gestures[sample] for sample in chosen], key=lambda gesture: gesture.recording)
        cut = (dvs_gesture.read_gestures([*group], duration_microseconds=duration) for _, group in groups)
        return chain.from_iterable(cut)

    for split in SUBSETS:
        gestures = dvs_gesture.list_gestures(path_of(data, f"a folder with {dvs_gesture.LAYOUT}"), split)
        yield Part(split, np.array([gesture.label for gesture in gestures]), partial(read, gestures))


def event_parts(data: Data) -> Iterator[Part]:
    """An event file with or without a split, or a folder with two event files."""
    path = path_of(data, event_file.LAYOUT, missing="no such file or folder")
    open_file = partial(event_file.EventFile, sensor=event_file.sensor_of(data), classes=data.classes)
    if path.is_dir():
        for name in SUBSETS:
            with open_file(event_file.file_of_subset(path, name)) as file:
                if file.split is not None:
                    raise DataFileError(file.path, "has 'split', but is one of two files; leave it out")
                yield Part(name, file.labels, file.samples)
        return
    with open_file(path) as file:
        yield Part("", file.labels, file.samples, file.split)


def braille_parts(data: Data) -> Iterator[Part]:
    """A file of Braille letters; a fifth of every letter is held out by seed."""
    with braille.BrailleFile(path_of(data, braille.LAYOUT, missing="no such file")) as file:
        yield Part("", file.labels, file.samples)


def path_of(data: Data, layout: str, *, part: str = "", missing: str = "no such folder") -> Path:
    """The path of the recordings; if they, or `part` of them, are missing, the error says what to use instead."""
    if not data.path:
        raise refused(f"'data.path' must name {layout}; source '{data.source}' reads your own files; {INSTEAD}")
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

    return Subset(name=name, labels=labels, groups=groups(), use=use)


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
