"""Training samples moved over the sensor: against recordings moved by hand, anew every epoch, test samples never."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_lists import binned
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import compiled, small_network

from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.execution import Checkpoints, Evaluation, TrainingLog, TrainingPlan, initial_weights, train
from mimdsim.graph import Adam
from mimdsim.workload import input_shape, load_workload, open_dataset
from mimdsim.workload.data.dataset import SpikeDataset
from mimdsim.workload.data.events import Augmentation, Events
from mimdsim.workload.description.sections import Data

COLUMNS, LINES, TIMESTEPS = 7, 5, 4
SHIFT = Augmentation(seed=3, columns=COLUMNS, lines=LINES, shift_pixels=2)


def recording(rng: np.random.Generator, events: int) -> Events:
    x, y, polarity, t = (rng.integers(0, most, events) for most in (COLUMNS, LINES, 2, TIMESTEPS * 1000))
    return Events(x=x, y=y, polarity=polarity, t_microseconds=t, width=COLUMNS, height=LINES)


def listed(events: Events) -> tuple[np.ndarray, np.ndarray]:
    ids, counts, surplus = binned(events, timesteps=TIMESTEPS, capacity=COLUMNS * LINES * 2, rng=stream(0))
    assert not surplus
    return ids, counts


def moved_by_hand(events: Events, across: int, down: int) -> Events:
    """Event by event."""
    rows = zip(
        *(column.tolist() for column in (events.x, events.y, events.polarity, events.t_microseconds)), strict=True
    )
    there = [
        (x + across, y + down, polarity, t)
        for x, y, polarity, t in rows
        if 0 <= x + across < COLUMNS and 0 <= y + down < LINES
    ]
    x, y, polarity, t = np.array(there, np.int64).reshape(-1, 4).T
    return replace(events, x=x, y=y, polarity=polarity, t_microseconds=t)


def dataset(recordings: list[Events], augmentation: Augmentation | None = SHIFT) -> SpikeDataset:
    lists = [listed(events) for events in recordings]
    return SpikeDataset(
        ids=np.stack([ids for ids, _ in lists]).astype(np.uint16),
        counts=np.stack([counts for _, counts in lists]),
        labels=np.arange(len(lists), dtype=np.int32) % 2,
        inputs=COLUMNS * LINES * 2,
        classes=2,
        surplus_events=0,
        augmentation=augmentation,
    )


@settings(max_examples=30, deadline=None)
@given(events=st.integers(0, 60), epoch=st.integers(0, 1000), seed=st.integers(0, 1000))
def test_a_moved_sample_is_the_recording_moved_by_hand(events: int, epoch: int, seed: int) -> None:
    recordings = [recording(stream(seed, sample), events) for sample in range(3)]
    data = dataset(recordings)
    shifts = SHIFT.shifts(3, epoch).tolist()
    chosen = [2, 0, 2]  # in any order, and twice
    ids, counts, labels = data.training_batch(chosen, epoch)
    assert labels.tolist() == [0, 0, 0]
    for place, sample in enumerate(chosen):
        expected_ids, expected_counts = listed(moved_by_hand(recordings[sample], *shifts[sample]))
        assert counts[:, place].tolist() == expected_counts.tolist()
        assert ids[:, place].tolist() == expected_ids.tolist()  # ascending, and zero behind the last one


def test_every_shift_is_as_likely() -> None:
    shifts = SHIFT.shifts(20_000, epoch=0)
    assert shifts.shape == (20_000, 2)
    found, often = np.unique(shifts @ [10, 1], return_counts=True)
    assert found.tolist() == [10 * across + down for across in range(-2, 3) for down in range(-2, 3)]
    assert np.abs(often - 800).max() < 5 * (800 * 24 / 25) ** 0.5  # five standard errors of a binomial count
    widest = replace(SHIFT, shift_pixels=1).shifts(1000, 0)
    assert (widest.min(), widest.max()) == (-1, 1)
    assert SHIFT.shifts(5, 7).tolist() == RECORDED


RECORDED = [[-1, 1], [-2, 1], [2, 2], [-2, -2], [-2, 0]]  # guards the shifts against platform and numpy


def test_epochs_and_seeds_differ_and_repeat() -> None:
    assert np.array_equal(SHIFT.shifts(50, 4), SHIFT.shifts(50, 4))
    for other in (SHIFT.shifts(50, 5), replace(SHIFT, seed=4).shifts(50, 4)):
        assert not np.array_equal(other, SHIFT.shifts(50, 4))
    data = dataset([recording(stream(1, sample), 40) for sample in range(8)])
    first, again, later = (data.training_batch(np.arange(8), epoch)[0] for epoch in (0, 0, 1))
    assert first.tobytes() == again.tobytes() != later.tobytes()
    kept = data.ids.tobytes(), data.counts.tobytes()
    data.training_batch([3], 0)
    assert (data.ids.tobytes(), data.counts.tobytes()) == kept  # what is in memory stays as recorded


def test_without_a_shift_a_training_batch_is_a_batch() -> None:
    data = dataset([recording(stream(1, sample), 40) for sample in range(4)], augmentation=None)
    for left, right in zip(data.training_batch([1, 3], 6), data.batch([1, 3]), strict=True):
        assert left.tobytes() == right.tobytes()


# A training


NETWORK = small_network((COLUMNS * LINES * 2, 9, 2), timesteps=TIMESTEPS, batch=4, optimiser=Adam(learning_rate=0.02))
MADE = compiled(NETWORK)


class Stopped(Exception):
    """The process ended here."""


class Watched(SpikeDataset):
    """Notes what is asked for."""

    def batch(self, indices: Any) -> Any:
        self.__dict__.setdefault("plain", []).append(np.asarray(indices).tolist())
        return super().batch(indices)

    def training_batch(self, indices: Any, epoch: int) -> Any:
        found = super().training_batch(indices, epoch)
        self.__dict__.setdefault("trained", []).append((epoch, self.__dict__["plain"].pop()))
        return found


def watched(augmentation: Augmentation | None = SHIFT) -> Watched:
    data = dataset([recording(stream(1, sample), 40) for sample in range(21)], augmentation)
    capacity = NETWORK.input_capacity
    return Watched(**{**data.__dict__, "ids": data.ids[:, :, :capacity], "counts": np.minimum(data.counts, capacity)})


def trained(
    data: SpikeDataset, checkpoints: Checkpoints | None = None, stop_after: int = 0, engine: Any = "program"
) -> TrainingLog:
    def progress(_what: str, done: int, _total: int) -> None:
        if done == stop_after:
            raise Stopped

    plan = TrainingPlan(epochs=3, seed=5, evaluation=Evaluation(validation_share=0.2), engine=engine)
    weights = initial_weights(NETWORK, 3, 2.0, 0.2)
    return train(MADE.program, NETWORK, data, data, plan, weights=weights, checkpoints=checkpoints, progress=progress)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["program", "whole_tensors"])
def test_only_what_is_trained_on_is_moved(engine: str) -> None:
    data = watched()
    log = trained(data, engine=engine)
    held_out = log.validation_samples
    assert held_out == 4
    seen = data.__dict__
    last = 1 + (engine == "whole_tensors")  # which the program runs too
    assert [epoch for epoch, _ in seen["trained"]] == [0] * 4 + [1] * 4 + [2] * (3 + last)
    judged = {sample for batch in seen["plain"] for sample in batch}
    shown = {sample for _, batch in seen["trained"] for sample in batch}
    assert judged == set(range(21))  # validation, test and the final look at training samples: as recorded
    assert len(shown) <= 21 - held_out
    assert log.loss != trained(watched(augmentation=None), engine=engine).loss
    assert log.loss == trained(watched(), engine=engine).loss


@pytest.mark.parametrize("stop_after", [5, 8])
def test_a_resumed_training_meets_the_same_shifts(tmp_path: Path, stop_after: int) -> None:
    whole = trained(watched())
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    with pytest.raises(Stopped):
        trained(watched(), file, stop_after)
    resumed = trained(watched(), replace(file, resume=True))
    assert resumed.loss == whole.loss
    assert resumed.test_accuracy_by_epoch == whole.test_accuracy_by_epoch
    for name, weights in whole.weights.items():
        assert resumed.weights[name].tobytes() == weights.tobytes()


# Descriptions


def described(source: str, **changes: Any) -> Data:
    return Data(**{"source": source, "timesteps": 10, "input_capacity": 16, "shift_pixels": 2, **changes})


@pytest.mark.parametrize(
    ("description", "text"),
    [
        (described("shd"), "'data.shift_pixels' is 2, but source 'shd' has no pixels; leave it out"),
        (described("braille", levels=2), "'data.shift_pixels' is 2, but source 'braille' has no pixels; leave it out"),
        (described("randman", inputs=9, classes=2), "'data.shift_pixels' is 2, but source 'randman' has no pixels"),
        (described("events", inputs=9, classes=2), "'data.shift_pixels' is 2, but 'data.inputs' gives units, not pix"),
        (described("digits", encoding="image"), "'data.shift_pixels' is 2, but images are used as they are; leave it"),
        (described("digits", grid=2), "'data.shift_pixels' is 2, but events are on 2 x 2 pixels; give 0 to 1"),
        (
            described("events", sensor=[9, 4, 1], classes=2, shift_pixels=4),
            "'data.shift_pixels' is 4, but events are on 9 x 4 pixels; give 0 to 3",
        ),
        (
            described("nmnist", crop=20, grid=5, shift_pixels=5),
            "'data.shift_pixels' is 5, but events are on 5 x 5 pixels; give 0 to 4",
        ),
    ],
)
def test_what_cannot_be_moved_is_refused(description: Data, text: str) -> None:
    with pytest.raises(DescriptionError, match=re.escape(text)):
        input_shape(description)


@pytest.mark.parametrize("given", [-1, 5000, 1.5, "two"])
def test_wrong_values_are_refused(given: Any) -> None:
    with pytest.raises(DescriptionError, match=r"data\.shift_pixels"):
        load_workload("digits", {"data.shift_pixels": given})


def test_a_description_moves_training_samples_only() -> None:
    plain = described("digits", timesteps=12, input_capacity=64, train_samples=30, test_samples=20, shift_pixels=0)
    moved = plain.model_copy(update={"shift_pixels": 3})
    (train_data, test_data), (others, other_tests) = (open_dataset(data, 1) for data in (plain, moved))
    assert test_data.augmentation is other_tests.augmentation is train_data.augmentation is None
    assert others.augmentation == Augmentation(seed=1, columns=16, lines=16, shift_pixels=3)
    for name in ("ids", "counts", "labels"):
        assert getattr(train_data, name).tobytes() == getattr(others, name).tobytes()
        assert getattr(test_data, name).tobytes() == getattr(other_tests, name).tobytes()
    across, down = others.augmentation.shifts(30, 2)[7].tolist()
    ids, counts, _ = others.training_batch([7], 2)
    t = int(train_data.counts[7].argmax())
    before = train_data.ids[7, t, : train_data.counts[7, t]].astype(int)
    x, y, polarity = before % 16 + across, before // 16 % 16 + down, before // 256
    inside = (x >= 0) & (x < 16) & (y >= 0) & (y < 16)
    assert ids[t, 0, : counts[t, 0]].tolist() == (x + 16 * (y + 16 * polarity))[inside].tolist()
