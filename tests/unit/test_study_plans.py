"""Plans that choose points by results: sensitivities of functions whose effects are known, searches of known optima.

Rows are made by hand here; `test_on_digits` computes them.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimdsim.base.errors import DescriptionError, MimdsimError, MissingExtra
from mimdsim.report.figures_studies import MOST_BARS, draw_tornado
from mimdsim.report.style import picture
from mimdsim.studies import Local, Study, make_study, run_study
from mimdsim.studies.questions.sensitivity import sensitivity_words
from mimdsim.studies.sampling import Design, DesignSpace
from mimdsim.studies.sensitivity import LEAST_BLOCKS, sensitivity_plan
from mimdsim.studies.tpe_search import BATCH, search_plan

pytest.importorskip("SALib")
optuna = pytest.importorskip("optuna")

Row = dict[str, Any]
Answer = Callable[[Design], "float | Row | None"]
SIXTHS = {"from": 0, "to": 6}


def study_of(kind: str, points: int, axes: dict[str, Any], **more: Any) -> Study:
    sampling = {"kind": kind, "points": points, "strongest": more.pop("strongest", 0), "seed": more.pop("seed", 0)}
    return make_study("test", workloads=more.pop("workloads", ["digits"]), axes=axes, sampling=sampling, **more)


def varied_of(study: Study, base: dict[str, Any] | None = None, whole: tuple[str, ...] = ()) -> DesignSpace:
    return DesignSpace(study=study, base=lambda key: (base or {}).get(key, 3 if key in whole else 3.0))


def row_of(answer: float | Row | None) -> Row:
    row = {"fits": True, "ms_per_training_step": 1.0, "peak_bytes": 100, "limit_bytes": 200, "millijoules": None}
    return row | (answer if isinstance(answer, dict) else {"ms_per_training_step": answer, "fits": answer is not None})


def found_by(plan: Generator[list[Design], list[list[Row]], Any], answer: Answer) -> tuple[Any, list[list[Design]]]:
    """What a plan finds if `answer` gives the milliseconds, or the row, of a design; and what it asked for."""
    asked = [next(plan)]
    try:
        while True:
            asked.append(plan.send([[row_of(answer(design))] for design in asked[-1]]))
    except StopIteration as end:
        return end.value, asked


def sensitivity(study: Study, answer: Answer, **of_fields: Any) -> tuple[Any, list[list[Design]]]:
    return found_by(sensitivity_plan(study, varied_of(study, **of_fields)), answer)


def search(study: Study, answer: Answer, **of_fields: Any) -> tuple[Any, list[list[Design]]]:
    return found_by(search_plan(study, varied_of(study, **of_fields)), answer)


# sensitivity


def test_effects_of_a_linear_function_are_exact_whatever_steps_its_axes_take() -> None:
    axes = {
        "chip.a": {"from": 10, "to": 20},
        "chip.whole": {"from": 2, "to": 4},  # three values
        "chip.pair": [5, 9],
        "chip.falling": [9, 7, 5],
        "chip.five": [0, 1, 2, 3, 4],
        "chip.log": {"from": 1, "to": 16, "log": True},
        "chip.named": ["x", "y", "z"],
        "chip.two_names": ["slow", "fast"],
        "chip.none": SIXTHS,
    }
    study = study_of("sensitivity", 200, axes)
    values = {"x": 0.0, "y": 4.0, "z": 8.0, "slow": 7.0, "fast": 0.0}

    def answer(design: Design) -> float:
        d = {key.removeprefix("chip."): value for key, value in design.items()}
        by_name = values[d["named"]] + values[d["two_names"]]
        return (
            1000 - 3 * d["a"] + 50 * d["whole"] + d["pair"] + d["falling"] + d["five"] + math.log2(d["log"]) + by_name
        )

    found, asked = sensitivity(study, answer, whole=("chip.whole",))
    assert [len(each) for each in asked] == [200]
    (time,) = found.metrics
    assert {effect.axis: effect.mean for effect in time.effects} == pytest.approx(
        {
            "chip.whole": 100.0,
            "chip.a": -30.0,
            "chip.named": None,
            "chip.two_names": -7.0,
            "chip.pair": 4.0,
            "chip.falling": -4.0,
            "chip.five": 4.0,
            "chip.log": 4.0,
            "chip.none": 0.0,
        }
    )
    assert [effect.axis for effect in time.effects][:4] == ["chip.whole", "chip.a", "chip.named", "chip.two_names"]
    assert all(effect.count == 20 for effect in time.effects)
    assert all(effect.spread == pytest.approx(0, abs=1e-9) for effect in time.effects)
    assert time.effects[2].size == pytest.approx(8.0)
    assert time.effects[1].ends == ("10", "20")
    assert not found.constant


def test_effects_and_indices_are_those_of_salib_and_of_theory() -> None:
    """Ishigami's function: S1 0.314, 0.442, 0; ST 0.558, 0.442, 0.244 (T. Ishigami and T. Homma, ISUMA 1990)."""
    from SALib.analyze import morris

    span = {"from": -math.pi, "to": math.pi}
    axes = {"chip.x": span, "chip.y": span, "chip.z": span, "chip.unused": span}

    def ishigami(design: Design) -> float:
        x, y, z, _ = design.values()
        return 20 + math.sin(x) + 7 * math.sin(y) ** 2 + 0.1 * z**4 * math.sin(x)

    study = study_of("sensitivity", 5 * 512, axes, strongest=3, seed=3)
    found, asked = sensitivity(study, ishigami, base={"chip.unused": 0.25})
    (time,) = found.metrics
    places = (np.array([list(design.values()) for design in asked[0]]) + math.pi) / (2 * math.pi)
    problem = {"num_vars": 4, "names": list(axes), "bounds": [[0, 1]] * 4}
    theirs = morris.analyze(problem, places, np.array([ishigami(design) for design in asked[0]]), seed=1)
    for effect in time.effects:
        at = list(axes).index(effect.axis)
        mine = effect.mean, effect.size, effect.spread
        assert mine == pytest.approx([theirs[name][at] for name in ("mu", "mu_star", "sigma")], abs=1e-9)
    by_axis = {effect.axis: effect for effect in time.effects}
    expected = {"chip.x": (0.314, 0.558), "chip.y": (0.442, 0.442), "chip.z": (0.0, 0.244)}
    for axis, (first, total) in expected.items():
        effect = by_axis[axis]
        assert effect.first_order is not None
        assert effect.total is not None
        assert effect.first_order[0] == pytest.approx(first, abs=0.06)
        assert effect.total[0] == pytest.approx(total, abs=0.06)
        assert 0 < effect.first_order[1] < 0.3
    assert by_axis["chip.unused"].total is None
    assert {design["chip.unused"] for design in asked[1]} == {0.25}
    assert len(asked[1]) == 512 * 5
    assert found.blocks == 512


def test_points_without_result_take_their_effects_along_and_are_counted() -> None:
    axes = {"chip.a": SIXTHS, "chip.b": SIXTHS}
    study = study_of("sensitivity", 90, axes, strongest=2)

    def answer(design: Design) -> float | None:
        return None if design["chip.a"] > 5 and design["chip.b"] > 5 else 10 + design["chip.a"] + design["chip.b"] / 6

    found, asked = sensitivity(study, answer)
    (time,) = found.metrics
    missing = tuple(sum(answer(design) is None for design in each) for each in asked)
    assert time.missing == missing
    assert min(missing) > 0
    assert [effect.mean for effect in time.effects] == pytest.approx([6.0, 1.0])
    assert all(2 <= effect.count < 30 for effect in time.effects)
    strong, weak = (effect.total for effect in time.effects)  # of the blocks that are complete
    assert strong is not None
    assert weak is not None
    assert strong[0] > 0.7 > 0.2 > weak[0] > 0
    said = f"have no time or do not fit: {missing[0]} and {missing[1]} points in the two stages."
    assert any(line.endswith(said) for line in sensitivity_words(found))
    found, asked = sensitivity(study, lambda design: 10 + design["chip.a"])
    assert len(asked[1]) == 3 * 16  # an axis without effect has no place in stage two


def test_too_few_known_points_are_an_error_and_an_unknown_second_metric_is_said() -> None:
    axes = {"chip.a": SIXTHS, "chip.b": SIXTHS}
    study = study_of("sensitivity", 30, axes, metrics=["time", "energy"])
    with pytest.raises(MimdsimError, match="known at 0 of 30 points"):
        sensitivity(study, lambda design: None)
    with pytest.raises(MimdsimError, match="do not fit their memory"):
        sensitivity(study, lambda design: {"fits": False})
    found, _ = sensitivity(study, lambda design: 10 + design["chip.a"])
    assert not found.metrics[1].effects
    assert found.metrics[1].unknown == ("chip.a", "chip.b")
    assert any(line.startswith("The energy is known at too few") for line in sensitivity_words(found))


def test_a_range_that_rounds_to_one_value_is_left_out_and_said() -> None:
    axes = {"chip.a": SIXTHS, "chip.tiles": {"from": 5.8, "to": 6.2}, "chip.steps": {"from": 4.6, "to": 5.6}}
    study = study_of("sensitivity", 60, axes)
    found, asked = sensitivity(study, lambda design: 10 + design["chip.steps"], whole=("chip.tiles", "chip.steps"))
    assert found.constant == ("chip.tiles",)
    assert found.trajectories == 20
    assert {design["chip.tiles"] for design in asked[0]} == {6}
    (time,) = found.metrics
    assert time.effects[0].axis == "chip.steps"
    assert 2 <= time.effects[0].count < 20  # moves from 5 to 5 say nothing
    assert any(line.startswith("chip.tiles: the range rounds") for line in sensitivity_words(found))
    with pytest.raises(DescriptionError, match="its range has one value"):
        sensitivity(study_of("sensitivity", 60, {"chip.tiles": [6]}), lambda design: 1.0)


def test_too_few_points_are_said_before_any_is_computed() -> None:
    axes = {"chip.a": SIXTHS, "chip.b": SIXTHS}
    with pytest.raises(DescriptionError, match=r"points = 5: a sensitivity of 2 axes needs at least 6; 30 are usual"):
        sensitivity(study_of("sensitivity", 5, axes), lambda design: pytest.fail("computed"))
    with pytest.raises(DescriptionError, match=f"of 2 axes need at least {4 * LEAST_BLOCKS}; strongest = 0"):
        sensitivity(study_of("sensitivity", 31, axes, strongest=2), lambda design: pytest.fail("computed"))


def test_workloads_and_metrics_come_together_as_the_study_weighs_them() -> None:
    study = study_of(
        "sensitivity",
        30,
        {"chip.a": {"from": 1, "to": 4}},
        workloads={"one": 3.0, "two": 1.0},
        metrics=["time", "area"],
    )
    plan = sensitivity_plan(study, varied_of(study))
    designs = next(plan)
    rows = [
        [
            row_of({"ms_per_training_step": 16.0, "area_mm2": design["chip.a"]}),
            row_of({"ms_per_training_step": design["chip.a"] ** 4, "area_mm2": 2.0}),
        ]
        for design in designs
    ]
    with pytest.raises(StopIteration) as end:
        plan.send(rows)
    time, area = end.value.value.metrics
    assert time.effects[0].mean == pytest.approx(8.0 * 3)  # 16 ** (3/4) * a
    assert area.effects[0].mean < 3  # of the larger of both


def test_plans_ask_for_the_same_points_again_and_for_others_by_another_seed() -> None:
    axes = {"chip.a": SIXTHS, "chip.b": [1, 2, 3], "chip.c": ["x", "y", "z"]}

    def answer(design: Design) -> float:
        return 10 + design["chip.a"] * design["chip.b"]

    for run, points in ((sensitivity, 48), (search, 3 * BATCH)):
        kind = run.__name__
        one, two, other = (run(study_of(kind, points, axes, strongest=2, seed=seed), answer) for seed in (4, 4, 5))
        assert one[1] == two[1]
        assert one[0] == two[0]
        assert one[1] != other[1]


# search


def test_a_search_finds_the_optimum_within_limits_and_begins_with_the_base() -> None:
    axes = {
        "chip.a": {"from": 0, "to": 6},
        "chip.n": {"from": 1, "to": 9},
        "chip.log": {"from": 1, "to": 1000, "log": True},
        "chip.name": ["x", "y", "z"],
    }
    study = study_of("search", 150, axes, constraints=["max area 50 mm2"])
    base = {"chip.a": 3.3, "chip.n": 20, "chip.log": 7, "chip.name": "y"}

    def answer(design: Design) -> Row:
        time = 1 + (design["chip.a"] - 2) ** 2 + abs(design["chip.n"] - 4) + (design["chip.name"] != "z")
        area = 10 * design["chip.a"] + 20 + design["chip.log"] / 100
        return {"ms_per_training_step": time, "area_mm2": area, "fits": design["chip.n"] < 9}

    found, asked = search(study, answer, base=base, whole=("chip.n", "chip.log"))
    assert [len(each) for each in asked] == [BATCH] * (150 // BATCH)
    first = asked[0]
    assert first[0] == base | {"chip.n": 9}  # the nearest that there is; values as they are
    assert list(first[1].values()) == [0.0, 1, 1, "x"]
    assert list(first[2].values()) == [6.0, 9, 1000, "z"]
    assert found is None  # what is best is told of the rows of any study
    designs = [design for each in asked for design in each]
    good = [d for d in designs if answer(d)["area_mm2"] <= 50 and answer(d)["fits"]]
    best = min(good, key=lambda design: answer(design)["ms_per_training_step"])
    assert answer(best)["ms_per_training_step"] < 1.5
    assert (best["chip.n"], best["chip.name"]) == (4, "z")
    assert len(good) > 75  # points outside a limit, or beyond the memory, are learned from
    assert all(isinstance(design["chip.log"], int) and 1 <= design["chip.log"] <= 1000 for design in designs)


def test_a_search_by_two_metrics_looks_along_their_front() -> None:
    study = study_of("search", 80, {"chip.a": SIXTHS, "chip.b": SIXTHS}, metrics=["time", "throughput"])

    def answer(design: Design) -> Row:
        a, b = design["chip.a"], design["chip.b"]
        return {"ms_per_training_step": 1 + a + b, "samples_per_second": 1 + a}

    _, asked = search(study, answer)
    later = [design for each in asked[4:] for design in each]
    near = [design["chip.a"] for design in later if design["chip.b"] < 0.6]  # the front is where it is 0
    assert len(near) > 0.3 * len(later)
    assert max(near) - min(near) > 4


def test_a_search_without_a_point_within_limits_comes_near_them() -> None:
    study = study_of("search", 30, {"chip.a": SIXTHS}, constraints=["min throughput 100"])
    _, asked = search(study, lambda design: {"samples_per_second": 10 * design["chip.a"]})
    later = [design["chip.a"] for each in asked[1:] for design in each]
    assert sum(later) / len(later) > 3.5
    search(study, lambda design: {"fits": None, "ms_per_training_step": None, "peak_bytes": None})


def test_a_search_learns_from_points_that_do_not_fit() -> None:
    study = study_of("search", 100, {"chip.a": SIXTHS, "chip.b": SIXTHS})
    _, asked = search(study, lambda design: None if design["chip.a"] < 4 else 10 + design["chip.b"])
    later = [design for each in asked[3:] for design in each]
    assert sum(design["chip.a"] >= 4 for design in later) > 0.6 * len(later)
    assert min(design["chip.b"] for design in later if design["chip.a"] >= 4) < 0.5


def test_a_search_leaves_the_loudness_of_optuna_as_it_is() -> None:
    before = optuna.logging.get_verbosity()
    next(search_plan(study := study_of("search", 10, {"chip.a": SIXTHS}), varied_of(study)))
    assert optuna.logging.get_verbosity() == before


# both


def test_axes_of_names_have_no_direction_and_coupled_fields_follow() -> None:
    lists = {"up": [1, 2], "down": ["2 GHz", "1.5 GHz", "1 GHz"], "both": [1, 3, 2], "names": ["a", "b", "c"]}
    lists |= {"two": ["a", "b"], "one": [1]}
    study = study_of("search", 10, {f"chip.{key}_hz": values for key, values in lists.items()})
    varied = varied_of(study)
    assert {key for key in lists if varied.is_ordered(f"chip.{key}_hz")} == {"up", "down", "one"}
    assert {key for key in lists if varied.has_direction(f"chip.{key}_hz")} == {"up", "down", "one", "two"}
    study = study_of("search", 10, {"chip.a": SIXTHS, "chip.b": SIXTHS}, coupled={"chip.c": "2 * chip.a"})
    design = varied_of(study).design({"chip.b": 3.0, "chip.a": 0.1})
    assert list(design.items()) == [("chip.a", 0.1), ("chip.b", 3.0), ("chip.c", 0.2)]


@pytest.mark.parametrize(("kind", "package"), [("sensitivity", "SALib"), ("search", "optuna")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, kind: str, package: str) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    study = study_of(kind, 20, {"chip.a": SIXTHS})
    plan = sensitivity_plan if kind == "sensitivity" else search_plan
    with pytest.raises(MissingExtra, match=rf"{package}.*mimdsim\[studies\]"):
        next(plan(study, varied_of(study)))


def test_on_digits(tmp_path: Path) -> None:
    """Halving the clock's period halves the time, and nothing else does; a study that goes on asks for the same."""
    axes = {"chip.clock_hz": {"from": "1 GHz", "to": "2 GHz"}, "sync.internal_cycles": {"within": 0.2}}
    study = study_of("sensitivity", 9, axes, fill=0.5, metrics=["time", "memory"])
    studied = run_study(study, tmp_path, Local(1), lambda *_: None)
    time, memory = studied.found.metrics
    assert studied.designs == len(studied.rows) == 9
    assert time.effects[0].axis == "chip.clock_hz"
    assert -0.8 * time.median < time.effects[0].mean < -0.5 * time.median
    assert time.effects[1].mean > 0
    assert all(effect.size == 0 for effect in memory.effects)
    said = list(sensitivity_words(studied.found))
    assert said[0].startswith("chip.clock_hz matters most for the time: from 1 GHz to 2 GHz it falls by")
    assert any(line.startswith("Nothing that was varied changes the memory") for line in said)
    again = run_study(study, tmp_path, Local(1), lambda *_: pytest.fail("computed again"))
    assert again.found == studied.found
    lines = (tmp_path / "results.csv").read_text().splitlines()[1:]
    assert len(set(lines)) == len(lines) == studied.designs

    study = study.model_copy(update={"sampling": study.sampling.model_copy(update={"kind": "search", "points": 4})})
    study = study.model_copy(update={"metrics": ("time",)})
    first, *others = run_study(study, tmp_path / "search", Local(1), lambda *_: None).rows
    assert {key: first[key] for key in axes} == {"chip.clock_hz": 1.85e9, "sync.internal_cycles": 126}
    assert min(row["ms_per_training_step"] for row in others) < first["ms_per_training_step"]


def test_the_tornado_shows_the_largest_and_says_what_it_leaves_out() -> None:
    row = {"axis": "chip.a", "ends": ("1", "2"), "mean": -50.0, "size": 50.0, "spread": 5.0}
    rows = [row | {"first_order": (0.9, 0.1), "total": (0.95, 0.1)}, row | {"axis": "names", "mean": None, "size": 9.0}]
    rows += [row | {"axis": f"axis {number}", "mean": 2.0, "size": 2.0, "spread": 0.1} for number in range(30)]
    rows = [{"first_order": None, "total": None} | each for each in rows]
    figure = draw_tornado(rows, title="What matters", of="the median, 1 ms")
    assert figure is not None
    effects, shares = figure.axes
    assert len(effects.get_yticks()) == MOST_BARS
    note = effects.get_title(loc="left")
    assert note == "Not drawn, at most 2 % each: axis 18, axis 19 and 10 more"
    assert {text.get_text() for text in effects.texts} == {"−50 %", "±9 %", "+2 %"}
    assert [text.get_text() for text in shares.texts] == ["at its base value"] * (MOST_BARS - 1)
    assert picture(figure).startswith(b"\x89PNG")
    alone = draw_tornado([each | {"total": None} for each in rows[:2]], title="", of="it")
    assert alone is not None
    assert len(alone.axes) == 1
    assert draw_tornado([each | {"size": 0.0} for each in rows], title="", of="it") is None
