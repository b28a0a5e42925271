"""Samples that need no files: filmed digits, random manifolds, random spikes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.base.rng import stream
from mimdsim.workload.data import digits, randman
from mimdsim.workload.data.choose import generated_samples, held_out, refuse_too_large, seeded_order
from mimdsim.workload.data.events import EventLists, Ints, pack_rows
from mimdsim.workload.description.sections import Data

Progress = Callable[[int, int], None]

_LOADERS = {"digits": digits.load_digits, "mnist5k": digits.load_mnist5k}
_EVENTS_AT_ONCE = 1 << 20  # random spikes are drawn in groups of about this many, to bound memory


def open_digits(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of `digits` or `mnist5k`, split by seed."""
    images = _LOADERS[data.source]()

    def made(chosen: Ints, split: str) -> EventLists:
        refuse_too_large(data, chosen.size)
        labels = images.labels[chosen]
        ids, counts, surplus = digits.film(
            digits.Images(pixels=images.pixels[chosen], labels=labels, brightest=images.brightest),
            timesteps=data.timesteps,
            grid=data.grid or digits.DEFAULT_GRID[data.source],
            capacity=data.input_capacity,
            rng=stream(seed, "surplus", split),
            progress=progress,
        )
        return EventLists(ids=ids, counts=counts, labels=labels, surplus=surplus)

    train, test = held_out(images.labels, data, seed)
    return made(train, "train"), made(test, "test")


def open_images(data: Data, seed: int) -> tuple[digits.Images, digits.Images]:
    """Training and test images of `digits` or `mnist5k`, split as their films are."""
    images = _LOADERS[data.source]()

    def made(chosen: Ints) -> digits.Images:
        return digits.Images(pixels=images.pixels[chosen], labels=images.labels[chosen], brightest=images.brightest)

    train, test = held_out(images.labels, data, seed)
    return made(train), made(test)


def open_randman(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of `randman`, standardised together and split by seed."""
    train, test = generated_samples(data)
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

    def made(chosen: Ints, split: str) -> EventLists:
        rng = stream(seed, "surplus", split)
        ids, counts, surplus = randman.pack_spikes(
            when[chosen], timesteps=data.timesteps, capacity=data.input_capacity, rng=rng
        )
        progress(chosen.size, chosen.size)
        return EventLists(ids=ids, counts=counts, labels=labels[chosen], surplus=surplus)

    return made(order[test : test + train], "train"), made(order[:test], "test")


def open_random(data: Data, seed: int, progress: Progress) -> tuple[EventLists, EventLists]:
    """Training and test samples of `random`: every input spikes in every timestep with chance `activity`."""

    def made(samples: int, split: str) -> EventLists:
        refuse_too_large(data, samples)
        rng = stream(seed, "random", split)
        ids = np.zeros((samples, data.timesteps, data.input_capacity), dtype=np.int32)
        counts = np.zeros((samples, data.timesteps), dtype=np.int32)
        surplus = 0
        places = data.timesteps * data.inputs
        group = max(int(_EVENTS_AT_ONCE / max(places * data.activity, 1.0)), 1)
        for first in range(0, samples, group):
            part = slice(first, min(first + group, samples))
            here = part.stop - first
            keys = bernoulli_places(here * places, data.activity, rng)
            packed, filled, extra = pack_rows(
                keys // data.inputs,
                keys % data.inputs,
                row_count=here * data.timesteps,
                capacity=data.input_capacity,
                rng=rng,
            )
            ids[part] = packed.reshape(ids[part].shape)
            counts[part] = filled.reshape(counts[part].shape)
            surplus += extra
            progress(part.stop, samples)
        labels = rng.integers(0, data.classes, samples)
        return EventLists(ids=ids, counts=counts, labels=labels, surplus=surplus)

    train, test = generated_samples(data)
    return made(train, "train"), made(test, "test")


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
