"""One's own measurements: what they narrow, which rows contradict each other, and the file that a machine can name."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import mimdsim
from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.units import kind_of, uncertainty, within
from mimdsim.cli import main
from mimdsim.machine import MimdMachine, changed_machine, load_machine, with_values
from mimdsim.machine.calibrated import Table, machine_digest, uncertain_numbers, write_calibration
from mimdsim.pipeline import compile_workload, config_digest, retime
from mimdsim.validation.calibration import Narrowed, narrowed_by
from mimdsim.validation.calibration.sensitivities import closest, contradictions, misses
from mimdsim.validation.reference_table import Bearing, Row, silent
from mimdsim.validation.tables import check_files, find_table
from mimdsim.workload import filled_activity, load_workload

HEAD = "hidden,dense,sparse,batch,T,second_threshold,ms_total,spread"
NETWORKS = (  # hidden, dense, sparse, batch, T
    ("1", "40-16-4", "8-4-2", "4", "6"),
    ("1", "40-48-4", "8-12-2", "4", "6"),
    ("2", "40-24-24-4", "8-6-6-2", "4", "6"),
    ("1", "40-32-4", "8-16-2", "8", "4"),
    ("1", "40-96-4", "16-24-2", "4", "4"),
    ("2", "40-64-32-4", "8-16-8-2", "2", "8"),
)
TRUE = {"exchange.fixed_cycles": 135, "sync.internal_cycles": 165, "codelet LifUpdate": 1.25}
Cycles = Callable[[MimdMachine], float]


def tiled(name: str) -> MimdMachine:
    machine = load_machine(name)
    assert isinstance(machine, MimdMachine)
    return machine


def phase(barriers: int, moved: float) -> Cycles:
    """Cycles of so many exchanges of so many bytes a tile."""

    def cycles(machine: MimdMachine) -> float:
        fabric = machine.exchange
        return barriers * (machine.sync.internal_cycles + fabric.fixed_cycles) + moved / fabric.bytes_per_cycle

    return cycles


def barrier(count: int) -> Cycles:
    return lambda machine: float(count * machine.sync.internal_cycles)


def rows_of(machine: MimdMachine, programs: list[Cycles], measured: list[float], doubt: float = 0.0) -> list[Row]:
    """Rows of a table, one for each program; doubt: of their formula, as a share."""
    rows = []
    for line, (again, figure) in enumerate(zip(programs, measured, strict=True), start=2):
        predicted = again(machine)
        row = Row(
            file="made.csv",
            name=f"program {line}",
            unit="cycles",
            predicted=predicted,
            published=figure,
            tolerance=0.1,
            low=predicted * (1 - doubt),
            high=predicted * (1 + doubt),
            source="",
            bearing=Bearing(line=line, machine=machine.name, measured=figure, again=again),
        )
        rows.append(row)
    return rows


def narrowed(machine: MimdMachine, rows: list[Row], share: float = 0.005) -> Narrowed:
    off = np.array([share * row.bearing.measured for row in rows if row.bearing])
    table = Table(file="made.csv", sha256="0" * 64)
    return narrowed_by(machine, rows, off, named=machine.name, spread="", tables=(table,))


def intervals(found: Narrowed) -> dict[str, tuple[float, float, float]]:
    return {number.name: number.narrowed for number in found.content.number}


def test_measurements_that_tell_numbers_apart_recover_them() -> None:
    bow = tiled("bow")
    true = changed_machine(
        bow, {"sync.internal_cycles": 150, "exchange.fixed_cycles": 82, "exchange.bytes_per_cycle": 4.2}
    )
    programs = [barrier(100), phase(200, 100), phase(10, 40_000)]
    found = narrowed(bow, rows_of(bow, programs, [each(true) for each in programs]))
    for name, value in (
        ("sync.internal_cycles", 150),
        ("exchange.fixed_cycles", 82),
        ("exchange.bytes_per_cycle", 4.2),
    ):
        low, middle, high = intervals(found)[name]
        assert low <= value <= high, name
        assert middle == pytest.approx(value, rel=0.02), name
        assert high - low < 0.2 * 2 * uncertain_numbers(bow)[name].half_width, name
    assert all(row.error(row.after) < 0.005 < row.error(row.before) for row in found.rows)
    assert not found.contradictions
    assert {"energy.bundle_joules", "sync.loop_cycles", "links.bytes_per_second"} <= set(found.stay)
    for name in found.stay:
        assert uncertain_numbers(found.machine)[name] == uncertain_numbers(bow)[name]


def test_ten_rows_of_a_class_tell_its_intervals(tmp_path: Path) -> None:
    """Noise of 1 %: nine in ten rows are predicted from the others within some 2 %, whatever sources leave open."""
    bow, noise = tiled("bow"), np.random.default_rng(0).normal(0, 0.01, 12)
    programs = [phase(100 + 10 * number, 1_000 * number) for number in range(12)]
    measured = [each(bow) * (1 + off) for each, off in zip(programs, noise.tolist(), strict=True)]
    rows = [replace(row, figures="training step") for row in rows_of(bow, programs, measured)]
    found = narrowed(bow, rows, share=0.01)
    (of_class, of_all) = found.content.residual
    assert (of_class.figures, of_class.rows, of_all.figures) == ("training step", 12, "program on tiles")
    assert 0.01 < of_class.half_width < 0.03
    assert not narrowed(bow, rows[:9], share=0.01).content.residual
    assert not narrowed(bow, [replace(row, figures="") for row in rows], share=0.01).content.residual
    write_calibration(tmp_path / "mine.toml", found.content, ())
    again = tiled(str(tmp_path / "mine.toml"))
    assert again.correlation == found.machine.correlation
    workload = load_workload("digits", {"data.timesteps": 2, "network.hidden": (12,), "network.capacity": (6, 4)})
    compiled = compile_workload(workload, bow)
    profile = retime(compiled, again, filled_activity(compiled.network, 0.5))
    seconds, (_, high) = profile.seconds(profile.cycles), profile.device_ends
    assert np.log(high / seconds) == pytest.approx(of_class.half_width, rel=1e-3)


def test_numbers_that_only_appear_together_share_the_change_and_stay_wide() -> None:
    bow = tiled("bow")
    programs = [phase(100, 0)]
    found = narrowed(bow, rows_of(bow, programs, [100 * (126 + 100) * 1.1]))
    sync, fixed = (intervals(found)[name] for name in ("sync.internal_cycles", "exchange.fixed_cycles"))
    assert sync[1] + fixed[1] == pytest.approx(226 * 1.1, rel=0.01)
    # least change in half widths: each moves in proportion to the square of its own
    assert (sync[1] - 126) / (fixed[1] - 100) == pytest.approx((126 / 100) ** 2, rel=0.05)
    assert sync[2] - sync[0] > 0.5 * 0.6 * 126


def test_values_never_leave_their_intervals() -> None:
    bow = tiled("bow")
    found = narrowed(bow, rows_of(bow, [barrier(100)], [100 * 163.0]))
    low, middle, high = intervals(found)["sync.internal_cycles"]
    assert 88.2 <= low <= middle == 163 <= high <= 163.8
    beyond = narrowed(bow, rows_of(bow, [barrier(100)], [100 * 200.0]))
    assert beyond.contradictions == (("made.csv line 2",),)
    assert "Contradicts the machine" in str(beyond)
    assert not intervals(beyond)


def test_rows_that_contradict_each_other_are_named_and_left_out() -> None:
    bow = tiled("bow")
    programs = [barrier(100), phase(50, 0), barrier(100), barrier(40)]
    figures = [each(bow) for each in programs]
    found = narrowed(bow, rows_of(bow, programs, [figures[0], figures[1], 1.1 * figures[2], figures[3]]))
    assert len(found.contradictions) == 1
    pair = set(found.contradictions[0])
    assert "made.csv line 4" in pair
    assert len(pair) == 2
    assert set(found.content.left_out[0]) == pair
    assert intervals(found)["sync.internal_cycles"][1] == 126
    assert "Contradict each other" in str(found)


def test_what_a_formula_is_doubted_for_is_not_blamed_on_the_machine() -> None:
    bow = tiled("bow")
    programs = [barrier(100), barrier(50)]
    rows = rows_of(bow, programs, [1.1 * each(bow) for each in programs], doubt=0.6)
    found = narrowed(bow, rows)
    alone = narrowed(bow, rows_of(bow, programs, [1.1 * each(bow) for each in programs]))
    assert intervals(alone)["sync.internal_cycles"][1] == pytest.approx(126 * 1.1, abs=1)
    assert 126 < intervals(found)["sync.internal_cycles"][1] < 134
    (value,) = found.formulas.values()
    assert value[1] > 0.05


@pytest.mark.parametrize("seed", range(6))
def test_least_squares_in_a_box_meet_the_conditions_of_a_minimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, numbers = int(random.integers(1, 30)), int(random.integers(1, 12))
    effects = random.normal(size=(rows, numbers)) * 10.0 ** random.uniform(-1, 3)
    distances = random.normal(size=rows) * 30
    low, high = -random.uniform(0.1, 2, numbers), random.uniform(0.1, 2, numbers)
    z = closest(effects, distances, low, high)
    slope = z + effects.T @ (effects @ z - distances)
    scale = 1e-6 * (1 + np.abs(effects).sum() * np.abs(distances).max())
    assert ((z >= low) & (z <= high)).all()
    assert (np.abs(slope[(z > low) & (z < high)]) < scale).all()
    assert (slope[z == low] > -scale).all()
    assert (slope[z == high] < scale).all()


@pytest.mark.parametrize("seed", range(6))
def test_sets_of_contradicting_rows_are_minimal_and_the_rest_can_be_met(seed: int) -> None:
    random = np.random.default_rng(seed)
    effects = random.normal(size=(14, 3)) * 5
    distances = effects @ random.uniform(-1, 1, 3)
    distances[random.choice(14, 3, replace=False)] += 12 * random.choice((-1, 1), 3)
    low, high = -2 * np.ones(3), 2 * np.ones(3)

    def off(chosen: list[int]) -> float:
        return float(misses(effects[chosen], distances[chosen], low, high).max(initial=0.0))

    found = contradictions(effects, distances, low, high)
    assert found
    for one in found:
        assert off(list(one)) > 1e-3
        assert all(off([row for row in one if row != left]) <= 1e-3 for left in one)
    assert off([row for row in range(14) if not any(row in one for one in found)]) <= 1e-3


def test_sources_can_say_how_far_a_number_may_be_off() -> None:
    assert uncertainty("derived") == 0.3
    assert uncertainty(kind_of("measured within 2.5 %: with a scope: twice")) == 0.025
    assert within("measured", 0.0123456) == "measured within 1.24 %"
    assert uncertainty(within("measured", 7.0)) == 1.0
    for wrong in ("measured within 3%", "measured within 101 %", "guessed", "within 3 %"):
        with pytest.raises(DescriptionError, match="must begin with one of"):
            changed_sources(wrong)


def changed_sources(kind: str) -> MimdMachine:
    return with_values(tiled("bow"), {"sync.internal_cycles": (126, f"{kind}: here")})


# rows that the simulator makes itself, of a machine whose numbers are others than those that are described


def true_machine() -> MimdMachine:
    sources = {name: one.source for name, one in uncertain_numbers(tiled("tiny")).items()}
    changes = {name: (float(value), sources.get(name, "derived: its cost")) for name, value in TRUE.items()}
    return with_values(tiled("tiny"), changes)


def table(path: Path, networks: tuple[tuple[str, ...], ...], milliseconds: list[float], spread: str) -> Path:
    lines = [HEAD] + [
        ",".join((*network, "0.9", f"{time!r}", spread)) for network, time in zip(networks, milliseconds, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@cache
def simulated() -> tuple[float, ...]:
    """Milliseconds of the training steps of NETWORKS on the true machine."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = table(Path(folder) / "asked.csv", NETWORKS, [1.0] * len(NETWORKS), "")
        rows = check_files((path,), None, silent, tiled("tiny"))
    return tuple(row.bearing.again(true_machine()) for row in rows if row.bearing is not None)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Narrowed, Path]:
    folder = tmp_path_factory.mktemp("own")
    given = table(folder / "mine.csv", NETWORKS[:5], list(simulated()[:5]), "0.2 %")
    out = folder / "tiny-mine.toml"
    return mimdsim.calibrate("tiny", given, out=out), out


@pytest.mark.slow
def test_rows_of_a_simulated_machine_narrow_towards_it(own: tuple[Narrowed, Path]) -> None:
    found, _ = own
    assert len(found.rows) == 5
    assert not found.contradictions
    before, after = ([row.error(getattr(row, when)) for row in found.rows] for when in ("before", "after"))
    assert min(before) > 0.01
    assert max(after) < 0.25 * min(before)
    got = intervals(found)
    for name, value in TRUE.items():
        low, _, high = got[name]
        assert low <= value <= high, name
    assert all(row.from_others is not None and row.error(row.from_others) < row.error(row.before) for row in found.rows)
    assert sum(number.narrowed[2] - number.narrowed[0] for number in found.content.number) < sum(
        number.sourced[2] - number.sourced[0] for number in found.content.number
    )


@pytest.mark.slow
def test_a_run_that_was_not_measured_is_predicted_better(own: tuple[Narrowed, Path], tmp_path: Path) -> None:
    _, out = own
    asked = table(tmp_path / "other.csv", NETWORKS[5:], [simulated()[5]], "")

    def error(machine: MimdMachine) -> float:
        row = check_files((asked,), None, silent, machine)[0]
        assert row.predicted is not None
        return abs(row.predicted / simulated()[5] - 1)

    described, narrower = tiled("tiny"), tiled(str(out))
    assert error(narrower) < 0.3 * error(described)
    rows = [check_files((asked,), None, silent, machine)[0] for machine in (described, narrower)]
    widths = [(row.high or 0) - (row.low or 0) for row in rows]
    assert widths[1] < 0.8 * widths[0]  # before it, too, doubts of sources are independent
    assert (rows[1].low or 1) <= simulated()[5] <= (rows[1].high or 0)


def test_the_file_is_a_machine_and_the_sourced_one_stays(own: tuple[Narrowed, Path]) -> None:
    found, out = own
    machine = tiled(str(out))
    assert machine.name == "tiny-mine"
    assert "narrowed by tiny-mine.toml" in machine.title
    for number in found.content.number:
        if not number.name.startswith("codelet "):
            one = uncertain_numbers(machine)[number.name]
            assert one.value == number.narrowed[1]
            assert kind_of(one.source).startswith("measured within ")
            assert "narrowed by mine.csv from " in one.source
    assert machine.costs is not None
    assert machine.costs.scaled["LifUpdate"].factor == intervals(found)["codelet LifUpdate"][1]
    described = tiled("tiny")
    assert machine_digest(described) == found.content.machine_sha256
    assert (described.exchange.fixed_cycles, described.costs) == (100, None)
    what_if = load_machine(str(out), {"sync.internal_cycles": 50})
    assert isinstance(what_if, MimdMachine)
    assert what_if.sync.internal_cycles == 50
    assert what_if.sync.sources["internal_cycles"] == "assumed: what-if value 50"


def test_a_run_on_it_has_its_values_and_narrower_intervals(own: tuple[Narrowed, Path]) -> None:
    described, machine = tiled("tiny"), tiled(str(own[1]))
    changes: dict[str, Any] = {"data.timesteps": 3, "network.hidden": (12,), "network.capacity": (6, 4)}
    workload = load_workload("digits", changes)
    compiled = compile_workload(workload, described, must_fit=False)
    activity = filled_activity(compiled.network, 0.5)
    before, after = (retime(compiled, each, activity) for each in (described, machine))
    assert before.cycles != after.cycles
    widths = [(each.seconds_high - each.seconds_low) / each.seconds_per_training_step for each in (before, after)]
    assert widths[1] < 0.65 * widths[0]  # before it, too, doubts of sources are independent
    true = retime(compiled, true_machine(), activity)
    assert abs(after.cycles / true.cycles - 1) < 0.2 * abs(before.cycles / true.cycles - 1)
    assert after.seconds_low < true.seconds_per_training_step < after.seconds_high
    what_if = load_machine(str(own[1]), {"sync.internal_cycles": machine.sync.internal_cycles})
    assert isinstance(what_if, MimdMachine)
    assert what_if.correlation is None  # correlations hold for what was measured
    changed = retime(compiled, what_if, activity)
    assert (changed.seconds_high - changed.seconds_low) > (after.seconds_high - after.seconds_low)
    assert sum(doubt.cycles for doubt in after.doubts) == pytest.approx(after.cycles, abs=len(after.doubts))
    said = {each.name: each for each in after.assumptions}
    assert said["exchange.fixed_cycles"].source.startswith("narrowed by mine.csv from 100")
    assert "of: " in said["codelet LifUpdate"].source
    assert config_digest(workload, described) != config_digest(workload, machine)


def test_waits_are_doubted_by_the_numbers_that_set_them_where_these_are_known() -> None:
    described = tiled("tiny")
    changes: dict[str, Any] = {"data.timesteps": 3, "network.hidden": (12,), "network.capacity": (6, 4)}
    changes["mapping.state_gradient"] = "per_batch"
    compiled = compile_workload(load_workload("digits", changes), described, must_fit=False)
    activity = filled_activity(compiled.network, 0.5)
    numbers = uncertain_numbers(described)
    known = [name for name in numbers if name.startswith(("exchange.", "sync."))]
    machine = with_values(described, {name: (numbers[name].value, "measured within 2 %: here") for name in known})
    before, after = (retime(compiled, each, activity) for each in (described, machine))
    assert after.cycles == before.cycles
    assert sum(doubt.cycles for doubt in after.doubts) == pytest.approx(after.cycles, abs=len(after.doubts))

    def doubted(profile: Any, *names: str) -> tuple[int, int]:
        chosen = [doubt for doubt in profile.doubts if doubt.name.startswith(names)]
        return sum(doubt.cycles for doubt in chosen), sum(doubt.half_width_cycles for doubt in chosen)

    waits = "exchange", "sync", "loop control"
    assert doubted(after, *waits)[0] == pytest.approx(doubted(before, *waits)[0], abs=10)
    assert doubted(after, *waits)[1] < 0.1 * doubted(before, *waits)[1]
    assert doubted(after, "arranging")[1] < doubted(before, "arranging")[1]
    assert doubted(after, "codelet") == doubted(before, "codelet")
    wide = with_values(described, {name: (numbers[name].value, "measured within 90 %: here") for name in known})
    assert doubted(retime(compiled, wide, activity), *waits)[1] > doubted(before, *waits)[1]


def test_a_machine_of_the_same_numbers_can_name_the_file(own: tuple[Narrowed, Path], tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "models" / "tiny.toml").read_text()
    (tmp_path / "n.toml").write_bytes(own[1].read_bytes())
    mine = tmp_path / "mine.toml"
    mine.write_text(f'narrowed = "n.toml"\n{text}'.replace("title = ", 'title = "Mine, " #'))
    machine = tiled(str(mine))
    assert machine.name == "mine"
    assert machine.exchange == tiled(str(own[1])).exchange
    mine.write_text(f'narrowed = "n.toml"\n{text}'.replace("fixed_cycles = 100", "fixed_cycles = 101", 1))
    with pytest.raises(
        DescriptionError, match=r"another description of 'tiny'.*make it again with  mimdsim calibrate mine"
    ):
        load_machine(str(mine))
    with pytest.raises(DescriptionError, match="is narrowed already"):
        mimdsim.calibrate(str(own[1]), "multislice.csv")
    for wrong, said in (("7", "must be the path"), ('"absent.toml"', "no such file"), ('"mine.toml"', "is not what")):
        mine.write_text(f"narrowed = {wrong}\n{text}")
        with pytest.raises(DescriptionError, match=said):
            load_machine(str(mine))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "exchange.fixed_cycles"', 'name = "exchange.fixed_cycle"', "did you mean 'exchange.fixed_cycles'"),
        ('name = "exchange.fixed_cycles"', 'name = "sync.internal_cycles"', "is given twice"),
        ('name = "exchange.fixed_cycles"', 'name = "tile.sram_bytes"', "is none of 'tiny'"),
        ('machine = "tiny"', 'machine = "tinny"', "no such machine"),
        ('machine = "tiny"', 'machine = "a100"', "only tiled machines are narrowed"),
        ('machine = "tiny"', 'machine = "bow"', "another description"),
        ('machine_sha256 = "', 'machine_sha256 = "0', "machine_sha256"),
        ("[[number]]", "[[numbers]]", "unknown key 'numbers'"),
        ("sourced = [50.0, 100.0, 150.0]", "sourced = [0.0, 100.0, 150.0]", "that is"),
        ("sourced = [50.0, 100.0, 150.0]", "sourced = [50.0, 100.0, 101.0]", "outside the sourced interval"),
        ("sourced = [50.0, 100.0, 150.0]", "sourced = [50.0, nan, 150.0]", "finite number"),
        ("sourced = [50.0, 100.0, 150.0]", "sourced = [50.0]", "sourced'.* has 1 values; more"),
        ("sourced = [0.7, 1.0, 1.3]", "sourced = [0.1, 1.0, 1.3]", "within 0.5 to 1.5"),
        ('kind = "narrowed"', 'kind = "narrow"', "must be one of mimd, gpu, narrowed"),
    ],
)
def test_damaged_files_are_refused_with_a_reason(
    own: tuple[Narrowed, Path], tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = own[1].read_text()
    assert old in text
    damaged = tmp_path / "damaged.toml"
    damaged.write_text(text.replace(old, new) if "twice" not in said else text.replace(old, new, 1))
    with pytest.raises(DescriptionError, match=said):
        load_machine(str(damaged))


def test_a_file_that_names_itself_is_refused(own: tuple[Narrowed, Path], tmp_path: Path) -> None:
    text = own[1].read_text()
    (tmp_path / "loop.toml").write_text(text.replace('machine = "tiny"', 'machine = "loop.toml"'))
    with pytest.raises(DescriptionError, match="is narrowed already"):
        load_machine(str(tmp_path / "loop.toml"))


@pytest.mark.parametrize("cell", ["0", "-1", "nan", "x", "200 %", "1e400", "9" * 5000, "%"])
def test_a_spread_that_is_none_is_refused(tmp_path: Path, cell: str) -> None:
    given = Path("references/multislice.csv")
    rows = list(csv.DictReader((Path(__file__).parents[2] / given).open()))
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "spread"])
        writer.writeheader()
        writer.writerows([row | {"spread": cell} for row in rows])
    with pytest.raises(DataFileError, match="line 2, column 'spread'"):
        mimdsim.calibrate("c600", path)


def test_figures_that_say_nothing_leave_everything_as_it_was() -> None:
    found = mimdsim.calibrate("c600", "multislice.csv", spread=1.0)
    assert not found.content.number
    assert found.machine.correlation is None
    assert found.machine.exchange == found.sourced.exchange
    assert "no row bears on a number of the machine" in str(found)
    assert set(found.stay) == set(uncertain_numbers(found.sourced))


def test_tables_that_tell_nothing_of_a_machine_are_refused(tmp_path: Path) -> None:
    head, one = find_table("ipu_training_step_ms.csv").read_text().splitlines()[:2]
    (tmp_path / "long.csv").write_text("\n".join([head, *[one] * 1001]))
    begun = time.monotonic()
    with pytest.raises(DataFileError, match="has 1,001 rows; at most 1,000 are used"):
        mimdsim.calibrate("bow", tmp_path / "long.csv")
    assert time.monotonic() - begun < 5  # none of them is predicted
    for column in ("T", "ms_total"):
        cells = dict(zip(head.split(","), one.split(","), strict=True)) | {column: "a" * 100_000}
        (tmp_path / "hostile.csv").write_text(f"{head}\n{','.join(cells.values())}\n")
        with pytest.raises(DescriptionError, match=rf"(?s)no row was measured on 'bow'.*column '{column}'") as refused:
            mimdsim.calibrate("bow", tmp_path / "hostile.csv")
        assert len(str(refused.value)) < 500
    with pytest.raises(DescriptionError, match=r"no row was measured on 'tiny'.* of machine 'mk2'"):
        mimdsim.calibrate("tiny", "chips.csv")
    with pytest.raises(DataFileError, match="is given twice"):
        mimdsim.calibrate("c600", ["multislice.csv", "multislice.csv"])
    with pytest.raises(DescriptionError, match="only tiled machines are narrowed"):
        mimdsim.calibrate("a100", "multislice.csv")
    with pytest.raises(DescriptionError, match="give 1e-06 to 1"):
        mimdsim.calibrate("c600", "multislice.csv", spread=0)


def test_every_row_that_is_not_used_is_named_with_its_reason(tmp_path: Path) -> None:
    head, first, *others = find_table("multislice.csv").read_text().splitlines()
    unread, unknown = first.replace(",0.238,", ",0,"), first.replace("multiSlice", "sort")
    (tmp_path / "mine.csv").write_text("\n".join([head, first, *others, unread, unknown]))
    said = str(mimdsim.calibrate("c600", tmp_path / "mine.csv", spread=0.01)).splitlines()
    assert said[said.index("Rows not used: 3") + 1 :] == [
        "  mine.csv line 5 (not read: column 'time_ms': '0' is not a number above 0)",
        "  mine.csv gather_only (not predicted: no program for 'popops::sort'; known: popops::multiSlice, alone or "
        "with '+ copy')",
        "  mine.csv copy alone: with it less without (made of figures that have rows of their own)",
    ]


def test_the_command_prints_and_writes_what_the_function_finds(tmp_path: Path) -> None:
    out = tmp_path / "made" / "c600-mine.toml"
    call = ["calibrate", "c600", "multislice.csv", "--spread", "0.01", "--out", str(out)]
    said = CliRunner().invoke(main, call)
    assert said.exit_code == 0, said.output
    assert "c600, narrowed by 3 rows" in said.output
    assert "as no row bears on it" in said.output
    assert f"Written: {out}" in said.output
    found = mimdsim.calibrate("c600", "multislice.csv", spread=0.01)
    assert str(found).splitlines()[-1] in said.output
    again = json.loads(CliRunner().invoke(main, [*call, "--json"]).stdout)
    assert [row["after"] for row in again["rows"]] == [row.after for row in found.rows]
    assert tiled(str(out)).exchange == found.machine.exchange


def test_rows_predict_again_what_they_predicted() -> None:
    rows = check_files(
        tuple(Path(__file__).parents[2] / "references" / name for name in ("chips.csv", "multislice.csv")), None, silent
    )
    bearing = [row for row in rows if row.bearing is not None]
    assert len(bearing) == 12
    for row in bearing:
        assert row.bearing is not None
        assert row.bearing.again(tiled(row.bearing.machine)) == row.predicted
    assert replace(bearing[0], bearing=None).bearing is None


@pytest.mark.parametrize("name", ["bow-mesh", "blackhole", "mk1", "spinnaker2", "wse2"])
def test_both_ends_of_what_may_be_narrowed_are_a_machine(name: str) -> None:
    """Counts stay, such as channels of memory, which need not be given."""
    numbers = uncertain_numbers(tiled(name))
    assert not {"memory.channels", "chip.tiles"} & set(numbers)
    for end in ("low", "high"):
        ends = {key: (getattr(each, end), "assumed: an end") for key, each in numbers.items()}
        assert with_values(tiled(name), ends) != tiled(name)
