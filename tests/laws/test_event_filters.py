"""Noise removal and cropping: against plain loops, and refused where there are no pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import DescriptionError
from mimdsim.workload.data.events import Events, crop_centre, denoise, smaller_grid

Rows = list[tuple[int, int, int, int]]


def events(rows: Rows, width: int = 6, height: int = 4) -> Events:
    x, y, polarity, t = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Events(x=x, y=y, polarity=polarity, t_microseconds=t, width=width, height=height)


def rows_of(recording: Events) -> Rows:
    columns = (recording.x, recording.y, recording.polarity, recording.t_microseconds)
    return [tuple(row) for row in np.stack(columns, axis=1).tolist()]


def plainly_denoised(rows: Rows, window: int) -> Rows:
    """The rule as a scan over events in order of time that remembers when each pixel last fired."""
    last: dict[tuple[int, int], int] = {}
    kept = []
    for number in sorted(range(len(rows)), key=lambda number: rows[number][3]):
        x, y, _, t = rows[number]
        beside = ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1))
        if t < window or any(pixel in last and t - last[pixel] < window for pixel in beside):
            kept.append(number)
        last[x, y] = t
    return [rows[number] for number in sorted(kept)]


def test_an_event_needs_a_recent_neighbour() -> None:
    rows = [
        (0, 0, 0, 5),  # in the first window: kept
        (3, 2, 1, 100),  # alone: dropped, but supports the next
        (4, 2, 0, 109),  # 9 us after the pixel to its left, of the other polarity
        (4, 3, 0, 119),  # 10 us after the pixel above: too late
        (4, 3, 0, 120),  # the same pixel is no neighbour
        (3, 2, 0, 120),  # diagonal to (4, 3), and (4, 2) fired 11 us ago
        (4, 2, 1, 120),  # at the same time as (4, 3), later in the file
    ]
    assert rows_of(denoise(events(rows), 10e-6)) == [rows[0], rows[2], rows[6]]
    assert rows_of(denoise(events(rows), 0.0)) == rows
    assert denoise(events([]), 1.0).count == 0


def test_the_rim_has_no_neighbours_beyond() -> None:
    across = [(5, 0, 0, 1000), (0, 1, 0, 1001)]  # next to each other only in a flat numbering of pixels
    assert rows_of(denoise(events(across), 10e-6)) == []


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 1), st.integers(0, 200)), max_size=60),
    window=st.integers(1, 60),
)
def test_denoise_against_plain_loops(rows: Rows, window: int) -> None:
    assert rows_of(denoise(events(rows), window * 1e-6)) == plainly_denoised(rows, window)


def test_crop_keeps_the_middle() -> None:
    recording = events([(x, y, 0, 10 * x + y) for x in range(6) for y in range(4)])
    cropped = crop_centre(recording, 2)
    assert (cropped.width, cropped.height) == (2, 2)
    assert rows_of(cropped) == [(x - 2, y - 1, 0, 10 * x + y) for x in (2, 3) for y in (1, 2)]
    odd = crop_centre(recording, 3)  # one column more goes on the right, one line more below
    assert sorted(set(odd.t_microseconds.tolist())) == [10 * x + y for x in (1, 2, 3) for y in (0, 1, 2)]
    assert crop_centre(recording, 0) is recording


def test_a_crop_beyond_the_sensor_is_refused() -> None:
    assert smaller_grid("crop", 34, 34, 32) == (32, 32)
    with pytest.raises(DescriptionError, match=r"'data.crop' is 5, but the sensor has 6 x 4 pixels; give 0 to 4"):
        smaller_grid("crop", 6, 4, 5)
