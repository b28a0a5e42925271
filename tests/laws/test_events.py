"""Events become sorted, unique, bounded id lists per timestep."""

from __future__ import annotations

import event_lists
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.workload.data.events import (
    Events,
    bin_nanoseconds,
    duration_microseconds,
    pack_rows,
    smaller_grid,
)


def events(rows: list[tuple[int, int, int, int]], width: int = 6, height: int = 4) -> Events:
    x, y, polarity, t = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Events(x=x, y=y, polarity=polarity, t_microseconds=t, width=width, height=height)


def binned(recording: Events, **changes: object) -> tuple[np.ndarray, np.ndarray, int]:
    arguments = {"timesteps": 3, "capacity": 8, "rng": stream(0, "test"), **changes}
    return event_lists.binned(recording, **arguments)  # type: ignore[arg-type]


def test_flat_id_and_bin_edges() -> None:
    ids, counts, surplus = binned(
        events([(5, 3, 1, 0), (1, 2, 0, 999), (0, 0, 0, 1000), (2, 0, 1, 2999), (3, 3, 1, 3000), (1, 1, 1, -1)])
    )
    assert counts.tolist() == [2, 1, 1]
    assert ids[0, :2].tolist() == [1 + 6 * 2, 5 + 6 * 3 + 24]
    assert ids[1, 0] == 0
    assert ids[2, 0] == 2 + 24
    assert surplus == 0
    assert ids.dtype == counts.dtype == np.int32


def test_a_pixel_counts_once_a_bin() -> None:
    _, counts, surplus = binned(events([(1, 1, 0, 5), (1, 1, 0, 6), (1, 1, 1, 7)]), capacity=2)
    assert counts.tolist() == [2, 0, 0]
    assert surplus == 0


def test_bins_need_not_be_whole_microseconds() -> None:
    ids, counts, _ = binned(events([(0, 0, 0, 0), (1, 0, 0, 1), (2, 0, 0, 2), (3, 0, 0, 4)]), bin_seconds=1.5e-6)
    assert counts.tolist() == [2, 1, 1]  # 0 and 1 us, 2 us, 4 us (bins end at 1.5, 3 and 4.5 us)
    assert ids[2, 0] == 3


def test_grid_scales_by_floor() -> None:
    ids, counts, _ = binned(events([(5, 3, 1, 0), (2, 1, 0, 0), (3, 2, 0, 0)]), grid=2)
    assert ids[0, : counts[0]].tolist() == [0, 3, 3 + 4]


def test_surplus_is_counted_and_the_choice_is_fair() -> None:
    recording = events([(x, y, 0, 0) for x in range(6) for y in range(4)])
    seen = np.zeros(24)
    for trial in range(400):
        ids, counts, surplus = binned(recording, capacity=6, rng=stream(trial, "fair"))
        assert (counts[0], surplus) == (6, 18)
        assert (np.diff(ids[0]) > 0).all()
        seen[ids[0]] += 1
    # 400 draws of chance 1/4: mean 100, standard deviation 8.7; five deviations
    assert np.abs(seen - 100).max() < 45


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 1), st.integers(-10, 5000)), max_size=60
    ),
    capacity=st.integers(1, 12),
)
def test_against_plain_loops(rows: list[tuple[int, int, int, int]], capacity: int) -> None:
    wanted: list[set[int]] = [set(), set(), set()]
    for x, y, polarity, t in rows:
        if 0 <= t < 3000:
            wanted[t // 1000].add(x + 6 * y + 24 * polarity)
    ids, counts, surplus = binned(events(rows), capacity=capacity)
    assert counts.tolist() == [min(len(row), capacity) for row in wanted]
    assert surplus == sum(max(len(row) - capacity, 0) for row in wanted)
    for row, count, whole in zip(ids, counts, wanted, strict=True):
        chosen = row[:count].tolist()
        assert chosen == sorted(set(chosen))
        assert set(chosen) <= whole
        assert not row[count:].any()


def test_pack_rows_of_nothing() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    ids, counts, surplus = pack_rows(nothing, 5, row_count=2, capacity=3, rng=stream(0))
    assert (ids.shape, counts.tolist(), surplus) == ((2, 3), [0, 0], 0)


def test_columns_must_agree_and_stay_on_the_sensor() -> None:
    with pytest.raises(ValueError, match="x has values 6 to 6, outside 0 to 5"):
        events([(6, 0, 0, 0)])
    column = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="int32"):
        Events(x=column, y=column, polarity=column.astype(np.int32), t_microseconds=column, width=1, height=1)


def test_impossible_grids_and_bins_are_refused() -> None:
    with pytest.raises(DescriptionError, match=r"'data.grid' is 35, but the sensor has 34 x 34 pixels; give 0 to 34"):
        smaller_grid("grid", 34, 34, 35)
    for bad in (1e-12, float("inf"), float("nan"), 1e9):
        with pytest.raises(DescriptionError, match=r"'data.bin_seconds'"):
            bin_nanoseconds(bad)
    assert bin_nanoseconds(6e-3) == 6_000_000


def test_bins_and_spans_at_their_bounds() -> None:
    assert bin_nanoseconds(1e6) == 10**15
    assert bin_nanoseconds(1e-9) == 1
    assert bin_nanoseconds(1.5e-6) == 1_500
    for seconds in (1e6 + 0.5, 0.9e-9, float("nan"), float("inf")):
        with pytest.raises(DescriptionError, match=r"give 1e-9 to 1e\+06 seconds"):
            bin_nanoseconds(seconds)
    assert duration_microseconds(3, 1.5e-6) == 5  # 4.5 us, and the microsecond begun counts
    assert duration_microseconds(4, 1.5e-6) == 6
    assert duration_microseconds(10**6, 1e6) == 2**52  # as long as nanoseconds still fit
    assert smaller_grid("grid", 6, 4, 0) == (6, 4)
    assert smaller_grid("grid", 6, 4, 4) == (4, 4)
    with pytest.raises(DescriptionError, match="give 0 to 4"):
        smaller_grid("grid", 6, 4, 5)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ((6, 0, 0, 0), "x has values 0 to 6, outside 0 to 5"),
        ((0, 4, 0, 0), "y has values 0 to 4, outside 0 to 3"),
        ((0, 0, 2, 0), "polarity has values 0 to 2, outside 0 to 1"),
        ((-1, 0, 0, 0), "x has values -1 to 0, outside 0 to 5"),
    ],
)
def test_events_outside_their_sensor_are_refused(row: tuple[int, int, int, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        events([(0, 0, 0, 0), row])
    assert events([(5, 3, 1, 0), (0, 0, 0, 9)]).count == 2


def test_columns_that_disagree_are_refused() -> None:
    column = np.zeros(2, np.int64)
    usual = {"x": column, "y": column, "polarity": column, "t_microseconds": column}
    for name, other in (("y", column[:1]), ("t_microseconds", column.astype(np.int32)), ("x", column[:, None])):
        with pytest.raises(ValueError, match="not int64"):
            Events(**(usual | {name: other}), width=1, height=1)


def test_the_fullest_list_that_fits_is_kept_whole() -> None:
    keys = np.array([4, 9, 21, 23, 25])
    packed, counts, surplus = pack_rows(keys, 10, row_count=4, capacity=3, rng=stream(0, "packed"))
    assert packed.tolist() == [[4, 9, 0], [0, 0, 0], [1, 3, 5], [0, 0, 0]]
    assert (counts.tolist(), surplus) == ([2, 0, 3, 0], 0)
    packed, counts, surplus = pack_rows(keys, 10, row_count=3, capacity=2, rng=stream(0, "packed"))
    assert (packed[:2].tolist(), counts.tolist(), surplus) == ([[4, 9], [0, 0]], [2, 0, 2], 1)
    assert set(packed[2]) < {1, 3, 5}
