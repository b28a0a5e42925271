"""Kinds of question: the first sentence answers the question, from points whose answer is known in closed form."""

from __future__ import annotations

import re
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_study_answer import lines_of, row, studied

from mimdsim.base.errors import DescriptionError
from mimdsim.studies import list_studies, make_study, read_study, write_study
from mimdsim.studies.answer_text import answer_lines
from mimdsim.studies.metrics import Row
from mimdsim.studies.page_data import page_of, write_report
from mimdsim.studies.pareto import rank
from mimdsim.studies.questions import KINDS
from mimdsim.studies.questions.crossover import curves_of
from mimdsim.studies.questions.how_much import fit_of
from mimdsim.studies.results import is_property

ACTIVITY, SPIKES, SRAM = "network.activity", "network.spikes", "tile.sram_bytes"


def test_every_study_that_comes_with_mimdsim_names_its_kind() -> None:
    assert {name: read_study(name).question_kind for name in list_studies()} == {
        "exchange-or-compute": "how-much",
        "fabric": "which-of",
        "ids-or-dense": "crossover",
        "recurrent-or-not": "where-wins",
        "sram-per-tile": "least-that-fits",
        "tiles-at-equal-area": "which-of",
        "when-a-gpu-wins": "where-wins",
    }


def test_a_kind_that_is_unknown_or_lacks_something_is_refused_at_once(tmp_path: Path) -> None:
    """And a study with a kind is read back from its file."""
    for wrong, said in (
        ({"question_kind": "crosover"}, "no kind 'crosover'.*crossover.*known: crossover, how-much, least-that-fits"),
        ({"question_kind": "crossover"}, 'question_kind = "crossover" needs an axis of numbers'),
        ({"question_kind": "crossover", "axes": {"chip.tiles": (1, 2)}}, "needs two sides: an axis of names"),
        ({"question_kind": "sensitivity"}, 'needs sampling.kind = "sensitivity"'),
        ({"question_kind": "least-that-fits", "axes": {SPIKES: ("sparse", "dense")}}, "needs an axis of numbers"),
    ):
        with pytest.raises(DescriptionError, match=said):
            make_study("a test", **({"workloads": ["digits"]} | wrong))
    axes = {ACTIVITY: (0.1, 0.2), SPIKES: ("sparse", "dense")}
    one = make_study("t", workloads=["digits"], question_kind="crossover", practical_difference=0.1, axes=axes)
    write_study(one, tmp_path / "s.toml")
    assert read_study(tmp_path / "s.toml") == one


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        (ACTIVITY, True), ("network.hidden", True), ("network.recurrence", True), ("data.timesteps", True),
        ("training.batch", True), ("seed", True), (SPIKES, False), ("network.capacity", False),
        ("training.learning_rate", False), ("mapping.split", False), ("chip.tiles", False), (SRAM, False),
    ],
)  # fmt: skip
def test_what_is_asked_of_a_machine_and_what_is_chosen(field: str, asked: bool) -> None:
    assert is_property(field) == asked


# no practical difference


def test_what_differs_little_is_no_best() -> None:
    rows = [row({"x": (ms, 0.1)}) for ms in (1.0984, 1.0979, 2.0)]
    first, *said = lines_of(*rows).splitlines()
    assert first == "Up to chip.tiles = 200, it makes no practical difference (under 2 %) in time."
    assert said[0] == (
        "No practical difference (under 2 %) in time between the best 2 of 3 points: chip.tiles = 200, 100; the "
        "next, chip.tiles = 300, has 1.82 times (1.75 to 1.90) its time, worse with probability over 99.9 %."
    )
    assert said[1] == "At the first of them: time 1.098 ms (0.9979 to 1.198)."
    rows = [row({"x": (ms, 0.1)}) for ms in (2.0, 1.0979, 1.0984, 1.09)]
    assert lines_of(*rows).startswith("From chip.tiles = 200 on, it makes no practical difference (under 2 %) in time.")
    assert "beyond may be better" not in lines_of(*rows)
    rows = [row({"x": (ms, 0.1)}) for ms in (1.0984, 1.0979, 2.0)]
    assert lines_of(*rows, practical_difference=0.0001).startswith("Best in time of 3 points: chip.tiles = 200.")
    rows = [
        row({"x": (1.0 + (at // 2), 0.1)}, **{"tile.issue_cycles": at % 2, "chip.tiles": at // 2}) for at in range(4)
    ]
    said = lines_of(*rows, axes={"chip.tiles": (0, 1), "tile.issue_cycles": (0, 1)}).splitlines()
    assert said[0] == (
        "Best in time of 4 points: chip.tiles = 0, with no practical difference (under 2 %) between 2 points: "
        "tile.issue_cycles = 0 cycles, 1 cycle; the next, chip.tiles = 1, tile.issue_cycles = 0 cycles, has 2.00 "
        "times (1.90 to 2.10) its time, worse with probability over 99.9 %."
    )
    table = said[said.index("Each value at the best of the other fields:") :]
    line = next(line for line in table if line.split()[:2] == ["chip.tiles", "1"])
    assert line.endswith("2.00 times (1.90 to 2.10)")  # 5 % and 10 % of doubt in one source leave 5 % of their ratio


def test_a_property_of_the_workload_is_never_ranked() -> None:
    axes = {ACTIVITY: (0.01, 0.1)}
    rows = [row({"x": (100 * at, 0.1)}, **{ACTIVITY: at}) for at in (0.01, 0.1)]
    said = lines_of(*rows, axes=axes)
    assert said.startswith(f"Nothing is ranked: no two points have the same {ACTIVITY}, which belongs to the workload")
    assert "Best" not in said
    (what,) = (column for column in page_of(studied(rows, axes=axes), "").columns if column.name == "what")
    assert what.values == ["kept", "kept"]
    rows = both_ways(lambda at: 100 * at, lambda at: 4.0, (0.01, 0.02, 0.2))
    said = lines_of(*rows, axes={ACTIVITY: (0.01, 0.02, 0.2), SPIKES: ("sparse", "dense")}).splitlines()
    assert said[0] == (
        f"Best in time at each {ACTIVITY}, which belongs to the workload and is no choice: "
        f"{SPIKES} = sparse (0.01 and 0.02); {SPIKES} = dense (0.2); the least certain of these with "
        "probability over 99.9 %."
    )
    assert "4.00 times" in next(line for line in said if line.split()[:1] == ["0.01"])
    made = studied(rows, axes={ACTIVITY: (0.01, 0.02, 0.2), SPIKES: ("sparse", "dense")})
    assert not page_of(made, "").sections[0].figures  # which would rank workloads
    ranking = rank(made)
    assert ranking.best_p.tolist() == [1, 0, 1, 0, 0, 1]
    assert ranking.front_p.tolist() == ranking.best_p.tolist()


def test_what_does_not_fit_is_no_part_of_a_comparison(tmp_path: Path) -> None:
    rows = [row({"x": (ms, 0.1)}) for ms in (1.0, 1.0, 3.0)]
    rows[0] |= {"fits": False, "peak_bytes": 300}
    text = "\n".join(answer_lines(studied(rows)))
    assert "= chip.tiles from 100 to 200" not in text
    assert "Without the memory of a tile" not in text  # it would be as good, not better
    page = write_report(studied(rows), tmp_path)[0].read_text(encoding="utf-8")
    assert "1 point without this metric" in page  # of the figure of each field's effect


# crossover


def both_ways(sparse: Any, dense: Any, values: tuple[float, ...], off: float = 0.0, **more: Any) -> list[Row]:
    """Times of lists and of dense rows over the activity; a doubt of the lists alone by a share of them."""
    sides = (("sparse", sparse, off), ("dense", dense, 0.0))
    return [
        row({f"{kind} costs": (time(at), doubt * time(at))}, **{ACTIVITY: at, SPIKES: kind}, **more)
        for at in values
        for kind, time, doubt in sides
    ]


CROSSOVER: dict[str, Any] = {"question_kind": "crossover", "axes": {ACTIVITY: (0.1, 0.2), SPIKES: ("sparse", "dense")}}


def test_a_crossover_of_power_laws_is_exact() -> None:
    """Lists take 100 a, dense rows 4: equal at 0.04; lists in doubt by 10 % move it by 10 %."""
    rows = both_ways(lambda at: 100 * at, lambda at: 4.0, (0.01, 0.02, 0.05, 0.1), off=0.1)
    made = studied(rows, **CROSSOVER)
    (curve,) = curves_of(rank(made))
    (found,) = curve.crossings
    assert found.value == pytest.approx((0.04, 0.04 * exp(-0.1), 0.04 * exp(0.1)), rel=0.005)
    assert found.between == (0.02, 0.05)
    assert found.alike == pytest.approx((0.04 * 0.98, 0.04 * 1.02), rel=0.001)
    said = list(answer_lines(made))
    assert said[0] == (
        f"From {ACTIVITY} = 0.04 (0.0362 to 0.0442) on, {SPIKES} = dense is faster than sparse: "
        f"4.00 times (3.62 to 4.42) at 0.01 for sparse and 2.50 times (2.26 to 2.76) at 0.1 for "
        "dense."
    )
    assert "best" not in said[0].lower()
    assert f"- Nothing is known between {ACTIVITY} = 0.02 and 0.05: a value there is more certain." in said


@given(st.floats(0.002, 0.9), st.floats(0.2, 3), st.booleans())
def test_the_crossover_of_any_power_laws_and_either_direction(at: float, power: float, falls: bool) -> None:
    sign = 1 if falls else -1
    rows = both_ways(lambda x: (x / at) ** (sign * power), lambda x: 1.0, (0.001, 0.01, 0.1, 1.0))
    (curve,) = curves_of(rank(studied(rows, **CROSSOVER)))
    (found,) = curve.crossings
    assert found.value == pytest.approx((at, at, at), rel=1e-4)
    assert found.better == ("dense" if falls else "sparse")


def test_a_crossover_that_draws_move_out_of_sight_or_that_is_none() -> None:
    rows = both_ways(lambda at: 100 * at, lambda at: 4.0, (0.03, 0.05), off=0.5)
    said = lines_of(*rows, **CROSSOVER)
    assert "(below what was looked at to above what was looked at)" in said
    assert "Some draws have no crossover among the values looked at" in said
    rows = both_ways(lambda at: 100 * at, lambda at: 4.0, (0.05, 0.1))
    assert lines_of(*rows, **CROSSOVER).startswith(
        f"{SPIKES} = dense is faster than sparse at every {ACTIVITY} looked at: 1.25 times at 0.05, 2.50 times at 0.1."
    )
    rows[0]["fits"] = False
    rows[2]["fits"] = False
    assert lines_of(*rows, **CROSSOVER).startswith("No crossover is known: at no point do both sides have a result")


def test_curves_are_counted_for_each_pair_of_sides() -> None:
    """Three fabrics along one number: two pairs of a curve each, which has no name."""
    axes = {"exchange.hop_cycles": (1, 2), "chip.grid": ("mesh", "torus", "crossbar")}
    rows = [
        row({"compute": (seconds, 0.0)}, **{"exchange.hop_cycles": hops, "chip.grid": grid})
        for hops in (1, 2)
        for grid, seconds in (("mesh", 3.0), ("torus", 2.0), ("crossbar", 1.0))
    ]
    said = lines_of(*rows, question_kind="crossover", axes=axes).splitlines()
    for line, grid, times in zip(said, ("torus", "crossbar"), ("1.50", "3.00"), strict=False):
        start = f"chip.grid = {grid} is faster than mesh at every exchange.hop_cycles looked at: {times} times"
        assert line.startswith(start)


def test_curves_have_their_own_crossovers() -> None:
    axes = {ACTIVITY: (0.1, 0.2), SPIKES: ("sparse", "dense"), "chip.tiles": (1, 2, 4)}
    rows = [
        each
        for tiles in (1, 2, 40)
        for each in both_ways(lambda at, n=tiles: 100 * at * n, lambda at: 4.0, (0.01, 0.1), **{"chip.tiles": tiles})
    ]
    said = lines_of(*rows, question_kind="crossover", axes=axes).splitlines()
    assert said[0] == (
        f"The better of {SPIKES} = sparse and dense changes at {ACTIVITY} = 0.02 to 0.04, at another value on each of "
        "2 of 3 curves; the table has each with its interval."
    )
    assert said[1].startswith(f"{SPIKES} = dense is faster than sparse at every {ACTIVITY} looked at on 1 of 3")
    rows_of = [line.split() for line in said if line.split()[:2] == ["chip.tiles", "="]]
    assert [(line[2], line[6]) for line in rows_of] == [("1", "0.04"), ("2", "0.02"), ("40", "none")]


# where one side wins


def against(ratios: tuple[float, ...], **study: Any) -> str:
    """Tiles against a GPU over the activity, 1, 2, ...; ratios in doubt by a factor of 1.5."""
    rows = [
        row({"x": (1.0, 0.1)}, gpu_ratio=one, gpu_ratio_low=one / 1.5, gpu_ratio_high=1.5 * one, **{ACTIVITY: at})
        for at, one in enumerate(ratios, start=1)
    ]
    axes = {ACTIVITY: (1, 2)}
    return lines_of(*rows, question_kind="where-wins", metrics=("gpu_ratio",), gpus=["a100"], axes=axes, **study)


def test_a_side_that_wins_everywhere_is_the_sentence() -> None:
    said = against((0.25, 0.1, 0.02)).splitlines()
    assert said[0] == (
        "a100 is faster than bow in all 3 points that fit, by 4.00 times (2.67 to 6.01) to 50.0 times (33.3 to 75.1)."
    )
    assert said[1] == f"bow comes nearest at {ACTIVITY} = 1."
    assert against((3.0,)).startswith(
        "bow is faster than a100 in the one point that fits, by 3.00 times (2.00 to 4.50)."
    )
    assert against((1.01, 0.99)).startswith("No practical difference (under 2 %) between bow and a100 in all 2 points")


def test_the_share_of_the_points_and_the_border() -> None:
    said = against((4.0, 2.0, 1.01, 0.8, 0.5, 0.25)).splitlines()
    assert said[0].startswith("bow is faster than a100 in 2 of 6 points, spread evenly (33 %, 33 % to 67 % in 90% of ")
    assert re.search(r"by up to 4\.00 times \(.*\); a100 in 3, by up to 4\.00 times \(.*\); no practical", said[0])
    assert said[1] == (
        f"The border that parts them best is {ACTIVITY} between 2 and 4, bow below it: it puts 5 of 5 points on their "
        "side."
    )
    assert f"{ACTIVITY} between 2 and 3, bow above it: it puts 5 of 5" in against((0.1, 0.2, 5.0, 6.0, 7.0))
    assert "No value of a single number parts them." in against((0.1, 5.0, 0.1, 0.1, 0.1))


def test_a_few_points_are_named() -> None:
    assert against((1.2, 0.5, 1.0)).startswith(
        f"bow is faster at {ACTIVITY} = 1, by 1.20 times (0.799 to 1.80), with probability 77 %; "
        f"a100 is faster at {ACTIVITY} = 2, by 2.00 times (1.33 to 3.00), with probability 99.8 %; "
        f"no practical difference (under 2 %) at {ACTIVITY} = 3."
    )


# the least that fits


def test_the_least_that_fits_and_what_it_costs() -> None:
    rows = [row({"x": (ms, 0.1)}, **{SRAM: 1024 * size}) for size, ms in ((64, 9), (128, 3), (256, 2.02), (512, 2))]
    rows[0] |= {"fits": False}
    question = {"question_kind": "least-that-fits", "axes": {SRAM: (1, 2)}}
    said = lines_of(*rows, **question)
    assert said.startswith(
        f"{SRAM} = 128 KiB is the least that fits (64 KiB: does not fit), with 100 B needed on the fullest tile, at "
        "1.50 times (1.48 to 1.53) the time of the best, 512 KiB; from 256 KiB on, more makes no practical difference "
        "(under 2 %)."
    )
    assert "- The least that fits lies between 64 KiB and 128 KiB, two values that were looked at." in said
    limited = lines_of(*[one | {"fits": True} for one in rows], **question, constraints=("max time 2.5 ms",))
    assert f"{SRAM} = 256 KiB is the least that fits (128 KiB: beyond max time 2.5 ms), with 100 B " in limited
    assert "the least that was looked at, so less may fit too" in lines_of(*rows[1:], **question)
    rising = [one | {"fits": True} for one in rows[1:3]]
    assert "the best, 256 KiB, the most that was looked at, beyond which more may gain more." in lines_of(
        *rising, **question
    )
    none = lines_of(*[one | {"fits": False} for one in rows], **question)
    assert none.startswith("No point fits and keeps to all constraints")  # their code does not


def test_the_least_of_each_curve_and_of_each_workload() -> None:
    rows = [
        row({"x": (1.0, 0.1)}, name, fits=size >= need * (2 if recurrent == "all_to_all" else 1),
            **{SRAM: 1024 * size, "network.recurrence": recurrent})
        for recurrent in ("none", "all_to_all")
        for size in (64, 128, 256)
        for name, need in (("digits", 64), ("other", 128))
    ]  # fmt: skip
    said = lines_of(
        *rows, workloads=["digits", "other"], question_kind="least-that-fits",
        axes={SRAM: (1, 2), "network.recurrence": ("none", "all_to_all")},
    ).splitlines()  # fmt: skip
    assert said[0].startswith(f"{SRAM} = 128 KiB is the least that fits where network.recurrence = none (64 KiB: does")
    assert said[1].startswith(f"{SRAM} = 256 KiB is the least that fits where network.recurrence = all_to_all (128 KiB")
    assert "does not fit (other)" in said[0]
    assert [line.split()[2:5] for line in said if line.endswith("KiB") and "=" in line] == [
        ["none", "digits", "64"],
        ["none", "other", "128"],
        ["all_to_all", "digits", "128"],
        ["all_to_all", "other", "256"],
    ]


# how much


def test_the_effect_of_doubling_is_that_of_the_law() -> None:
    """Time as x**-1 * sqrt(y) * 1.3 if z: half, 1.41 times, and a name that is no number."""
    rows = [
        row(
            {"c": (8 / x * sqrt(y) * (1.3 if z == "dense" else 1), 0)},
            sync_cycles=0.05,
            **{"chip.tiles": x, "tile.beta": y, SPIKES: z},
        )
        for x in (1, 2, 4)
        for y in (1, 3)
        for z in ("sparse", "dense")
    ]
    axes = {"chip.tiles": (1, 2), "tile.beta": (1, 3), SPIKES: ("sparse", "dense")}
    made = studied(rows, question_kind="how-much", axes=axes)
    found = fit_of(rank(made))
    assert found is not None
    assert [each.field for each in found.doublings] == ["chip.tiles", "tile.beta"]
    assert found.doublings[0].factor == pytest.approx((0.5, 0.5, 0.5))
    assert found.doublings[1].factor == pytest.approx((sqrt(2),) * 3)
    assert found.unexplained == pytest.approx(0, abs=1e-9)
    said = list(answer_lines(made))
    assert said[0] == (
        "Doubling chip.tiles changes the time most, to 0.500 times (0.500 to 0.500); "
        "then tile.beta 1.41 times (1.41 to 1.41)."
    )
    (parts,) = (line for line in said if line.startswith("Of the cycles"))
    assert "compute 49 %" in parts
    assert "sync 2.4 % (2.4 to 2.4)" in parts


def test_a_clock_is_said_to_scale_all_parts() -> None:
    rows = [row({"c": (1 / x, 0)}, **{"chip.clock_hz": x}) for x in (1e9, 2e9, 4e9)]
    said = lines_of(*rows, question_kind="how-much", axes={"chip.clock_hz": (1e9, 2e9)})
    assert "chip.clock_hz scales compute, exchange and sync alike: what of them limits, their shares say." in said


def test_a_range_from_zero_is_doubled_up_to_its_largest_value_and_doubts_widen_it() -> None:
    """exp(x / 6) doubled from 3 to 6 is exp(1/2). A doubt that grows with x moves the slope by its share."""
    rows = [row({"c": (exp(at / 6), 0.05 * at * exp(at / 6))}, **{"exchange.fixed_cycles": at}) for at in range(7)]
    axes = {"exchange.fixed_cycles": (0, 6)}
    made = studied(rows, question_kind="how-much", axes=axes)
    found = fit_of(rank(made))
    assert found is not None
    assert found.doublings[0].doubled == "3 cycles to 6 cycles"
    assert [log(end) for end in found.doublings[0].factor] == pytest.approx([0.5, 0.5 - 0.15, 0.5 + 0.15], abs=0.01)
    few = lines_of(*rows[:2], question_kind="how-much", axes=axes)
    assert few.startswith("Unknown: too few points")
    together = [one | {"sync.loop_cycles": 2 * one["exchange.fixed_cycles"]} for one in rows]
    both = lines_of(*together, question_kind="how-much", axes=axes | {"sync.loop_cycles": (0, 12)})
    assert "numbers that only move together; give more points" in both


@pytest.mark.slow
def test_the_page_of_each_kind_leads_with_its_first_sentence(tmp_path: Path) -> None:
    rows = both_ways(lambda at: 100 * at, lambda at: 4.0, (0.01, 0.02, 0.05, 0.1), off=0.1)
    axes = {ACTIVITY: (0.1, 0.2), SPIKES: ("sparse", "dense")}
    for name, kind in KINDS.items():
        if name == "sensitivity":
            continue
        made = studied(rows, question="From where on?", question_kind=name, axes=axes)
        first = kind.answer(rank(made))[0]
        assert list(answer_lines(made))[:3] == ["From where on?", "", first]
        text = write_report(made, tmp_path / name)[0].read_text(encoding="utf-8")
        assert text.index("<h1>From where on?") < text.index(first) < text.index("<h2")
        for shown in kind.tables(rank(made)):
            assert shown.caption in text
            assert all(len(line) == len(shown.headers) for line in shown.rows)
    assert np.isfinite(rank(made).middle).all()
