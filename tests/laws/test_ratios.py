"""The interval of a ratio of two times that rest on the same costs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimdsim.base.checksummed import write_sealed_json
from mimdsim.base.errors import DataFileError
from mimdsim.profile import UncertainSeconds, ratio
from mimdsim.studies.results import POINT_RESULTS, table_lines, with_ratios
from mimdsim.studies.store import load_rows

Parts = list[tuple[float, float]]  # seconds, and by which share of them they may be off
part = st.tuples(st.floats(0.01, 100), st.floats(0, 0.9))


def doubted(parts: Parts, first: int = 0) -> tuple[UncertainSeconds, ...]:
    return tuple(
        UncertainSeconds(source=f"{first + index}", seconds=seconds, half_width=seconds * off)
        for index, (seconds, off) in enumerate(parts)
    )


def by_trying(ours: tuple[UncertainSeconds, ...], theirs: tuple[UncertainSeconds, ...]) -> tuple[float, float]:
    """Every source at either end of its bounds, in all combinations."""
    sources = sorted({one.source for one in (*ours, *theirs)})
    ratios = []
    for ends in itertools.product((-1, 1), repeat=len(sources)):
        end = dict(zip(sources, ends, strict=True))
        times = [sum(one.seconds + end[one.source] * one.half_width for one in parts) for parts in (ours, theirs)]
        ratios.append(times[0] / times[1])
    return min(ratios), max(ratios)


@given(st.lists(part, min_size=1, max_size=5), st.lists(part, min_size=1, max_size=5), st.integers(0, 5))
def test_the_interval_is_that_of_the_worst_combination(ours: Parts, theirs: Parts, apart: int) -> None:
    one, other = doubted(ours), doubted(theirs, first=apart)
    assert interval(one, other) == pytest.approx(by_trying(one, other))


@given(st.lists(part, min_size=1, max_size=8), st.floats(0.1, 10))
def test_a_clock_alone_leaves_no_doubt_about_the_ratio(parts: Parts, times: float) -> None:
    slower = [(seconds * times, off) for seconds, off in parts]
    assert interval(doubted(slower), doubted(parts)) == pytest.approx((times, times))


def test_times_that_share_nothing_have_the_outermost_corners() -> None:
    one, other = doubted([(2.0, 0.5)]), doubted([(1.0, 0.25)], first=1)
    assert interval(one, other) == pytest.approx((1.0 / 1.25, 3.0 / 0.75))


def test_times_that_may_be_none_have_no_bound() -> None:
    one, other = doubted([(2.0, 0.5)]), doubted([(1.0, 1.0)], first=1)
    assert interval(one, other) == (0.5, float("inf"))
    assert interval(other, one) == (0.0, pytest.approx(2.0))


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
        (2.0, pytest.approx(2.5 / 1.5, abs=1e-6), pytest.approx(5.5 / 2.5, abs=1e-6)),
    ]
    lines = table_lines(rows, [])
    assert "times the first" in lines[0]
    assert "2 (1.67-2.2)" in lines[3]


def test_a_point_without_readable_sources_is_refused(tmp_path: Path) -> None:
    file, key = tmp_path / "point.json", "0" * 64
    write_sealed_json(file, {"rows": {key: row(2.0, [["a cost", 1.0]]) | {"digest": key}}})
    with pytest.raises(DataFileError, match=r"column 'seconds_by_source' is .*; delete it"):
        load_rows(file)
