"""Intervals that residuals of published figures scale."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest
from scripts import script

from mimdsim.base.residuals import RESIDUALS, WIDER, combined, interval, quantile, residuals_of
from mimdsim.machine import MimdMachine, load_machine, with_values
from mimdsim.machine.calibrated import uncertain_numbers
from mimdsim.pipeline import compile_workload, retime
from mimdsim.profile import Doubt
from mimdsim.profile.records import half_width_cycles
from mimdsim.validation import Row
from mimdsim.validation.reference_table import around, within_bounds
from mimdsim.workload import filled_activity, load_workload

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"data.timesteps": 3, "network.hidden": (8,), "network.capacity": (6, 4)}
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


def test_sources_of_waits_set_how_far_they_are_off() -> None:
    """The least certain of the numbers that set a wait, those that are 0 and those of other chips left out."""
    described = load_machine("tiny")
    assert isinstance(described, MimdMachine)
    numbers = uncertain_numbers(described)
    made = compile_workload(load_workload("digits", SMALL), described, must_fit=False)
    activity = filled_activity(made.network, 0.5)

    def kinds(**changed: str) -> dict[str, str]:
        sources = {f"{key.replace('__', '.')}": f"{kind}: here" for key, kind in changed.items()}
        values = {name: (numbers[name].value, source) for name, source in sources.items()}
        return {doubt.name: doubt.kind for doubt in retime(made, with_values(described, values), activity).doubts}

    assert kinds()["sync"] == "assumed"
    assert kinds(sync__internal_cycles="measured")["sync"] == "measured"  # one chip: none waits for others
    assert kinds(sync__loop_cycles="published")["loop control"] == "published"
    known = [name.replace(".", "__") for name in numbers if name.startswith("exchange.")]
    assert kinds(**dict.fromkeys(known, "measured"))["exchange on the chip, endpoint model"] == "derived"


def test_machines_of_one_core_share_its_doubts_whatever_they_are_called() -> None:
    workload = load_workload("digits", SMALL)

    def common(name: str, changes: dict[str, Any] | None = None) -> set[str]:
        machine = load_machine(name, changes)
        assert isinstance(machine, MimdMachine)
        made = compile_workload(workload, machine, must_fit=False)
        found = retime(made, machine, filled_activity(made.network, 0.5))
        return {doubt.common for doubt in found.doubts if doubt.name.startswith("codelet")}

    assert common("wormhole") == common("blackhole") != {""}
    assert common("wormhole", {"costs.core.add_cycles": 41.0}).isdisjoint(common("wormhole"))
    assert common("bow") == {""}
