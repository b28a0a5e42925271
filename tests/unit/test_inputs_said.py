"""Events that are not used, classes that never occur and shares that leave no sample are refused or said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_file_writing import braille_arrays, nmnist_bytes, write_events, write_gestures, write_shd
from invented_training import samples

import mimdsim
from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.execution.trainer import refuse_empty, split
from mimdsim.pipeline.findings import absent_classes, event_findings
from mimdsim.report.headline import verdicts
from mimdsim.workload import SpikeDataset, load_workload, open_dataset
from mimdsim.workload.description.sections import Data

WORKLOAD = """
title = "Mine"
[data]
source = "events"
path = "{path}"
inputs = 12
classes = 4
timesteps = 40
bin_seconds = "1 ms"
input_capacity = 12
[network]
hidden = [10]
capacity = [10, 4]
[training]
batch = 4
learning_rate = 1e-3
weight_scale = 8.0
max_training_steps = 2
"""
RNG = np.random.default_rng(1)
TIMES = RNG.integers(0, 40_000, 2400)  # microseconds, over all 40 timesteps


def arrays(times: np.ndarray = TIMES, **changes: Any) -> dict[str, Any]:
    """24 samples of a hundred events each, six of them to test with."""
    return {
        "offsets": np.arange(0, 2401, 100),
        "t_microseconds": times,
        "unit": RNG.integers(0, 12, 2400),
        "labels": np.arange(24) % 4,
        "split": (np.arange(24) >= 18).astype(int),
        **changes,
    }


def described(tmp_path: Path, made: dict[str, Any], suffix: str = "npz") -> str:
    path = tmp_path / "mine.toml"
    path.write_text(WORKLOAD.format(path=write_events(tmp_path / f"events.{suffix}", made)))
    return str(path)


def opened(tmp_path: Path, made: dict[str, Any], changes: dict[str, Any] | None = None, suffix: str = "npz") -> Any:
    workload = load_workload(described(tmp_path, made, suffix), changes)
    return workload, open_dataset(workload.data, 1)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_events_outside_of_the_window_are_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(DataFileError) as refused:
        opened(tmp_path, arrays(TIMES + 5_000_000), suffix=suffix)
    said = str(refused.value)
    assert (
        f"events.{suffix}: train: events used: 0 of 1,800 in 18 samples; the first is at 5 s, the last at 5.04 s"
        in said
    )
    assert "the 40 timesteps end at 40 ms: raise data.bin_seconds or data.timesteps" in said


def recordings(folder: Path, source: str) -> Data:
    """Recordings of a source whose only events come after one timestep of a nanosecond, or in no row of one."""
    told: dict[str, Any] = {"source": source, "timesteps": 1, "bin_seconds": 1e-9, "input_capacity": 8}
    if source == "nmnist":
        for split_name in ("Train", "Test"):
            for digit in range(10):
                (folder / split_name / str(digit)).mkdir(parents=True)
                (folder / split_name / str(digit) / "0.bin").write_bytes(nmnist_bytes([(1, 2, 1, 7), (3, 4, 0, 900)]))
    elif source == "shd":
        write_shd(folder / "shd_train.h5")
        write_shd(folder / "shd_test.h5")
    elif source == "dvs_gesture":
        recording = write_gestures(folder)
        (folder / "user01_led_labels.csv").write_text("class,startTime_usec,endTime_usec\n1,90,2000\n11,2400,9000\n")
        (folder / "trials_to_test.txt").write_text(f"{recording.name}\n")
    elif source == "braille":
        write_events(folder / "letters.npz", braille_arrays())
        return Data(**told | {"path": str(folder / "letters.npz"), "levels": 63})
    return Data(**told | {"path": str(folder)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nmnist", "events used: 0 of 20 in 10 samples; the first is at 7 us, the last at 900 us"),
        ("shd", "events used: 0 of 4 in 2 samples; the first is at 99.98 ms, the last at 500 ms"),
        ("dvs_gesture", "events used: 0 of 4 in 2 samples; the first is at 10 us, the last at 100 us"),
        ("braille", "in 8 samples; the first is at row 2, the last at row 5, but the 1 timestep end at row 1"),
    ],
)
def test_every_source_of_recordings_refuses_them(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(DataFileError) as refused:
        open_dataset(recordings(tmp_path, source), 1)
    assert said in str(refused.value)


@pytest.mark.parametrize("source", ["nmnist", pytest.param("shd", marks=pytest.mark.slow), "dvs_gesture", "braille"])
def test_every_source_of_recordings_counts_them(tmp_path: Path, source: str) -> None:
    data = recordings(tmp_path, source).model_copy(update={"timesteps": 6, "bin_seconds": 1.0})
    for part in open_dataset(data, 1):
        assert part.use is not None
        assert part.use.share == 1.0
        assert part.use.read.sum() > 0
        assert not part.use.late.any()


@pytest.mark.parametrize(
    ("times", "changes", "mood", "said"),
    [
        (TIMES, {}, "good", "Events used: 1,800 of 1,800 (100.0 %) in training samples, 600 of 600 (100.0 %) in test"),
        (50 * TIMES, {}, "bad", "come after the 40 timesteps, which end at 40 ms, the last event is at 2 s"),
        (3 * TIMES, {}, "note", "come after the 40 timesteps, which end at 40 ms, the last event is at 120 ms"),
        (TIMES // 100, {}, "bad", "no sample has events in more than 1 of 40 timesteps (times are from 0 s to 399 us)"),
        (TIMES // 25, {}, "bad", "no sample has events in more than 2 of 40 timesteps"),
        (TIMES // 100, {"data.timesteps": 1}, "good", "Events used: 1,800 of 1,800"),
        (TIMES // 100 + 1700 * (np.arange(2400) // 100), {}, "bad", "more than 2 of 40 timesteps"),  # one after another
        (TIMES + 10**6 * (np.arange(2400) % 800 < 200), {}, "bad", "no event is used of 6 of 18 samples"),
    ],
)
def test_how_many_events_are_used_is_said(
    tmp_path: Path, times: np.ndarray, changes: dict[str, Any], mood: str, said: str
) -> None:
    (finding,) = event_findings(*opened(tmp_path, arrays(times), changes))
    assert finding.mood == mood
    assert said in finding.text


def test_filters_that_leave_nothing_are_named(tmp_path: Path) -> None:
    pixels = {"x": np.zeros(2400, int), "y": np.zeros(2400, int)}
    made = {key: each for key, each in (arrays() | pixels).items() if key != "unit"}
    changes = {"data.inputs": 0, "data.sensor": [8, 8, 1], "data.crop": 2}
    with pytest.raises(DataFileError, match=r"events used: 0 of 1,800 .* data.crop leave nothing"):
        opened(tmp_path, made, changes)


def test_a_run_says_it_before_its_time(tmp_path: Path) -> None:
    made = mimdsim.run(described(tmp_path, arrays(3 * TIMES)), "bow", gpus=())
    subjects = [verdict.subject for verdict in verdicts(made.profile)]
    assert subjects.index("events") < subjects.index("time")
    assert any(one.startswith("events: Events used: ") for one in made.warnings)


@pytest.mark.parametrize(
    ("suffix", "labels", "said"),
    [
        ("npz", np.arange(24) % 4 + 1, "4 is outside 0 to 3; are the labels 1-based?"),
        ("h5", np.arange(24) % 4 + 1, "4 is outside 0 to 3; are the labels 1-based?"),
        ("npz", np.arange(24) % 7, "4 is outside 0 to 3; labels reach 6, so there are at least 7 classes"),
        ("npz", np.arange(24) % 4 - 1, "-1 is outside 0 to 3; classes are counted from 0"),
    ],
)
def test_labels_beyond_the_classes_are_refused(tmp_path: Path, suffix: str, labels: np.ndarray, said: str) -> None:
    with pytest.raises(DataFileError) as refused:
        opened(tmp_path, arrays(labels=labels), suffix=suffix)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("train", "test", "changes", "said"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], {}, []),
        (
            [1, 2, 3],
            [1, 2, 3],
            {},
            ["1 of 4 classes (0) has no sample neither to train on nor to test with: if the labels"],
        ),
        (
            [0, 3],
            [0, 3],
            {},
            ["2 of 4 classes (1 to 2) have no sample neither to train on nor to test with: the network"],
        ),
        ([0, 1, 2], [0, 1, 2, 3], {}, ["1 of 4 classes (3) has no sample to train on"]),
        ([0, 1, 2, 3], [0, 2], {}, ["2 of 4 classes (1, 3) have no sample to test with"]),
        ([0, 1], [2], {}, ["2 of 4 classes (2 to 3) have no sample to train on", "3 of 4 classes (0 to 1, 3) have"]),
        (
            [0, 1],
            [],
            {"data.train_samples": 2},
            ["2 of 4 classes (2 to 3) have no sample to train on: raise data.train_s"],
        ),
    ],
)
def test_classes_that_never_occur_are_said(
    tmp_path: Path, train: list[int], test: list[int], changes: dict[str, Any], said: list[str]
) -> None:
    workload = load_workload(described(tmp_path, arrays()), changes)
    parts = tuple(samples(np.array(labels, int), classes=4) for labels in (train, test))
    found = [*absent_classes(workload, parts)]  # type: ignore[arg-type]
    assert len(found) == len(said)
    for line, begins in zip(found, said, strict=True):
        assert begins in line


def test_classes_of_samples_set_aside_are_not_trained_on(tmp_path: Path) -> None:
    workload = load_workload(described(tmp_path, arrays()), {"training.validation_share": 0.5})
    part = samples(np.array([0, 1, 2, 3]), classes=4)
    kept, _ = split(4, 0.5, workload.seed)
    (said,) = absent_classes(workload, (part, part))
    assert said.startswith("2 of 4 classes (")
    assert not {str(at) for at in kept} & set(
        said[said.index("(") + 1 : said.index(")")].replace("to", ",").split(", ")
    )


@pytest.mark.parametrize("samples_there", [1, 3, 18, 100])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.99, 0.999])
def test_a_share_leaves_samples_on_both_sides_or_is_refused(samples_there: int, share: float) -> None:
    kept, held_out = split(samples_there, share, 1)
    if len(kept) and (len(held_out) or not share):
        refuse_empty(kept, held_out, share)
        return
    lacks = "to validate with" if len(kept) else "to train on"
    with pytest.raises(DescriptionError, match=rf"training.validation_share.*\n.*which leaves none {lacks}"):
        refuse_empty(kept, held_out, share)


@pytest.mark.parametrize("engine", ["program", "whole_tensors"])
@pytest.mark.parametrize(
    ("workload", "few"), [("digits", {"data.train_samples": 20, "data.test_samples": 20}), ("events", {})]
)
def test_a_training_of_any_source_refuses_such_a_share(
    tmp_path: Path, workload: str, few: dict[str, Any], engine: str
) -> None:
    """Larger batches than samples make no difference: they were filled with samples that were set aside."""
    name = described(tmp_path, arrays()) if workload == "events" else workload
    changes = {"training.validation_share": 0.99, "training.batch": 64, "training.engine": engine, **few}
    with pytest.raises(DescriptionError, match="which leaves none to train on"):
        mimdsim.run(name, "bow", changes=changes, gpus=())


def test_made_samples_have_no_events_to_count() -> None:
    made: SpikeDataset = samples(np.arange(4), classes=4)
    assert event_findings(load_workload("digits"), (made, replace(made))) == ()


def test_points_of_a_sweep_carry_it(tmp_path: Path) -> None:
    """Also those that go on from the spikes that a folder holds."""
    workload = described(tmp_path, arrays(3 * TIMES))
    for contexts in ((6,), (6, 3)):
        axis = {"tile.worker_contexts": contexts}
        *_, row = mimdsim.sweep(workload, "bow", axis, training_steps=1, processes=1, folder=tmp_path / "sweep")
        assert row["note"].startswith("Events used: ")
