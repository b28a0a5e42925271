"""Samples that somebody has in memory become the spikes that they are, and what is not understood is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.workload import Workload, open_dataset

SENSOR = (4, 3, 2)
KIND = np.dtype([("x", np.int16), ("y", np.int16), ("t", np.int64), ("p", np.int8)])


def recording(seed: int, events: int = 40, **changes: Any) -> np.ndarray:
    """A structured array as tonic has them, microseconds over 20 ms."""
    draw = np.random.default_rng(seed)
    made = np.zeros(events, KIND)
    made["x"], made["y"] = draw.integers(0, 4, events), draw.integers(0, 3, events)
    made["t"], made["p"] = np.sort(draw.integers(0, 20_000, events)), draw.integers(0, 2, events)
    for name, values in changes.items():
        made[name] = values
    return made


def spikes_of(workload: Workload, label: int = 0, test: bool = False) -> np.ndarray:
    """bool[timesteps, inputs] of the first sample with a label, as training gets them."""
    data = open_dataset(workload.data, workload.seed, lambda *_: None)[int(test)]
    ids, counts, _ = data.batch(np.flatnonzero(data.labels == label)[:1])
    inputs = np.prod(workload.data.sensor) if workload.data.sensor else workload.data.inputs
    found = np.zeros((workload.data.timesteps, int(inputs)), bool)
    for t, count in enumerate(counts[:, 0]):
        found[t, ids[t, 0, :count]] = True
    return found


def frame_of(events: np.ndarray, timesteps: int) -> np.ndarray:
    """What tonic's ToFrame makes of it in bins of 1 ms, flattened: bool[timesteps, polarity * y * x]."""
    frame = np.zeros((timesteps, SENSOR[2], SENSOR[1], SENSOR[0]), bool)
    frame[events["t"] // 1000, events["p"], events["y"], events["x"]] = True
    return frame.reshape(timesteps, -1)


class LikeTonic:
    """A data set with a length and an index, whose index never ends."""

    sensor_size = SENSOR

    def __len__(self) -> int:
        return 5

    def __getitem__(self, at: int) -> tuple[np.ndarray, int]:
        return recording(at), at


def test_a_data_set_as_tonic_has_it() -> None:
    workload = mimdsim.from_events(LikeTonic(), LikeTonic())
    assert (workload.data.sensor, workload.data.classes) == (SENSOR, 5)
    assert workload.data.timesteps == 20
    for sample in range(5):
        assert (spikes_of(workload, sample) == frame_of(recording(sample), 20)).all()
        assert (spikes_of(workload, sample, test=True) == frame_of(recording(sample), 20)).all()


@pytest.mark.parametrize("polarity", [lambda p: 2 * p - 1, lambda p: p.astype(bool), lambda p: p.astype(float)])
def test_polarities_as_people_write_them(polarity: Any) -> None:
    made = []
    for number in range(4):
        events = recording(number)
        columns = {"Timestamp": events["t"], "X": events["x"], "y": events["y"], "pol": polarity(events["p"])}
        made.append((columns, number))
    workload = mimdsim.from_events(made[:3], made[3:], sensor=SENSOR)
    assert (spikes_of(workload) == frame_of(recording(0), 20)).all()


def test_units_and_seconds() -> None:
    """As tonic's SHD: a position without a second axis, one polarity that is called 1, times in seconds."""
    draw = np.random.default_rng(3)
    units, seconds = draw.integers(0, 70, 200), draw.random(200) * 0.05
    given = [({"t": seconds.astype(np.float16), "x": units, "p": np.ones(200)}, 1)] * 2
    by_sensor = mimdsim.from_events(given, given, sensor=(70, 1, 1), time_unit="s")
    by_unit = mimdsim.from_events(given, given, inputs=70, time_unit="s")
    expected = np.zeros((by_unit.data.timesteps, 70), bool)
    expected[np.rint(seconds.astype(np.float16).astype(float) * 1e6).astype(int) // 1000, units] = True
    assert (spikes_of(by_unit, 1) == expected).all()
    assert (spikes_of(by_sensor, 1) == expected).all()


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("time_axis", [0, 1])
def test_arrays_of_spikes(time_axis: int, batched: bool) -> None:
    spikes = np.random.default_rng(4).random((6, 9, 2, 5)) < 0.2  # samples, timesteps, two axes of inputs
    labels = np.arange(6)
    if batched:
        given: list[Any] = [(np.moveaxis(spikes[at : at + 3], 1, time_axis), labels[at : at + 3]) for at in (0, 3)]
    else:
        given = [(np.moveaxis(one, 0, time_axis), int(label)) for one, label in zip(spikes, labels, strict=True)]
    workload = mimdsim.from_events(given, given, time_axis=time_axis)
    assert (workload.data.inputs, workload.data.timesteps, workload.data.classes) == (10, 9, 6)
    for sample in range(6):
        assert (spikes_of(workload, sample) == spikes[sample].reshape(9, 10)).all()


def test_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    lines = ["sample,label,t,x,y,p"]
    for number in range(3):
        lines += [f"{number},{number},{e['t']},{e['x']},{e['y']},{2 * e['p'] - 1}" for e in recording(number)]
    path.write_text("\n".join(lines) + "\n")
    workload = mimdsim.from_events(path, path, sensor=SENSOR, out=tmp_path / "mine")
    assert (spikes_of(workload, 2) == frame_of(recording(2), 20)).all()
    assert mimdsim.load_workload(tmp_path / "mine" / "events.toml").data.classes == 3


def test_nothing_is_dropped_and_it_runs() -> None:
    given = [(recording(number, 400), number % 2) for number in range(8)]
    workload = mimdsim.from_events(
        given, given, sensor=SENSOR, changes={"network.hidden": [8], "training.epochs": 1, "training.batch": 4}
    )
    result = mimdsim.run(workload, "bow")
    assert result.cycles > 0
    dense = np.stack([frame_of(recording(number, 400), 20) for number in range(8)])
    assert workload.data.input_capacity == dense.sum(axis=2).max()


@pytest.mark.parametrize(
    ("samples", "options", "said"),
    [
        ([(recording(0), 0)], {}, "say what recorded: sensor=(width, height, polarities)"),
        ([], {"sensor": SENSOR}, "there are no samples to train on"),
        (7, {"sensor": SENSOR}, "samples are int, which holds no pairs"),
        ([recording(0)], {"sensor": SENSOR}, "sample 0 is ndarray, not a pair"),
        ([(recording(0), 0.5)], {"sensor": SENSOR}, "its label is 0.5; whole numbers from 0 are needed"),
        ([(recording(0), -1)], {"sensor": SENSOR}, "label -1 is not from 0"),
        ([(recording(0), [0, 1])], {"sensor": SENSOR}, "columns of events have one label, here are 2"),
        ([(recording(0, p=3), 0)], {"sensor": SENSOR}, "polarities are [3], not 0 and 1 or -1 and 1"),
        ([(recording(0), 0)], {"sensor": (4, 3, 1)}, "has two polarities, and sensor says one"),
        ([(recording(0, t=-5), 0)], {"sensor": SENSOR}, "times must be finite, count from 0"),
        ([({"t": [0.5], "x": [1], "y": [1]}, 0)], {"sensor": SENSOR}, "times are float64, whose unit nothing says"),
        ([({"t": [1], "x": [1.5], "y": [1]}, 0)], {"sensor": SENSOR}, "column 'x': not whole numbers"),
        ([({"t": [1], "x": [np.nan], "y": [1]}, 0)], {"sensor": SENSOR}, "column 'x': not whole numbers"),
        ([({"t": [1, 2], "x": [1], "y": [1]}, 0)], {"sensor": SENSOR}, "column 'x' has 1 entries, t has 2"),
        ([({"when": [1]}, 0)], {"sensor": SENSOR}, "has columns when; t and x are needed"),
        ([(np.ones((4, 3)) * 0.5, 0)], {}, "an array of spikes holds 0 and 1; this holds 0.5"),
        ([(np.full((4, 3), np.nan), 0)], {}, "an array of spikes holds 0 and 1"),
        ([(np.ones(4), 0)], {}, "spikes have the shape [4]; time and inputs are needed"),
        ([(np.ones((2, 4, 3)), [0, 1, 1])], {"time_axis": 1}, "2 samples and 3 labels"),
        ([("text", 0)], {}, "neither columns nor an array of spikes"),
        ([(recording(0), 0)], {"sensor": SENSOR, "time_unit": "h"}, "time_unit 'h' is none of us, ms, s"),
        ([(recording(0), 0)], {"sensor": "abc"}, "sensor is 'abc'; give (width, height, polarities)"),
        ([(recording(0), 0)], {"sensor": (4, np.nan, 2)}, "give (width, height, polarities)"),
        ([(recording(0), 0)], {"sensor": SENSOR, "bin_seconds": np.inf}, "bin_seconds inf is no width of a timestep"),
        ([(recording(0), 0)], {"sensor": SENSOR, "bin_seconds": np.nan}, "bin_seconds nan is no width of a timestep"),
        ([(recording(0, x=7), 0)], {"sensor": SENSOR}, "(sample 0): 7 is outside 0 to 3"),
        ([({"t": [1], "unit": [9]}, 0)], {"inputs": 4}, "(sample 0): 9 is outside 0 to 3"),
    ],
)
def test_what_is_not_understood_is_refused(samples: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(MimdsimError) as refusal:
        mimdsim.from_events(samples, **options)
    assert said in str(refusal.value)


def test_a_sample_of_empty_lists_is_silent() -> None:
    samples = [({"t": [], "unit": []}, 0), ({"t": [1], "unit": [2]}, 1)] * 8
    workload = mimdsim.from_events(samples, inputs=4)
    assert (spikes_of(workload).sum(), spikes_of(workload, 1).sum()) == (0, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("label,t,x\n0,1,2\n", "has no column 'sample'"),
        ("sample,label,t,x,y,p\n0,0,1,2,zwei,1\n", "events: could not convert string 'zwei'"),
        ("sample,label,t,x,y,p\n0,0,1,2\n", "has 6 columns in its header and 4 below"),
        ("sample,label,t,x,y,p\n0,0,1,2,1,1\n0,1,1,2,1,1\n", "sample 0 has more than one label"),
        ("sample,label,t,x,y,p\n", "there are no samples"),
        ("", "has no column 'sample'"),
    ],
)
def test_a_csv_file_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "events.csv"
    path.write_text(text)
    with pytest.raises(MimdsimError) as refusal:
        mimdsim.from_events(path, sensor=SENSOR)
    assert said in str(refusal.value)
