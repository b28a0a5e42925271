"""What no draw exercises is said, and drawn for."""

from __future__ import annotations

from typing import Any

import numpy as np
from own_codelets import checked


def test_a_branch_that_no_draw_meets_is_said() -> None:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = x
        if x[0] > 1e9:
            y[:] = 0

    said = str(checked(compute))
    assert "never exercised: test_exercised.py, line" in said
    assert "(y[:] = 0) never ran" in said


def test_a_comparison_that_never_holds_is_said_wherever_it_is() -> None:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = np.where(2 * x + 1 > 1e9, 0, x)

    said = str(checked(compute))
    assert "0 of 320 comparisons in test_exercised.py, line" in said
    assert "held" in said


def test_more_is_drawn_until_all_is_met() -> None:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = np.where(x > 1000, x, x)
        if x.sum() > 150:
            y[:] = x

    found = checked(compute)
    assert found.passed
    assert "and 3 further ones" in str(found)
    assert "never exercised" not in str(found)


def test_what_goes_wrong_in_further_draws_is_found() -> None:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = np.minimum(x, 5000)

    found = checked(compute)
    assert not found.passed
    assert "(further inputs 3)" in str(found)


def test_halves_that_overflow_are_said() -> None:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = (x * np.float16(2)) * np.float16(0.5)

    found = checked(compute, dtype="float16")
    assert found.passed, found
    assert "halves overflow with inputs up to" in str(found)
