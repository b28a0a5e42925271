"""Intervals that residuals of published figures scale."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path

import pytest
from scripts import script

from mimdsim.base.residuals import RESIDUALS, WIDER, combined, interval, quantile, residuals_of
from mimdsim.profile import Doubt
from mimdsim.profile.records import half_width_cycles
from mimdsim.validation import Row
from mimdsim.validation.reference_table import around, within_bounds

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "references" / "silicon"


def test_the_score_that_nine_of_ten_stay_below() -> None:
    assert quantile([float(n) for n in range(1, 20)]) == 18  # of 19: the 18th, ceil(20 * 0.9)
    assert quantile([3.0, 1.0, 2.0]) == 3  # of few, the largest
    assert interval(2.0, 0.5, 2.0) == pytest.approx((2 / exp(1), 2 * exp(1)))
    assert combined((3.0, 4.0)) == 5


def test_doubts_with_a_common_source_add_plainly() -> None:
    made = [Doubt(name=f"codelet {name}", kind="assumed", cycles=10, half_width_cycles=3) for name in "ab"]
    assert half_width_cycles(made) == pytest.approx(18**0.5)
    assert half_width_cycles([replace(each, common="instructions of x") for each in made]) == 6


def row(published: float, **more: object) -> Row:
    fields = {"file": "made.csv", "name": "a figure", "published": published, "figures": "training step"}
    return Row(**(fields | more))  # type: ignore[arg-type]


def test_a_score_is_the_residual_over_what_sources_leave_open() -> None:
    factor = residuals_of("training step").factor
    ends = around(10.0, 0.3, 0.4)
    assert ends == pytest.approx(within_bounds(10.0, 10 / exp(0.5), 10 * exp(0.5)))
    wide = {"predicted": 10.0, "low": 10 / exp(0.5 * factor), "high": 10 * exp(0.25 * factor)}
    assert row(10 * exp(0.1), **wide).score == pytest.approx(0.1 / 0.25)
    assert row(10 / exp(0.1), **wide).score == pytest.approx(0.1 / 0.5)
    assert row(12.0, **wide, derived=True).score is None
    assert row(12.0, **wide, upper_bound=True).score is None
    assert row(12.0, **(wide | {"figures": ""})).score is None
    for published in (10 * exp(0.24 * factor), 10 * exp(0.26 * factor)):
        made = row(published, **wide)
        assert made.score is not None
        assert made.inside == (made.score <= factor)


def test_every_class_has_its_factor() -> None:
    assert set(RESIDUALS) == set(WIDER)
    assert all(each.factor > 0 and each.of in (name, WIDER[name]) for name, each in RESIDUALS.items())


def test_the_band_of_nine_in_ten() -> None:
    """Of ten: P(at most 6) is 1.3 %, P(at most 7) 7 %; P(at most 9) is 65 %."""
    residuals = script("benchmarks/residuals.py")
    assert residuals.band(10) == (7, 10)
