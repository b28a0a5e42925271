"""Which samples of a source are read: an even share of every class, the same for the same seed."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.workload.data.events import Ints
from mimdsim.workload.description.sections import Data

SUBSETS: tuple[Literal["train", "test"], ...] = ("train", "test")
TEST_SHARE = 0.2  # of the samples, for sources without a published split (assumed, a usual choice)
GENERATED_PER_CLASS = 1000  # randman: setting of Zenke and Vogels 2021; random: assumed, the same
MAX_LIST_BYTES = 4 << 30  # assumed: what a small computer can hold in addition to the run itself
_ID_BYTES = 4


def seeded_order(labels: Ints, seed: int, *names: str | int) -> Ints:
    """An order of all samples in which every prefix holds each class in proportion; random within a class."""
    chance = stream(seed, "order", *names).random(labels.size)
    # Sorting random numbers, not Generator.permutation: the same order on every platform and numpy version.
    by_class = np.lexsort((chance, labels))
    members = np.bincount(labels)
    rank = np.arange(labels.size) - np.repeat(np.cumsum(members) - members, members)
    return by_class[np.argsort((rank + 0.5) / members[labels[by_class]], kind="stable")]


def limits(data: Data) -> tuple[int, int]:
    """At most how many samples are trained on, and tested on (0: all)."""
    return data.train_samples, data.test_samples


def choose_samples(labels: Ints, limit: int, seed: int, split: str) -> Ints:
    """At most `limit` samples (0: all), in seeded order."""
    order = seeded_order(labels, seed, split)
    return order[:limit] if limit else order


def split_samples(labels: Ints, data: Data, seed: int) -> tuple[Ints, Ints]:
    """(samples to train on, samples held out), disjoint; raises DescriptionError if one of them is empty."""
    order = seeded_order(labels, seed, "split")
    tests = data.test_samples or max(round(TEST_SHARE * labels.size), 1)
    if not 0 < tests < labels.size:
        raise DescriptionError(
            "workload data", [f"'data.test_samples' is {tests} of {labels.size} samples; leave some to train on"]
        )
    rest = order[tests:]
    return rest[: data.train_samples] if data.train_samples else rest, order[:tests]


def sample_counts(data: Data) -> tuple[int, int]:
    """(training, test) samples of a generated source; where no numbers are given, GENERATED_PER_CLASS in all."""
    train = data.train_samples or round((1 - TEST_SHARE) * GENERATED_PER_CLASS) * data.classes
    return train, data.test_samples or max(round(train * TEST_SHARE / (1 - TEST_SHARE)), 1)


def refuse_too_large(data: Data, samples: int) -> None:
    """Raise DescriptionError when the event lists of `samples` would not fit MAX_LIST_BYTES."""
    wanted = samples * data.timesteps * data.input_capacity * _ID_BYTES
    if wanted > MAX_LIST_BYTES:
        raise DescriptionError(
            "workload data",
            [
                f"{samples} samples x {data.timesteps} timesteps x {data.input_capacity} input ids are {wanted} bytes, "
                f"over {MAX_LIST_BYTES}; lower 'data.train_samples', 'data.timesteps' or 'data.input_capacity'"
            ],
        )
