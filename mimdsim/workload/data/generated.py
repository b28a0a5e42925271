"""Samples that need no files: filmed digits, random manifolds, random spikes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mimdsim.base.rng import stream
from mimdsim.workload.data import digits, randman
from mimdsim.workload.data.choose import SUBSETS, refuse_too_large, sample_counts, seeded_order
from mimdsim.workload.data.events import Ints, Subset
from mimdsim.workload.data.values import digit_images
from mimdsim.workload.description.sections import Data

_EVENTS_AT_ONCE = 1 << 20  # random spikes are drawn in groups of about this many, to bound memory


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
