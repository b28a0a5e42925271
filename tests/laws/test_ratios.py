"""The interval of a ratio of two times that rest on the same costs."""

from __future__ import annotations

import math
from math import exp
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.checksummed import write_sealed_json
from mimdsim.base.errors import DataFileError
from mimdsim.profile import UncertainSeconds, independent_ratio, ratio
from mimdsim.studies.results import POINT_RESULTS, table_lines, with_ratios
from mimdsim.studies.store import load_rows

Parts = list[tuple[float, float]]  # seconds, and by which share of them they may be off
part = st.tuples(st.floats(0.01, 100), st.floats(0, 0.9))


def doubted(parts: Parts, first: int = 0) -> tuple[UncertainSeconds, ...]:
    return tuple(
        UncertainSeconds(source=f"{first + index}", seconds=seconds, half_width=seconds * off)
        for index, (seconds, off) in enumerate(parts)
    )


def by_drawing(ours: tuple[UncertainSeconds, ...], theirs: tuple[UncertainSeconds, ...]) -> tuple[float, float]:
    """What nine tenths of ratios lie between where every source draws one normal number for both times."""
    rng, logarithm = np.random.default_rng(0), np.zeros(200_000)
    for source in sorted({one.source for one in (*ours, *theirs)}):
        drawn = rng.normal(0, 1 / NormalDist().inv_cdf(0.95), len(logarithm))
        for sign, parts in ((1, ours), (-1, theirs)):
            whole = sum(one.seconds for one in parts)
            logarithm += sign * drawn * sum(one.half_width for one in parts if one.source == source) / whole
    low, high = np.quantile(logarithm, [0.05, 0.95])
    middle = sum(one.seconds for one in ours) / sum(one.seconds for one in theirs)
    return middle * np.exp(low), middle * np.exp(high)


@settings(max_examples=40)
@given(st.lists(part, min_size=1, max_size=5), st.lists(part, min_size=1, max_size=5), st.integers(0, 5))
def test_the_interval_is_that_of_independent_sources(ours: Parts, theirs: Parts, apart: int) -> None:
    one, other = doubted(ours), doubted(theirs, first=apart)
    assert interval(one, other) == pytest.approx(by_drawing(one, other), rel=0.02)


@given(st.lists(part, min_size=1, max_size=8), st.floats(0.1, 10))
def test_a_clock_alone_leaves_no_doubt_about_the_ratio(parts: Parts, times: float) -> None:
    slower = [(seconds * times, off) for seconds, off in parts]
    assert interval(doubted(slower), doubted(parts)) == pytest.approx((times, times))


def test_times_that_share_nothing_add_as_squares() -> None:
    one, other = doubted([(2.0, 0.3)]), doubted([(1.0, 0.4)], first=1)
    assert interval(one, other) == pytest.approx((2 / exp(0.5), 2 * exp(0.5)))
    alone = independent_ratio((2.0, 2 / exp(0.3), 2 * exp(0.6)), (1.0, 1 / exp(0.8), exp(0.4)))
    assert (alone.low, alone.high) == pytest.approx((2 / exp(0.5), 2 * exp(1.0)))


def test_no_time_has_no_ratio() -> None:
    one, nothing = doubted([(2.0, 0.5)]), doubted([(0.0, 0.0)], first=1)
    assert interval(one, nothing) == (math.inf, math.inf)
    assert interval(nothing, one) == interval(nothing, nothing) == (1.0, 1.0)


def interval(ours: tuple[UncertainSeconds, ...], theirs: tuple[UncertainSeconds, ...]) -> tuple[float, float]:
    times = ratio(ours, theirs)
    assert times.low <= times.middle <= times.high
    return times.low, times.high


def row(ms: float | None, parts: list[list[object]] | None) -> dict[str, object]:
    return dict.fromkeys(POINT_RESULTS, 1) | {
        "ms_per_training_step": ms,
        "ms_low": ms and ms / 2,
        "ms_high": ms and ms * 2,
        "seconds_by_source": parts,
        "note": "",
    }


def test_points_are_held_against_the_first_that_has_a_time() -> None:
    shared, own = ["a cost", 1.0, 0.5], ["a cost", 3.0, 1.5]
    rows = with_ratios([row(None, None), row(2.0, [shared, ["another", 1.0, 0.0]]), row(4.0, [own, ["another", 1, 0]])])
    assert [(one["ratio"], one["ratio_low"], one["ratio_high"]) for one in rows] == [
        (None, None, None),
        (1.0, 1.0, 1.0),
        (2.0, pytest.approx(2 / exp(1.5 / 4 - 0.5 / 2), abs=1e-6), pytest.approx(2 * exp(1.5 / 4 - 0.5 / 2), abs=1e-6)),
    ]
    lines = table_lines(rows, [])
    assert "times the first" in lines[0]
    assert "2 (1.76-2.27)" in lines[3]


def test_a_point_without_readable_sources_is_refused(tmp_path: Path) -> None:
    file, key = tmp_path / "point.json", "0" * 64
    write_sealed_json(file, {"rows": {key: row(2.0, [["a cost", 1.0]]) | {"digest": key}}})
    with pytest.raises(DataFileError, match=r"column 'seconds_by_source' is .*; delete it"):
        load_rows(file)
