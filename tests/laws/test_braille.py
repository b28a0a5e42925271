"""Braille letters: pressures become level crossings exactly; a bad file is refused by entry and reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_file_writing import braille_arrays, write_events
from hypothesis import given
from hypothesis import strategies as st

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.rng import stream
from mimdsim.workload import load_workload
from mimdsim.workload.data import braille
from mimdsim.workload.data.dataset import input_shape, open_dataset
from mimdsim.workload.data.events import pack_rows
from mimdsim.workload.description.sections import Data

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "braille_taxel_1350.npz"


def data(path: Path | str = "", **changes: Any) -> Data:
    given = {"source": "braille", "path": str(path), "timesteps": 6, "input_capacity": 16, "levels": 63, **changes}
    return Data(**given)


def refused(action: Callable[[], object], text: str) -> None:
    with pytest.raises((DataFileError, DescriptionError)) as caught:
        action()
    assert text in str(caught.value)


def crossed(pressures: np.ndarray, levels: int, timesteps: int, capacity: int = 500) -> list[list[int]]:
    keys, inputs = braille.crossings(pressures, levels=levels), braille.inputs_of(levels)
    keys = keys[keys < timesteps * inputs]
    ids, counts, surplus = pack_rows(keys, inputs, row_count=timesteps, capacity=capacity, rng=stream(0))
    assert surplus == 0
    return [row[:count].tolist() for row, count in zip(ids, counts, strict=True)]


def test_crossings_by_hand() -> None:
    press = np.full((4, 12), 100)  # 63 levels: a band of four pressures, 100 is band 25
    press[1, 2] = 108  # up over levels 25 and 26
    press[2, 2] = 103  # down over 26 and 25, as 103 is band 25 again
    press[3, 0] = 99  # down over level 24
    on, off = 12 * 63, 0
    up, down = [on + 2 * 63 + 25, on + 2 * 63 + 26], [off + 2 * 63 + 25, off + 2 * 63 + 26]
    assert crossed(press, 63, 4) == [[], up, down, [off + 24]]
    assert crossed(press, 63, 2) == [[], up]
    assert crossed(press, 63, 5) == [[], up, down, [off + 24], []]


@given(
    rows=st.lists(st.lists(st.integers(0, 255), min_size=12, max_size=12), min_size=1, max_size=8),
    levels=st.integers(1, 255),
    timesteps=st.integers(1, 9),
)
def test_ups_and_downs_lead_from_the_first_to_the_last_pressure(
    rows: list[list[int]], levels: int, timesteps: int
) -> None:
    press = np.array(rows)
    spikes = crossed(press, levels, timesteps, capacity=12 * levels)
    band = press * (levels + 1) // 256
    last = min(len(rows), timesteps) - 1
    ups = np.zeros((2, 12), int)
    for t, row in enumerate(spikes):
        assert row == sorted(set(row))
        for flat in row:
            polarity, rest = divmod(flat, 12 * levels)
            ups[polarity, rest // levels] += 1
            assert t <= last
    assert np.array_equal(ups[1] - ups[0], band[last] - band[0])


def test_a_file_opens_into_balanced_halves(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", braille_arrays())
    train, test = open_dataset(data(path), 3)
    assert (train.samples, test.samples, train.inputs, train.classes) == (8, 2, 2 * 12 * 63, 27)
    assert np.bincount(train.labels).tolist() == [4, 4]
    # 200 to 210 and 220, four pressures a level: from band 50 to 52 and to 55
    for counts, label in zip(train.counts, train.labels, strict=True):
        up = 2 if label == 0 else 5
        assert counts.tolist() == [0, 0, up, up, 2, 2]
    again, _ = open_dataset(data(path), 3)
    assert again.ids.tobytes() == train.ids.tobytes()
    tight, _ = open_dataset(data(path, input_capacity=1, timesteps=3), 3)
    assert tight.surplus_events == (tight.labels == 0).sum() * 1 + (tight.labels == 1).sum() * 4
    packed = write_events(tmp_path / "b.npz", braille_arrays(), packed=True)
    assert open_dataset(data(packed), 3)[0].ids.tobytes() == train.ids.tobytes()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"taxel": None}, "has no array 'taxel', only 'offset', 'label'; expected is an .npz file with"),
        ({"taxel": np.zeros((60, 11), np.uint8)}, "'taxel' has the shape (60, 11); give (any number, 12)"),
        ({"taxel": np.zeros(720, np.uint8)}, "'taxel' has the shape (720,); give (any number, 12)"),
        ({"taxel": np.asfortranarray(np.zeros((60, 12), np.uint8))}, "'taxel' is stored column by column"),
        ({"taxel": np.full((60, 12), 256)}, "is outside 0 to 255"),
        ({"taxel": np.zeros((60, 12), np.float32)}, "'taxel' holds real numbers; give integers"),
        ({"offset": np.arange(0, 67, 6)}, "'offset' has 12 entries; 10 samples need 11"),
        ({"offset": np.arange(1, 62, 6)}, "'offset', entry 0: 1, but the first sample begins at row 0"),
        ({"offset": np.arange(0, 51, 5)}, "'offset' ends at row 50, but there are 60 rows"),
        ({"offset": np.array([0, 6, 5, 18, 24, 30, 36, 42, 48, 54, 60])}, "'offset', entry 2: 5 follows 6; not sorted"),
        ({"offset": np.array([0, 6, 6, 18, 24, 30, 36, 42, 48, 54, 60])}, "sample 1 has no row; leave it out"),
        ({"label": np.array([0, 1] * 4 + [0, 27])}, "'label', entry 9: 27 is outside 0 to 26"),
        ({"label": np.zeros((10, 1), int)}, "'label' has the shape (10, 1); give one dimension"),
        ({"label": np.zeros(0, int), "offset": np.zeros(1, int)}, "'label' has 0 entries, not one for each of 1 to"),
    ],
)
def test_rules_of_the_format(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    path = write_events(tmp_path / "a.npz", braille_arrays(**changes))
    refused(lambda: open_dataset(data(path), 0), text)
    refused(lambda: open_dataset(data(path), 0), "a.npz")


def test_rows_of_a_sample_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_events(tmp_path / "a.npz", braille_arrays())
    monkeypatch.setattr(braille, "MAX_ROWS", 5)
    refused(lambda: open_dataset(data(path), 0), "sample 0 has 6 rows, over 5")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"levels": 0}, "'data.levels' is 0; source 'braille' needs 1 to 255, for instance 63"),
        ({"path": ""}, "'data.path' must name an .npz file with the arrays 'taxel'"),
        ({"grid": 3}, "'data.grid' is 3, but Braille has taxels, not pixels"),
        ({"inputs": 12}, "'data.inputs' is fixed by source 'braille'; leave it out"),
        ({"source": "shd"}, "'data.levels' is for source 'braille', not for 'shd'; leave it out"),
    ],
)
def test_impossible_descriptions(changes: dict[str, Any], text: str) -> None:
    refused(lambda: open_dataset(data(**changes), 0), text)


def test_the_workload_knows_its_shape() -> None:
    workload = load_workload("braille")
    assert input_shape(workload.data) == (1512, 27)


@pytest.mark.skipif(not REAL.is_file(), reason="the recordings are not here")
def test_real_recordings() -> None:
    train, test = open_dataset(load_workload("braille", {"data.path": str(REAL)}).data, 1)
    assert (train.samples, test.samples, train.surplus_events) == (1080, 270, 0)
    assert np.bincount(train.labels).tolist() == [40] * 27
    assert train.activity == pytest.approx(0.00071, rel=0.05)
