"""Parts of a study alone: who works on which point, what is written of a point, how keys and values are read."""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from math import exp, hypot
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from invented_runs import TWICE, energy, gpu, swept, tiled

from mimdsim.base import __version__
from mimdsim.base.errors import DescriptionError, DoesNotFit, MimdsimError
from mimdsim.base.processes import ENDED
from mimdsim.pipeline.overrides import load_line_up, parse_changes, split_changes
from mimdsim.studies import executors, make_study, runner, worker, write_figures
from mimdsim.studies.executors import AHEAD, Batch, Local
from mimdsim.studies.files import write_tables
from mimdsim.studies.points import Point, Points, parse_axes, parse_axis
from mimdsim.studies.results import RESULTS, gpu_columns, table_value, with_ratios
from mimdsim.studies.runner import run_study

# who works


class FakePool:
    """Runs what is submitted at once; points in `killers` break the pool, and what comes after them in it too."""

    def __init__(self, killers: set[int]):
        self.killers, self.broken = killers, False

    def submit(self, work: Any, points: tuple[int, ...], *more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        self.broken |= bool(self.killers & set(points))
        try:
            done.set_exception(BrokenProcessPool()) if self.broken else done.set_result(work(points, *more))
        except MimdsimError as problem:
            done.set_exception(problem)
        return done


def worked_on(
    monkeypatch: pytest.MonkeyPatch, batches: list[tuple[int, ...]], processes: int, killers: set[int], bad: set[int]
) -> tuple[list[int], dict[int, str]]:
    """How many processes each pool had, and why there is nothing of some points; '' of the others."""
    sizes = []

    @contextlib.contextmanager
    def made(count: int) -> Iterator[FakePool]:
        sizes.append(count)
        yield FakePool(killers)

    def work(points: Any, spikes: Any, more: str) -> Any:
        assert (spikes, more) == ({"a": 1}, "more")
        if bad & set(points):
            raise MimdsimError(f"no disk for {points[0]}")
        return [10 * point for point in points]

    monkeypatch.setattr(executors, "process_pool", made)
    given: Any = [Batch(points=points, spikes={"a": 1}) for points in batches]  # type: ignore[arg-type]
    told: dict[int, str] = {}
    engine = Local(processes)
    for done in itertools.chain(engine.each(work, iter(given), "more"), engine.each(work, iter(()), "more")):
        points: Any = done.batch.points
        assert done.problem is not None or done.found == [10 * point for point in points]
        assert not set(points) & set(told)
        told |= dict.fromkeys(points, str(done.problem or ""))
    assert sorted(told) == sorted(point for points in batches for point in points)
    return sizes, told


def test_batches_are_shared_out_and_a_killer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = dict.fromkeys(range(5), "")
    single = [(point,) for point in range(5)]
    assert worked_on(monkeypatch, single, 3, set(), set()) == ([3], fine)
    assert worked_on(monkeypatch, single, 1, set(), {1}) == ([], fine | {1: "no disk for 1"})
    assert worked_on(monkeypatch, [(0, 1), (2, 3, 4)], 2, set(), {3}) == (
        [2], fine | dict.fromkeys((2, 3, 4), "no disk for 2"),
    )  # fmt: skip
    # the processes are those of the call before; after a kill they are new ones
    # twice together, then alone: the one in work broke it, and the others have their two tries again
    assert worked_on(monkeypatch, single, 3, {2}, {4}) == ([3, 3, 1, 3], fine | {2: ENDED, 4: "no disk for 4"})
    assert worked_on(monkeypatch, single, 4, {1, 3}, set()) == ([4, 4, 1, 4, 4, 1, 4], fine | {1: ENDED, 3: ENDED})
    # points of one batch: only the one at fault has no result
    assert worked_on(monkeypatch, [(0, 1, 2, 3, 4)], 2, {3}, set()) == ([2, 2, 1, 2], fine | {3: ENDED})


def test_batches_are_taken_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process finds points to claim, because none are claimed long before they are worked on."""
    taken: list[int] = []

    def batches() -> Iterator[Batch]:
        for point in range(50):
            taken.append(point)
            yield Batch(points=(point,), spikes={})  # type: ignore[arg-type]

    @contextlib.contextmanager
    def made(count: int) -> Iterator[FakePool]:
        yield FakePool(set())

    monkeypatch.setattr(executors, "process_pool", made)
    with contextlib.closing(Local(2).each(lambda points, spikes: None, batches())) as done:
        next(done)
        assert len(taken) == AHEAD * 2


def test_failures_of_ours_are_raised_after_all_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def work(points: Any, *_: Any) -> Any:
        asked.append(points)
        return [ZeroDivisionError(f"of {point.workload.seed}") for point in points]

    monkeypatch.setattr(runner, "time_points", work)
    study = make_study("test", workloads=["digits"], axes={"seed": (1, 2, 3)}, fill=0.5)
    with pytest.raises(ZeroDivisionError, match="of 1"):
        run_study(study, tmp_path, Local(1), lambda *_: None)
    assert len(asked) == 3


# a point


def invented_point(**changes: Any) -> Any:
    machine = SimpleNamespace(tile=SimpleNamespace(sram_bytes=1_000))
    workload = SimpleNamespace(training=SimpleNamespace(batch=8), seed=7)
    usual = {
        "workload": workload,
        "machine": machine,
        "fill": 0.5,
        "gpus": (),
        "changes": (),
        "key": "k",
        "activity_key": "a",
    }
    return SimpleNamespace(**(usual | {"best_mapping": 0, "infers": False, "columns": ()} | changes))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A point whose program and profile are invented; its memory is `peak` bytes."""
    held: dict[str, Any] = {"peak": 1_000, "executable": True}
    memory = SimpleNamespace(peak_bytes=0)
    placement = SimpleNamespace(neurons_per_tile=3)
    made = SimpleNamespace(network=None, program="p", placement=placement, memory=memory)

    def compiled(*_: Any) -> Any:
        memory.peak_bytes = held["peak"]
        return made

    profile = tiled(
        seconds_low=0.0812345678912, seconds_high=0.1212345678912, clock_hz=1.7e6, energy=energy(0.8), **TWICE
    )
    monkeypatch.setattr(worker, "PROGRAMS", SimpleNamespace(compiled=compiled))
    monkeypatch.setattr(worker, "filled_activity", lambda network, fill: f"filled {fill}")
    monkeypatch.setattr(worker, "retime", lambda compiled, machine, activity: profile)
    monkeypatch.setattr(worker, "fits_executable", lambda memory, machine: held["executable"])
    said = lambda compiled, machine, changes: (f"costs of {compiled.program}", "one", "two")  # noqa: E731
    monkeypatch.setattr(worker, "machine_warnings", said)
    monkeypatch.setattr(worker, "half_warning", lambda workload: ("three",))
    return held


def test_the_row_of_a_point(held: dict[str, Any]) -> None:
    (row,) = worker.time_points([invented_point()], {})
    assert isinstance(row, dict)
    parts = row.pop("seconds_by_source")
    assert parts == [["all of invented", pytest.approx(0.0902617647059), pytest.approx(0.0309728031853)]]
    assert row == {
        "ms_per_training_step": 90.261765, "ms_low": 81.234568, "ms_high": 121.234568, "compute_cycles": 123_000,
        "exchange_cycles": 22_940, "sync_cycles": 705, "tile_balance": 0.7714, "tiles_used": 10, "neurons_per_tile": 3,
        "peak_bytes": 1_000, "limit_bytes": 1_000, "fits": True, "millijoules": 700.0, "millijoules_low": 549.068492,
        "millijoules_high": 892.420539, "area_mm2": 900.0, "area_mm2_low": 700.0, "area_mm2_high": 1_100.0,
        "static_watts": 4.431555, "static_watts_low": 3.9884, "static_watts_high": 4.874711,
        "dynamic_watts": 3.323666, "dynamic_watts_low": 1.883411, "dynamic_watts_high": 4.763922,
        "samples_per_second": 88.631, "samples_per_joule": 11.429, "accuracy": None,
        "gpu_ratio": None, "gpu_ratio_low": None, "gpu_ratio_high": None,
        "note": "costs of p; one; two; three", "seed": 7, "tool_version": __version__, "digest": "k",
    }  # fmt: skip
    for peak, executable in ((1_001, True), (1_000, False)):
        held |= {"peak": peak, "executable": executable}
        (row,) = worker.time_points([invented_point()], {})
        assert isinstance(row, dict)
        assert row["fits"] is False


def test_a_point_of_too_few_tiles_is_timed_on_gpus_alone(held: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise DoesNotFit("too few")

    profiles = (
        gpu("A", "as_published", 0.0612345678912),
        gpu("A", "fused", 0.0412345678912, precision="tf32", energy=energy(0.3123456789)),
        gpu("A", "ideal", 0.01, never_built=True),
    )
    monkeypatch.setattr(worker, "PROGRAMS", SimpleNamespace(compiled=refused))
    monkeypatch.setattr(worker, "network_of", lambda workload: workload)
    monkeypatch.setattr(worker, "training_graph", lambda network: network)
    timed = {"a": profiles, "b": profiles[2:], "c": profiles[:1]}
    monkeypatch.setattr(worker, "time_on_gpus", lambda graph, gpus, activity: (timed[gpus[0].name], ()))
    gpus = tuple(SimpleNamespace(name=name) for name in timed)
    (row,) = worker.time_points([invented_point(gpus=gpus)], {})
    assert isinstance(row, dict)
    assert (row["fits"], row["note"], row["ms_per_training_step"]) == (False, "too few", None)
    assert {name: row[name] for name in gpu_columns("a")} == {
        "a published_ms": 63.148148, "a strongest_ms": 42.523148, "a strongest_low_ms": 30.925926,
        "a strongest_high_ms": 61.851852, "a strongest": "fused, tf32", "a strongest_mj": 273.302469,
    }  # fmt: skip
    assert {row[name] for name in gpu_columns("b")} == {None}
    assert row["c published_ms"] == row["c strongest_ms"] == 63.148148
    assert row["c strongest_mj"] is None


def test_as_many_processes_as_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processes in ((6, 6), (None, 1)):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        assert Local().workers == processes


# results


def test_ratios_are_to_the_first_point_with_a_time() -> None:
    seconds = [None, [["a", 2.0, 0.5], ["", 1.0, 0.0]], [["a", 4.0, 1.0], ["b", 0.5, 0.1234567]], []]
    rows = with_ratios([{"n": n, "seconds_by_source": found} for n, found in enumerate(seconds)])
    assert [row["n"] for row in rows] == [0, 1, 2, 3]
    ratios = [(row["ratio"], row["ratio_low"], row["ratio_high"]) for row in rows]
    assert ratios[1] == (1.0, 1.0, 1.0)
    # a: 1 of 4.5 less 0.5 of 3; b alone: 0.1234567 of 4.5
    reach = exp(hypot(1 / 4.5 - 0.5 / 3, 0.1234567 / 4.5))
    assert ratios[2] == pytest.approx((1.5, 1.5 / reach, 1.5 * reach), abs=1e-6)
    assert ratios[0] == ratios[3] == (None, None, None)
    (row,) = with_ratios(rows[2:3], reference=rows[1])
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == ratios[2]


def test_values_in_one_word() -> None:
    assert table_value({"a": [1, 2], "b": {"c": 3}}) == "a=1-2 b=c=3"
    assert (table_value((64, 32)), table_value([]), table_value("x y"), table_value(2.5)) == ("64-32", "", "x y", 2.5)


def test_figures_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.report.style.picture", lambda figure: b"png")
    rows = swept(2, axis="seed", values=(1, 2, 3))
    assert write_figures(rows, ["seed"], tmp_path) == [tmp_path / "sweep.png"]
    paths = write_figures(rows, ["seed"], tmp_path, ("a100",))
    assert paths == [tmp_path / name for name in ("sweep.png", "crossover.png")]
    assert paths[1].read_bytes() == b"png"


def test_every_row_says_what_it_is_of(tmp_path: Path) -> None:
    study = make_study("test", workloads=["digits"], axes={"seed": [1, 2, 3], "tile.x": ["a", 2, 3]}, gpus=("a100",))
    rows = [
        row | {"workload": "digits", "tile.x": x, "digest": "d"}
        for row, x in zip(swept(2, axis="seed", values=(1, 2, 3)), ("a", 2, 3), strict=True)
    ]
    paths = write_tables(rows, study, tmp_path)
    with paths[0].open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["workload", "seed", "tile.x", *RESULTS, *gpu_columns("a100"), "note", "tool_version", "digest"]
    assert [line[:5] for line in lines] == [
        ["digits", "1", "a", "4.0", "3.0"], ["digits", "2", "2", "9.0", "6.75"], ["digits", "3", "3", "", "5.25"],
    ]  # fmt: skip


@pytest.mark.newest
def test_rows_as_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    study = make_study("test", workloads=["digits"], axes={"seed": [1, 2, 3]})
    rows = [
        row | {"workload": "digits", "seconds_by_source": [["a", 0.5, 0.25]]}
        for row in swept(2, axis="seed", values=(1, 2, 3))
    ]
    rows[2]["seconds_by_source"] = None
    _, path = write_tables(rows, study, tmp_path)
    table = parquet.read_table(path)
    assert table["seed"].to_pylist() == [1, 2, 3]
    assert table["ms_per_training_step"].to_pylist() == [row["ms_per_training_step"] for row in rows]
    assert table["seconds_by_source"].to_pylist() == [[{"source": "a", "seconds": 0.5, "half_width": 0.25}]] * 2 + [[]]


# points


def test_keys_and_values_as_they_are_given() -> None:
    assert parse_axis(" a.b = 1, 2.5 ,true,,[1, 2], {x=1, y=[3, 4]},x y ") == (
        "a.b", (1, 2.5, True, [1, 2], {"x": 1, "y": [3, 4]}, "x y"),
    )  # fmt: skip
    for text in ("a.b", "a.b=", "a.b= , ,", "=", "a.b=1\n2,3"):
        with pytest.raises(DescriptionError):
            parse_axis(text)
    assert parse_changes(("training.batch=8", "tile.sram_bytes='1 KiB'", "seed = 3")) == (
        {"training.batch": 8, "seed": 3}, {"tile.sram_bytes": "1 KiB"},
    )  # fmt: skip
    for texts in (("seed",), ("seed=1", "seed =2"), ("nothing.known=1",)):
        with pytest.raises(DescriptionError):
            parse_changes(texts)
    assert split_changes({"links.chips": 2, "data.timesteps": 3}) == ({"data.timesteps": 3}, {"links.chips": 2})


def points_of(workload: str = "digits", training_steps: int = 0, fill: float | None = 0.5, **axes: Any) -> list[Point]:
    named = {key.replace("__", "."): values for key, values in axes.items()}
    study = make_study("test", workloads=[workload], axes=named, training_steps=training_steps, fill=fill)
    points = Points(study)
    return points.of(points.designs())


def test_as_many_points_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.studies.sampling.MAX_POINTS", 4)
    points = points_of(seed=(1, 2), chip__clock_hz=("1 GHz", "2 GHz"))
    assert [(point.workload.seed, point.machine.chip.clock_hz) for point in points] == [
        (1, 1e9), (1, 2e9), (2, 1e9), (2, 2e9),
    ]  # fmt: skip
    assert {point.activity_key for point in points} == {"filled 0.5"}
    assert len({point.key for point in points}) == 4
    assert points[0].workload is points[1].workload  # loaded once
    assert points[0].machine is points[2].machine
    assert points[0].workload.training.max_training_steps == 0
    assert points_of(training_steps=7, fill=1.0)[0].workload.training.max_training_steps == 7
    with pytest.raises(DescriptionError, match="6 points; at most 4"):
        points_of(seed=(1, 2, 3), chip__clock_hz=("1 GHz", "2 GHz"))
    with pytest.raises(DescriptionError, match="seed given twice"):
        parse_axes(("seed=1", "seed=2"))


def test_spikes_depend_on_all_but_mapping_and_names() -> None:
    axes: Any = {"mapping__states_per_worker": (1, 2), "training__batch": (8, 12), "chip__tiles": (1_000, 1_472)}
    keys = [point.activity_key for point in points_of(training_steps=1, fill=None, **axes)]
    assert [keys.index(key) for key in keys] == [0, 0, 2, 2, 0, 0, 2, 2]
    assert {len(key) for key in keys} == {24}


def test_machines_in_a_line_up() -> None:
    some, gpus = load_line_up(["a100", "bow", "h100", "mk2"], {"sync.internal_cycles": 99})
    assert [(one.name, one.sync.internal_cycles) for one in some] == [("bow", 99), ("mk2", 99)]
    assert [one.name for one in gpus] == ["a100", "h100"]
    with pytest.raises(DescriptionError, match="bow given twice"):
        load_line_up(["bow", "mk2", "bow"], {})
    with pytest.raises(DescriptionError, match="no tiled machine among a100, h100"):
        load_line_up(["a100", "h100"], {})
