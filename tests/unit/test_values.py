"""Inputs of real numbers: files of them, samples of one's own, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.workload import Workload, load_workload, open_dataset

SHORT = {"network.hidden": [12], "training.batch": 4, "training.max_training_steps": 2}
DRAWN = np.random.default_rng(5)
SEQUENCES = DRAWN.random((20, 6, 9)).astype(np.float32)
LABELS = np.arange(20) % 3


def written(folder: Path, **arrays: Any) -> Workload:
    """A workload of sequences, with other arrays in its file."""
    mimdsim.from_values([*zip(SEQUENCES, LABELS, strict=True)], out=folder)
    kept = {name: each for name, each in ({"values": SEQUENCES, "labels": LABELS} | arrays).items() if each is not None}
    np.savez(folder / "values.npz", **kept)
    return load_workload(folder / "values.toml")


@pytest.mark.parametrize("batched", [False, True])
def test_samples_come_back_as_they_were_given(batched: bool) -> None:
    samples: Any = [*zip(SEQUENCES, LABELS, strict=True)]
    if batched:  # as a DataLoader gives them
        samples = [(SEQUENCES[first : first + 8], LABELS[first : first + 8]) for first in range(0, 20, 8)]
    workload = mimdsim.from_values(samples, test=samples, changes={"data.train_samples": 20, "data.test_samples": 20})
    train, test = open_dataset(workload.data, 1)
    for part in (train, test):
        assert part.values is not None
        assert part.values.shape == (20, 6, 9)
        by_number = np.array([np.argmin(np.abs(SEQUENCES - each).sum(axis=(1, 2))) for each in part.values])
        np.testing.assert_array_equal(np.sort(by_number), np.arange(20))
        np.testing.assert_array_equal(part.labels, LABELS[by_number])


@pytest.mark.parametrize("axis", [1, -1])
def test_time_is_on_the_axis_that_is_said(axis: int) -> None:
    samples = [*zip(SEQUENCES.swapaxes(1, 2), LABELS, strict=True)]
    workload = mimdsim.from_values(samples, time_axis=axis)
    assert (workload.data.timesteps, workload.data.inputs, workload.data.encoding) == (6, 9, "values")


def test_an_image_is_stored_once_and_trained_on() -> None:
    images = SEQUENCES[:, :4].reshape(20, 6, 6)
    workload = mimdsim.from_values([*zip(images, LABELS, strict=True)], timesteps=5, changes=SHORT)
    assert (workload.data.timesteps, workload.data.inputs, workload.data.encoding) == (5, 36, "image")
    steady = mimdsim.run(workload, "bow", gpus=("a100",))
    held = steady.compiled.program.variables["input.steady"]
    assert held.shape == (4, 36)
    moving = mimdsim.run(mimdsim.from_values(_shown(images, 5), changes=SHORT), "bow", gpus=())
    assert moving.profile.training.loss == pytest.approx(steady.profile.training.loss, rel=1e-5)
    assert moving.cycles > steady.cycles  # every timestep is stored, and sliced
    (first, *_) = steady.profile.activity
    assert (first.layer, first.sends, first.raster) == ("input", "numbers", ())


def _shown(images: np.ndarray, timesteps: int) -> list[tuple[np.ndarray, int]]:
    return [
        (np.broadcast_to(image, (timesteps, *image.shape)), int(label))
        for image, label in zip(images, LABELS, strict=True)
    ]


@pytest.mark.parametrize("encoding", ["values", "image"])
def test_the_compiled_program_is_right(encoding: str) -> None:
    changes = {"network.spikes": "dense", "network.hidden": [12, 8], "data.source": "random", "data.encoding": encoding}
    changes |= {"data.inputs": 15, "data.classes": 4}
    assert mimdsim.check("digits", "bow", changes=changes, strict=True).passed


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"values": SEQUENCES[:, :5]}, r"\[20, 5, 9\]; \[samples, timesteps, inputs\] of \[6, 9\] are described"),
        ({"values": SEQUENCES[:, 0]}, r"has the shape \[20, 9\]"),
        ({"values": np.where(SEQUENCES > 0.99, np.nan, SEQUENCES)}, "are not all finite"),
        ({"values": SEQUENCES.astype(object)}, "Python objects, which are not unpickled"),
        ({"values": None}, "has no 'values'"),
        ({"labels": None}, "has no 'labels'"),
        ({"labels": LABELS[:-1]}, r"'labels' has the shape \[19\]; there are 20 samples"),
        ({"labels": LABELS + 1}, "'labels' must be whole numbers from 0 to 2"),
        ({"labels": LABELS * 0.5}, "'labels' must be whole numbers from 0 to 2"),
        ({"split": np.zeros(20, int)}, "'split' has no 1, so there is no test sample"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    workload = written(tmp_path, **arrays)
    with pytest.raises(MimdsimError, match=message):
        open_dataset(workload.data, 1)


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ([], {}, "there are no samples"),
        (7, {}, r"from_values: 1 problem\n  - samples are int, which holds no pairs of values and a label"),
        ([SEQUENCES[0]], {}, "not a pair of values and a label"),
        ([(SEQUENCES[0], 0.5)], {}, "whole numbers from 0 are needed"),
        ([(SEQUENCES[0], -1)], {}, "label -1 is not from 0"),
        ([(SEQUENCES[0], -1)], {}, r"from_values: 1 problem\n"),
        ([("text", 0)], {}, "or not all finite"),
        ([(SEQUENCES[0], 0), (SEQUENCES[0, :3], 1)], {}, "samples have the shapes"),
        ([(SEQUENCES[0, 0], 0)], {}, r"values have the shape \[9\]"),
        ([(SEQUENCES[:4], LABELS[:3])], {}, r"values have the shape \[4, 6, 9\], labels \[3\]"),
        ([(SEQUENCES[0], 0)], {"time_axis": 2}, r"values have the shape \[6, 9\]"),
        ([(np.full((2, 3), np.inf), 0)], {}, "or not all finite"),
    ],
)
def test_samples_that_are_not_understood_are_refused(samples: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(MimdsimError, match=message):
        mimdsim.from_values(samples, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.encoding": "values"}, "source 'digits' has no values; write 'events'"),
        ({"data.source": "random", "data.encoding": "values"}, "values are not spikes; set network.spikes = 'dense'"),
        ({"data.source": "values", "data.path": "x.npz", "network.spikes": "dense"}, "has no spikes; write 'image'"),
    ],
)
def test_an_encoding_that_a_source_has_not_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MimdsimError, match=message):
        load_workload("digits", changes | {"data.inputs": 9, "data.classes": 3})


def test_a_written_file_holds_values_and_labels_alone(tmp_path: Path) -> None:
    mimdsim.from_values([(one, int(label)) for one, label in zip(SEQUENCES, LABELS, strict=True)], out=tmp_path)
    with np.load(tmp_path / "values.npz") as file:
        assert set(file.files) <= {"values", "labels", "split"}
