"""Randman: one spike per input, smooth manifolds, no time past the end."""

from __future__ import annotations

import numpy as np
import pytest

from mimdsim.base.rng import stream
from mimdsim.workload.data import randman
from mimdsim.workload.data.dataset import open_dataset
from mimdsim.workload.description.sections import Data

DATA = Data(source="randman", timesteps=50, input_capacity=24, inputs=40, classes=4, train_samples=160, test_samples=40)


def test_number_of_terms() -> None:
    assert randman.terms(2.0) == 32  # ceil(1000^(1/2)), as in the authors' package
    assert randman.terms(1.0) == randman.terms(0.001) == 1000
    assert randman.terms(3.0) == 10


def test_the_manifold_is_the_published_sum() -> None:
    points = np.array([[0.25, 0.7], [0.0, 1.0]])
    values = randman.manifold(points, 3, 2.0, stream(1, "m"))
    theta = stream(1, "m").random((3, 2, 3, 32))
    for sample, x in enumerate(points):
        for unit in range(3):
            product = 1.0
            for d in range(2):
                a, b, c = theta[unit, d]
                a[0] = 0
                product *= sum(
                    a[i] / ((i + 1) ** 2 + 1) * np.sin(2 * np.pi * (i * x[d] * b[i] + c[i])) for i in range(32)
                )
            assert values[sample, unit] == pytest.approx(product, rel=1e-12)


def test_times_fill_the_sequence_and_stay_inside() -> None:
    when, labels = randman.spike_timesteps(
        samples_per_class=60, classes=3, inputs=10, timesteps=25, dimensions=1, smoothness=2.0, seed=5
    )
    assert np.bincount(labels).tolist() == [60, 60, 60]
    for label in range(3):
        block = when[labels == label]
        assert (block.min(axis=0) == 0).all()
        assert (block.max(axis=0) == 24).all()  # the largest value is 1 and must not become timestep 25


def test_one_sample_a_class_is_no_division_by_zero() -> None:
    when, _ = randman.spike_timesteps(
        samples_per_class=1, classes=2, inputs=3, timesteps=5, dimensions=1, smoothness=2.0, seed=0
    )
    assert not when.any()


def test_every_input_fires_once() -> None:
    roomy = DATA.model_copy(update={"input_capacity": 40})
    train, test = open_dataset(roomy, 1)
    assert (train.samples, test.samples, train.surplus_events) == (160, 40, 0)
    assert (train.counts.sum(axis=1) == 40).all()
    for sample in range(5):
        spikes = [i for t in range(50) for i in train.ids[sample, t, : train.counts[sample, t]]]
        assert sorted(spikes) == list(range(40))


def test_surplus_adds_up() -> None:
    tight, _ = open_dataset(DATA.model_copy(update={"input_capacity": 1}), 1)
    assert tight.counts.sum() + tight.surplus_events == 160 * 40


def test_standardised_before_the_split() -> None:
    """The same samples stand at the same times, however many of them are held back."""
    few, _ = open_dataset(DATA.model_copy(update={"train_samples": 100, "test_samples": 100}), 2)
    many, _ = open_dataset(DATA.model_copy(update={"train_samples": 196, "test_samples": 4}), 2)
    known = {sample.tobytes() for sample in many.ids}
    assert sum(sample.tobytes() in known for sample in few.ids) == 100


def test_same_seed_same_bytes_other_seed_other_samples() -> None:
    first, again, other = (open_dataset(DATA, seed)[0] for seed in (7, 7, 8))
    assert first.ids.tobytes() == again.ids.tobytes()
    assert first.ids.tobytes() != other.ids.tobytes()
