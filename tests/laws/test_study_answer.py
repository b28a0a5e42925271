"""What is said of a study's points: probabilities from shared doubts, the answer in words, and the page."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from math import hypot, log
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimdsim.base.units import common_unit, show_bytes
from mimdsim.report.figures_studies import Judgement, Measure, draw_effects, draw_front, draw_ranking, steps_of
from mimdsim.report.figures_sweep import MAX_LINES, draw_sweep, evenly
from mimdsim.report.formatting import chance, field_value, field_values, quantity
from mimdsim.report.page import StudyColumn, packed_columns
from mimdsim.studies import StudyResult, make_study, table_lines
from mimdsim.studies.answer_text import answer_lines, short_answer
from mimdsim.studies.metrics import Row
from mimdsim.studies.page_data import doubts_table, write_report
from mimdsim.studies.pareto import Ranking, nondominated, rank
from mimdsim.studies.questions.sensitivity import how_estimated
from mimdsim.studies.results import POINT_RESULTS, with_ratios
from mimdsim.studies.sensitivity import Effect, Sensitivities, Sensitivity

CERTAIN = 0.999
Parts = dict[str, tuple[float, float]]  # milliseconds by source, and by how many they may be off
HOSTILE = "</script><img src=x onerror=alert(1)>"


def row(parts: Parts | None, workload: str = "digits", **given: Any) -> Row:
    made: Row = dict.fromkeys(POINT_RESULTS) | {"workload": workload, "note": "", "fits": None, "seed": 1}
    made |= {"tool_version": "0", "digest": "d", "peak_bytes": 100, "limit_bytes": 200}
    if parts is not None:
        ms, off = (sum(part[side] for part in parts.values()) for side in (0, 1))
        made |= {"ms_per_training_step": ms, "ms_low": ms - off, "ms_high": ms + off, "fits": True}
        made |= {"samples_per_second": 8e3 / ms, "compute_cycles": 1, "exchange_cycles": 1, "sync_cycles": 1}
        made["seconds_by_source"] = [[name, 1e-3 * one, 1e-3 * reach] for name, (one, reach) in parts.items()]
    else:
        made["seconds_by_source"] = None
    return made | given


def studied(rows: Sequence[Row], designs: int | None = None, **study: Any) -> StudyResult:
    """A study over `chip.tiles`, whose rows have it or are numbered."""
    names = study.setdefault("workloads", ["digits"])
    axis = next(iter(study.setdefault("axes", {"chip.tiles": (1,)})))
    for place, one in enumerate(rows):
        one.setdefault(axis, 100 * (1 + place // len(names)))
    found: list[Row] = [{}] * len(rows)
    for name in names:
        places = [at for at, one in enumerate(rows) if one["workload"] == name]
        for at, one in zip(places, with_ratios([rows[at] for at in places]), strict=True):
            found[at] = one
    made = make_study("a test", **({"fill": 0.5} | study))
    return StudyResult(study=made, rows=tuple(found), designs=len(rows) // len(names) if designs is None else designs)


def ranking_of(*rows: Row, **study: Any) -> Ranking:
    return rank(studied(rows, **study))


def beats(ranking: Ranking, a: int, b: int) -> float:
    """The probability that design `a` is better than `b`; as good counts half."""
    wins, ties = ranking.compare(a, [b])
    return float(wins[0] + ties[0] / 2)


def test_the_first_point_is_one_that_can_run() -> None:
    """No point is faster than one that does not fit."""
    rows = [row({"x": (2.0, 0.1)}), row({"x": (3.0, 0.1)}), row({"x": (1.5, 0.1)})]
    rows[0] |= {"fits": False, "peak_bytes": 201}
    text = "\n".join(answer_lines(studied(rows)))
    assert re.search(
        r"That is 2 times \(.* to .*\) faster than the first point that fits \(chip\.tiles = 200\)\.", text
    )
    assert "it lacks 1 B on the fullest tile" not in text  # it would not be better
    rows[1]["fits"] = False
    assert "times faster" not in "\n".join(answer_lines(studied(rows)))


def test_values_that_differ_look_different() -> None:
    rows = [row({"x": (ms, 0.1)}) | {"tile.sram_bytes": size} for size, ms in ((638_976, 2.0), (638_977, 1.0))]
    made = studied(rows, axes={"tile.sram_bytes": (638_976, 638_977)})
    text = "\n".join(answer_lines(made))
    assert "Best in time of 2 points: tile.sram_bytes = 624.00098 KiB." in text
    assert "the first point (tile.sram_bytes = 624 KiB)" in text
    table = table_lines(list(made.rows), ["tile.sram_bytes"])
    assert [line.split("KiB")[0].strip() for line in table[1:3]] == ["624", "624.00098"]


@given(st.lists(st.integers(1, 1 << 40) | st.floats(1, 1e12), min_size=2, max_size=6, unique=True))
def test_different_numbers_are_told_apart(values: list[float]) -> None:
    for key in ("tile.sram_bytes", "chip.clock_hz", "chip.tiles"):
        assert len(set(field_values(key, values))) == len(values)
    one, other = sorted(map(int, values[:2]))
    assert (show_bytes(one, other) == show_bytes(other, one)) == (one == other)


# probabilities


def test_what_shares_its_doubt_is_certain_although_intervals_overlap() -> None:
    found = ranking_of(row({"x": (1.0, 0.3)}), row({"x": (1.1, 0.33)}))
    assert beats(found, 0, 1) == 1
    assert found.best_p.tolist() == [1, 0]
    assert found.front_p.tolist() == [1, 0]


def test_what_shares_nothing_is_even() -> None:
    found = ranking_of(row({"x": (1.0, 0.3)}), row({"y": (1.0, 0.3)}))
    assert beats(found, 0, 1) == pytest.approx(0.5, abs=0.03)
    assert found.best_p.sum() == pytest.approx(1, abs=0.02)


def test_what_the_model_does_not_resolve_is_equal() -> None:
    """However certain the difference is; a study without practical difference takes every digit."""
    rows = row({"x": (1.0, 0.3)}), row({"x": (1.00001, 0.3)}), row({"x": (1.1, 0.33)})
    assert ranking_of(*rows).best_p.tolist() == [1, 1, 0]
    assert beats(ranking_of(*rows), 0, 1) == 0.5
    assert "1 point is as good to 0.2 % in time, with another chip.tiles." in lines_of(*rows)
    assert ranking_of(*rows, practical_difference=0).best_p.tolist() == [1, 0, 0]


def below(distance: float, *half_widths: float) -> float:
    """The chance that a normal number whose 90 % intervals have these half widths together is below a distance."""
    return NormalDist(sigma=hypot(*half_widths) / NormalDist().inv_cdf(0.95)).cdf(distance)


def test_two_doubts_by_their_formula() -> None:
    found = ranking_of(row({"x": (1.0, 0.2)}), row({"y": (1.1, 0.2)}))
    assert beats(found, 0, 1) == pytest.approx(below(log(1.1), 0.2, 0.2 / 1.1), abs=0.02)
    assert beats(found, 1, 0) == pytest.approx(1 - beats(found, 0, 1))


def test_doubts_are_shown_in_seconds_of_the_time() -> None:
    found = ranking_of(row({"x": (4.0, 1.0), "y": (6.0, 0.3)}))
    shown = [[str(getattr(cell, "text", cell)) for cell in line] for line in doubts_table(found).rows]
    assert [line[:3] for line in shown] == [["x", "40.0 %", "1 ms"], ["y", "60.0 %", "300 us"]]


def test_independent_doubts_add_as_squares() -> None:
    many = {f"s{number}": (10.0, 1.0) for number in range(12)}
    found = ranking_of(row(many), row({"": (122.0, 0.0)}))
    assert beats(found, 0, 1) == pytest.approx(below(log(122 / 120), *12 * [1 / 120]), abs=0.025)


def test_only_the_part_that_is_not_shared_decides() -> None:
    """Both have 5 ± 2 of x, a third of either; of the rest, y decides."""
    found = ranking_of(row({"x": (5, 2), "y": (1, 0.4)}), row({"x": (5, 2), "": (1.2, 0)}))
    assert beats(found, 0, 1) == pytest.approx(below(log(6.2 / 6), 2 / 6 - 2 / 6.2, 0.4 / 6), abs=0.01)
    name, *chances = found.deciding_source(0, 1) or ("", 0.0, 0.0)
    assert name == "y"
    assert chances == pytest.approx([1, 0.08], abs=0.03)
    assert ranking_of(row({"x": (5, 2)}), row({"x": (5, 2)})).deciding_source(0, 1) is None


def test_points_that_are_equal_are_all_best() -> None:
    found = ranking_of(row({"x": (1, 0.2), "y": (1, 0.1)}), row({"y": (1, 0.1), "x": (1, 0.2)}), row({"x": (3, 0.1)}))
    assert found.best_p.tolist() == [1, 1, 0]
    assert beats(found, 0, 1) == 0.5
    wins, ties = found.compare(0, [1, 2])
    assert (wins.tolist(), ties.tolist()) == ([0, 1], [1, 0])


def area(middle: float, low: float, high: float) -> Row:
    return {"area_mm2": middle, "area_mm2_low": low, "area_mm2_high": high}


def test_constraints_in_doubt_with_bounds_that_are_not_even() -> None:
    """500 (400 to 700): the upper bound is 1.4 times the middle, 600 is 1.2 times it."""
    rows = row({"x": (1, 0)}, **area(500, 400, 700)), row({"x": (2, 0)}, **area(300, 290, 310))
    found = ranking_of(*rows, constraints=("max area 600 mm2",))
    kept = below(log(1.2), log(1.4))
    assert found.keeps_p.tolist() == pytest.approx([kept, 1], abs=0.01)
    assert found.best_p.tolist() == pytest.approx([kept, 1 - kept], abs=0.01)
    assert found.best == 0
    assert ranking_of(*rows, constraints=("max area 450 mm2",)).best == 1
    assert ranking_of(*rows, constraints=("max area 100 mm2",)).best is None


@pytest.mark.parametrize("workloads", [("digits",), ("digits", "other")])
def test_what_is_certain_has_no_interval(workloads: tuple[str, ...], tmp_path: Path) -> None:
    rows = [row({"x": (2, 0.1)}, name, tile_balance=0.1 * at) for at in range(1, 10) for name in workloads]
    result = studied(rows, metrics=("time", "utilisation"), workloads=list(workloads))
    ranking = rank(result)
    assert all(ranking.interval(1, at) == (middle, middle) for at, middle in enumerate(ranking.middle[1]))
    write_report(result, tmp_path)  # whiskers below zero could not be drawn


def test_an_interval_without_sources_has_one_position_for_all_points() -> None:
    rows = row({"x": (1, 0)}, **area(500, 400, 700)), row({"x": (1, 0)}, **area(510, 408, 714))
    assert beats(ranking_of(*rows, metrics=("area",)), 0, 1) == 1


def test_energy_moves_with_its_watts() -> None:
    watts = {"static_watts": 8.0, "static_watts_low": 4.0, "static_watts_high": 12.0, "dynamic_watts": 2.0}
    energy = {"millijoules": 10.0, "millijoules_low": 6.0, "millijoules_high": 14.0, "samples_per_joule": 800.0}
    other = {"millijoules": 11.0, "samples_per_joule": 8 / 0.011}
    found = ranking_of(
        row({"x": (1, 0.5)}, **watts, **energy), row({"x": (1, 0.5)}, **other), metrics=("energy", "power")
    )
    # 10 W is 8 (4 to 12) and 2: it is below 11 where static watts are below 9
    assert beats(found, 0, 1) == pytest.approx(below(log(9 / 8), log(12 / 8)), abs=0.01)
    drawn = found.draws.metric(found.metrics[0], np.array([0]), slice(0, found.draws.count))
    power = found.draws.metric(found.metrics[1], np.array([0]), slice(0, found.draws.count))
    assert drawn == pytest.approx(power)
    assert np.quantile(drawn, [0.05, 0.95]) == pytest.approx([6, 14], rel=0.01)


def test_what_is_made_of_time_follows_it() -> None:
    rows = row({"x": (1.0, 0.2)}), row({"y": (1.1, 0.2)})
    by_time = ranking_of(*rows)
    for metric in ("throughput", "ratio"):
        assert beats(ranking_of(*rows, metrics=(metric,)), 0, 1) == pytest.approx(beats(by_time, 0, 1), abs=0.001)
    # the first point's ratio to itself is one whatever its time
    kept = ranking_of(*rows, constraints=("max ratio 1",)).keeps_p
    assert kept.tolist() == pytest.approx([1, 1 - beats(by_time, 0, 1)], abs=0.001)


def test_workloads_count_by_their_weights() -> None:
    """Twice as fast in one and three times as slow in the other: worse at equal weights, better at three to one."""

    def rows() -> list[Row]:
        return [
            row({"x": (1.0, 0.2)}, "digits"), row({"x": (1.0, 0.2)}, "other"),
            row({"x": (0.5, 0.1)}, "digits"), row({"x": (3.0, 0.6)}, "other"),
        ]  # fmt: skip

    equal = rank(studied(rows(), workloads={"digits": 1.0, "other": 1.0}))
    assert equal.best == 0
    assert equal.middle[0].tolist() == pytest.approx([1, 1.5**0.5])
    assert beats(equal, 0, 1) == 1
    assert rank(studied(rows(), workloads={"digits": 3.0, "other": 1.0})).best == 1
    largest = rank(studied([one | area(at, at, at) for at, one in enumerate(rows())], metrics=("area",),
                            workloads={"digits": 1.0, "other": 1.0}))  # fmt: skip
    assert largest.middle[0].tolist() == [1, 3]


def test_a_design_without_all_its_workloads_is_not_judged() -> None:
    rows = [row({"x": (1, 0)}, "digits"), row({"x": (1, 0)}, "other"), row({"x": (0.1, 0)}, "digits")]
    found = rank(studied(rows, designs=2, workloads={"digits": 1.0, "other": 1.0}))
    assert (len(found.designs), found.best) == (1, 0)


def test_draws_depend_on_names_and_seed_alone() -> None:
    one, two = row({"x": (1.0, 0.3)}), row({"y": (1.1, 0.3)})
    first = ranking_of(dict(one), dict(two))
    again = ranking_of(row({"z": (9, 1)}), dict(one), dict(two))
    assert beats(again, 1, 2) == beats(first, 0, 1)
    other = rank(studied([dict(one), dict(two)]), seed=1)
    assert beats(other, 0, 1) != beats(first, 0, 1)
    assert beats(other, 0, 1) == pytest.approx(beats(first, 0, 1), abs=0.04)


# the front


def brute_force(values: np.ndarray) -> np.ndarray:
    one, other = values[:, :, None], values[:, None, :]
    dominated = ((one <= other).all(axis=0) & (one < other).any(axis=0)).any(axis=1 - 1)
    return np.asarray(~dominated & np.isfinite(values).all(axis=0))


@pytest.mark.parametrize("metrics", [1, 2, 3, 4])
def test_nondominated_as_by_comparing_all_pairs(metrics: int) -> None:
    rng = np.random.default_rng(metrics)
    for size, steps in ((1, 5), (7, 3), (150, 6), (150, 1000)):
        values = rng.integers(0, steps, (metrics, size, 9)).astype(np.float32)
        values[:, rng.random((size, 9)) < 0.1] = np.inf
        found = nondominated(values)
        for draw in range(9):
            assert found[:, draw].tolist() == brute_force(values[:, :, draw]).tolist()


def test_a_front_that_knows_what_points_share() -> None:
    """The second is smallest; the third is faster than it where y is below its middle, and takes the first from the
    front where it is faster than that."""
    found = ranking_of(
        row({"x": (1.0, 0.3)}, **area(300, 200, 400)),
        row({"x": (1.0, 0.3), "y": (0.1, 0.0)}, **area(200, 100, 300)),
        row({"x": (1.0, 0.3), "y": (0.1, 0.3)}, **area(250, 150, 350)),
        row({"x": (1.2, 0.4)}, **area(310, 210, 410)),
        metrics=("time", "area"),
    )
    faster = below(log(1 / 1.1), 0.3 / 1.1, 0.3 - 0.3 / 1.1)
    assert found.front_p.tolist() == pytest.approx([1 - faster, 1, 1 / 2, 0], abs=0.01)


def test_ten_thousand_points_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.studies.monte_carlo.CELLS", 50_000)
    rows = [row({"x": (1 + at % 97, 0.1)}, **area(size := 500 - at % 89, size / 2, 2 * size)) for at in range(3_000)]
    found = rank(studied(rows, metrics=("time", "area")), count=40)
    assert max(part.stop - part.start for part in found.draws.parts(3_000)) * 3_000 <= 50_000
    assert 0 < (found.front_p > CERTAIN).sum() < 200


# words


def lines_of(*rows: Row, designs: int | None = None, **study: Any) -> str:
    return "\n".join(answer_lines(studied(rows, designs, **study)))


def test_the_answer_comes_first() -> None:
    said = lines_of(
        row({"x": (2.0, 0.5)}),
        row({"x": (1.0, 0.2), "y": (0.02, 0.02)}),
        row({"x": (1.0, 0.2), "z": (0.03, 0.02)}),
        row({"x": (0.5, 0.1)}, fits=False, peak_bytes=1_224, limit_bytes=200),
        row(None),
        question="How many tiles?",
        practical_difference=0,
    ).splitlines()
    assert said[:3] == ["How many tiles?", "", "Best in time of 5 points: chip.tiles = 200."]
    assert said[3] == "At that point: time 1.02 ms (0.8 to 1.24)."
    assert re.match(r"That is 1\.96 times \(.* to .*\) faster than the first point \(chip\.tiles = 100\)\.", said[4])
    assert re.match(
        r"With probability \d\d % it is better than its strongest rival: chip\.tiles = 300, at 1\.03 ms", said[5]
    )
    assert said[6] == "Left out of 5 points: 2 (1 beyond the memory of a tile, 1 without result)."
    assert said[7] == "All 5 points are done."
    change = said[said.index("What would change this:") + 1 :]
    assert change[0] == (
        "- Without the memory of a tile, best would be chip.tiles = 400: 0.5 ms (0.4 to 0.6); it "
        "lacks 1 KiB on the fullest tile."
    )
    assert re.match(r"- chip\.tiles = 300 is better with probability \d\d %\.", change[1])
    assert "- 1 point failed; the notes say why." in change
    assert change[-1].startswith("- Every list of spikes is filled to 50%")


def test_a_ratio_of_other_numbers_has_the_interval_of_its_draws() -> None:
    """At the ends of the position that areas share: 270 of 400, and 330 of 700."""
    said = lines_of(
        row({"x": (1, 0)}, **area(500, 400, 700)), row({"x": (1, 0)}, **area(300, 270, 330)), metrics=("area",)
    )
    found = re.search(r"That is 0\.6 times \((.*) to (.*)\) the area of the first point", said)
    assert found is not None
    assert [float(end) for end in found.groups()] == pytest.approx([330 / 700, 270 / 400], rel=0.01)


def test_of_rivals_that_never_win_the_nearest_is_named() -> None:
    said = lines_of(row({"x": (3, 0.1)}), row({"x": (1.0, 0.1)}), row({"x": (2, 0.2)}), row({"x": (1.004, 0.1)}))
    assert "With probability over 99.9 % it is better than its strongest rival: chip.tiles = 400, at 1.004 ms" in said
    assert "), by less than a practical difference. With probability" in said
    assert "differs by less than 0.5 % from the first point" in lines_of(row({"x": (1, 0.1)}), row({"x": (0.999, 0.1)}))


def test_steps_without_effect_are_told_of_grids_only() -> None:
    axes = {"chip.tiles": (1, 2)}
    grid = lines_of(row({"x": (1, 0)}), row({"x": (1, 0)}), axes=axes)
    assert "= chip.tiles from 100 to 200 changes no time" in grid
    kind = {"kind": "random", "points": 2}
    assert "changes no time" not in lines_of(row({"x": (1, 0)}), row({"x": (1, 0)}), axes=axes, sampling=kind)


def test_beyond_one_chip_there_is_nothing_to_look_at() -> None:
    for least, told in ((2, True), (1, False)):
        rows = [row({"x": (ms, 0.1)}, **{"links.chips": chips}) for ms, chips in ((1.0, least), (2.0, 4))]
        said = lines_of(*rows, axes={"links.chips": (least, 4)})
        assert ("is about the smallest value looked at; beyond may be better" in said) == told, said


def test_what_binds_and_what_is_unknown() -> None:
    rows = [row({"x": (1.0, 0.2)}, **area(700, 650, 750)), row({"x": (2.0, 0.4)}, **area(400, 350, 450))]
    said = lines_of(*rows, metrics=("time", "accuracy"), constraints=("max area 600 mm2",))
    assert "Best in time of 2 points: chip.tiles = 200." in said
    assert "Left out of 2 points: 1 (1 beyond max area 600 mm2)." in said
    assert "Unknown for every point: accuracy (needs spikes of a training instead of fill)." in said
    without = [one | dict.fromkeys(area(0, 0, 0)) for one in rows]
    limited = lines_of(*without, metrics=("time",), constraints=("max area 600 mm2",))
    assert "Left out of 2 points: 2 (2 area unknown)." in limited
    assert "Unknown for every point: area (needs [area] in the machine's description)." in limited
    assert "The GPUs stand in no answer" not in said
    assert "The GPUs stand in no answer" in lines_of(*rows, metrics=("area",), gpus=("a100",))
    assert "- Without max area 600 mm2, best would be chip.tiles = 100: 1 ms (0.8 to 1.2), 2 times better." in said
    assert "- No point has accuracy (needs spikes of a training instead of fill)." in said
    assert "Constraints there: max area 600 mm2: 400 mm2 (350 to 450)." in said
    assert "- chip.tiles = 200 is about the largest value looked at; beyond may be better." in said
    none = lines_of(*rows, constraints=("max area 360 mm2",))
    assert (
        "No point fits and keeps to all constraints; chip.tiles = 200 does with the greatest probability, 10 %." in none
    )
    assert "No point has time" in lines_of(row(None), row(None))
    assert lines_of(designs=3).startswith("No point is done.\nUnfinished: 0 of 3 points are done")


def test_where_nothing_fits_it_is_told_how_much_is_needed() -> None:
    rows = [row({"x": (1, 0.1)}, fits=False, peak_bytes=peak) for peak in (3072, 2560)]
    said = lines_of(*[one | {"limit_bytes": 1024} for one in rows])
    assert said.startswith(
        "No point fits: the nearest, chip.tiles = 200, needs 2.5 KiB of 1.0 KiB on its fullest tile."
    )
    assert "the first point that fits" not in said
    assert "times the first" not in said


def test_a_terminal_shows_the_first_note_on_points() -> None:
    rows = [row({"x": (1, 0.1)}, note=note) for note in ("", "1 of 2 chips used", "1 of 4 chips used")]
    said = [line for line in short_answer(studied(rows)) if line.startswith("!")]
    assert said == ["! chip.tiles=200: 1 of 2 chips used", "! 1 more note: --verbose"]
    rows = [row({"x": (ms, 0)}) for ms in (12345.6, 1.0)]
    assert "That is 12,300 times faster than the first point" in " ".join(short_answer(studied(rows)))


def test_several_metrics_and_workloads() -> None:
    rows = [
        row({"x": (1.0 * time, 0.2 * time)}, name, **area(500 / time, 450 / time, 550 / time))
        for time in (1, 2)
        for name in ("digits", "other")
    ]
    said = lines_of(*rows, workloads={"digits": 1.0, "other": 1.0}, metrics=("time", "area"))
    assert "2 points are Pareto-optimal in time and area with a probability over 50 %" in said
    assert "(time of each workload: digits 1 ms, other 1 ms)" in said
    assert "On the front with a probability of 5 % or more:" in said
    assert said.count("over 99.9 %") >= 2


@pytest.mark.parametrize(
    ("p", "said"),
    [(0.5, "50 %"), (1, "over 99.9 %"), (0, "under 0.1 %"), (0.9952, "99.5 %"), (0.002, "0.2 %"), (0.99, "99 %")],
)
def test_chances(p: float, said: str) -> None:
    assert chance(p) == said


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("chip.clock_hz", 1_500_000_000.0, "1.5 GHz"), ("chip.clock_hz", "1.5 GHz", "1.5 GHz"),
        ("chip.tiles", 1472, "1472"), ("seed", 2**62, str(2**62)), ("network.bias", True, "True"),
        ("tile.sram_bytes", 638_976, "624 KiB"), ("tile.sram_bytes", 499_873, "488.16 KiB"),
        ("sync.internal_cycles", 123_456, "123456 cycles"), ("tile.beta", 0.123456789, "0.12346"),
    ],
)  # fmt: skip
def test_values_of_fields_have_their_unit(key: str, value: Any, said: str) -> None:
    assert field_value(key, value) == said


def test_numbers_in_one_unit() -> None:
    assert common_unit("seconds", (2e-3, 0.5e-3, 0, float("nan"))) == (1e-6, "us")
    assert common_unit("count", (3,)) == (1.0, "")
    assert common_unit("bytes_per_second", (5e8,)) == (1e6, "MB/s")
    assert field_values("x.bytes_per_second", [5e8, 1e9, 1.28e11]) == ["500 MB/s", "1 GB/s", "128 GB/s"]
    assert quantity("seconds", 2e-3, 1e-3, 3e-3, beside=[2e-3, 0.5e-3]) == "2 ms (1 to 3)"
    assert field_values("x.bytes", [65536, 1 << 20, 0]) == ["64 KiB", "1024 KiB", "0 KiB"]
    assert field_values("x.seconds", [1e-6, 1.0]) == ["1 us", "1 s"]
    assert field_values("x.cycles", [0, 1, 2]) == ["0 cycles", "1 cycle", "2 cycles"]
    assert quantity("seconds", 1.2e-3, 0.9e-3, 1.6e-3) == "1.2 ms (0.9 to 1.6)"
    assert quantity("", 1234.5678, 1, 1) == "1,235"


def test_the_console_table_has_units() -> None:
    made = studied([row({"x": (1.0, 0.1)}, **{"chip.clock_hz": 1.5e9})], axes={"chip.clock_hz": (1.5e9,)})
    header, line = table_lines(list(made.rows), ["chip.clock_hz"])
    assert line.split()[:2] == ["1.5", "GHz"]
    assert header.split()[0] == "chip.clock_hz"


# figures and page


def measure(name: str, middle: Sequence[float], off: float = 0.1) -> Measure:
    values = np.array(middle, float)
    return Measure(name=name, label=name, better="less", middle=values, low=values - off, high=values + off)


@pytest.mark.slow
def test_figures_say_what_they_leave_out() -> None:
    values = np.linspace(1, 2, 40)
    share = np.linspace(1, 0.01, 40)
    front = Judgement(
        measures=(
            measure("time", values),
            measure("area", values[::-1]),
            *(measure(f"m{at}", values) for at in range(3)),
        ),
        names=tuple(f"p{at}" for at in range(40)),
        kept=np.arange(40) < 30,
        share=share,
        best=0,
    )
    drawn = draw_front(front)
    assert drawn is not None
    figure, said = drawn
    assert len(figure.axes) == 3
    assert "less likely points of the front are drawn without whiskers" in said
    assert "not drawn: m2" in said
    ranked = draw_ranking(
        Judgement(measures=front.measures[:1], names=front.names, kept=front.kept, share=share, best=0)
    )
    assert ranked is not None
    assert "10 worse points are left out; 10 points that do not fit" in ranked[1]
    shares = np.where(np.arange(40) < 20, 0.0, share)  # of points, in draws: never more certain than these tell
    never = draw_ranking(
        Judgement(measures=front.measures[:1], names=front.names, kept=front.kept, share=shares, best=0)
    )
    assert never is not None
    assert {each.get_text() for each in never[0].axes[0].texts} == {"under 0.1 %"}
    axes = {f"a.b{at}": [(at + 1) * one for one in range(40)] for at in range(11)} | {"same": [1] * 40}
    effects = draw_effects(axes, np.where(np.arange(40) < 2, np.nan, values), "time")
    assert effects is not None
    assert "2 axes with smaller effects are left out; 2 points without this metric are left out" in effects[1]
    assert draw_effects({"same": [1] * 40}, values, "time") is None


def test_steps_are_values_or_bins() -> None:
    values = np.arange(40.0)
    steps = steps_of("tile.sram_bytes", ["256 KiB", "64 KiB"] * 20, values)
    assert [(step.name, step.middle) for step in steps] == [("64 KiB", 20.0), ("256 KiB", 19.0)]
    assert [step.place for step in steps_of("a.names", ["b", "a"] * 20, values)] == [0, 1]
    bins = steps_of("chip.clock_hz", [1e9 + at for at in range(40)], values)
    assert (len(bins), bins[0].middle, bins[0].low, bins[0].high) == (10, 1.5, pytest.approx(0.3), pytest.approx(2.7))


def test_a_sweep_of_many_lines_says_so() -> None:
    rows = with_ratios([row({"x": (1 + at, 0.1)}, **{"seed": at % 50, "chip.tiles": at // 50}) for at in range(100)])
    figure = draw_sweep(rows, ["chip.tiles", "seed"])
    assert figure is not None
    (legend,) = figure.legends
    assert legend.get_title().get_text() == f"{MAX_LINES} of 50 combinations are drawn"
    names = [text.get_text() for text in legend.get_texts()]
    assert (names[0], names[-1]) == ("seed = 0", "seed = 49")
    assert evenly(range(5), 12) == [0, 1, 2, 3, 4]


def test_columns_as_json_that_ends_no_element() -> None:
    text = packed_columns(
        [StudyColumn(name="a\n&", unit="ms", values=[1.0, None, float("nan"), float("inf"), 1 / 3]),
         StudyColumn(name="b", unit="", values=[HOSTILE, "x", "y", "z", "\u202e"])]
    )  # fmt: skip
    assert not set("<>&") & set(text)
    first, second = json.loads(text)
    assert first == {"name": "a &", "unit": "ms", "number": True, "values": [1, None, None, None, 0.3333333]}
    assert second["values"][0] == HOSTILE
    assert second["values"][-1] == ""


def page(folder: Path, *rows: Row, **study: Any) -> str:
    written = write_report(studied(rows, **study), folder)
    assert [path.name for path in written] == ["report.html", "study.toml"]
    return written[0].read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_leads_with_the_answer_and_ends_with_what_would_change_it(tmp_path: Path) -> None:
    rows = [
        row({"x": (2.0 / at, 0.1), "sync (derived)": (0.1, 0.05)}, **area(100 * at, 90 * at, 110 * at))
        for at in (1, 2, 3)
    ]
    text = page(
        tmp_path, *rows, question=f"How many, {HOSTILE}?", metrics=("time", "area"), constraints=("max area 250 mm2",)
    )
    assert HOSTILE not in text
    assert "&lt;/script&gt;" in text
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    assert "http:" not in text.split("<style>")[0]
    order = [
        "<h1>", "Best in time of 3 points: chip.tiles = 200", "The front", "All points", "Where this comes from",
        "sync.internal_cycles", "The study as a file", "</pre>", '<h2 id="change">', "Without max area 250 mm2",
    ]  # fmt: skip
    places = [text.rindex(words) if words == "</pre>" else text.index(words) for words in order]
    assert places == sorted(places)
    assert "<h2" not in text[text.index('<h2 id="change">') + 4 :]
    assert text == page(tmp_path, *rows, question=f"How many, {HOSTILE}?", metrics=("time", "area"),
                        constraints=("max area 250 mm2",))  # fmt: skip


@pytest.mark.parametrize("rows", [0, 1])
def test_a_page_of_nothing(tmp_path: Path, rows: int) -> None:
    text = page(tmp_path, *[row(None, note="too few tiles") for _ in range(rows)], metrics=("time", "area"))
    assert "What would change this" in text
    assert ("No point has time or area: too few tiles." if rows else "No point is done.") in text


def test_a_sensitivity_leads_with_what_matters(tmp_path: Path) -> None:
    effect = Effect(axis="chip.tiles", ends=("100", "200"), mean=-1.0, size=1.0, spread=0.1, count=4)
    one = Sensitivity(metric="time", median=1.5, effects=(effect,), unknown=(), missing=(0,))
    found = Sensitivities(metrics=(one,), trajectories=4, blocks=0, constant=())
    made = studied(
        [row({"x": (2, 0.1)}), row({"x": (1, 0.1)})],
        axes={"chip.tiles": (100, 200)},
        sampling={"kind": "sensitivity", "points": 8, "strongest": 0},
    )
    made = dataclasses.replace(made, found=found)
    assert next(iter(answer_lines(made))).startswith("chip.tiles matters most for the time: from 100 to 200 it falls")
    text = write_report(made, tmp_path)[0].read_text(encoding="utf-8")
    order = ["chip.tiles matters most", '<h2 id="sensitivity">', "in percent of the median, 1.5 ms", "Effects on time"]
    assert '<h2 id="best">' not in text  # it is not about the best point
    assert '<h2 id="effects">' not in text  # medians of points that were not spread evenly
    assert "Every effect is over the range that was given" in text
    assert "cannot be" not in how_estimated(found)
    effect = dataclasses.replace(effect, first_order=(1.84, 0.41), total=(1.39, 0.6))
    found = dataclasses.replace(found, metrics=(dataclasses.replace(one, effects=(effect,)),), blocks=8)
    assert "Shares under 0 or over 1 cannot be: 8 blocks estimate them no better" in how_estimated(found)
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
