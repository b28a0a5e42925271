"""Study files: what they may say, the points that they mean, and results that come as they are done."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mimdsim
from hypothesis import given
from hypothesis import strategies as st

import mimdsim as package
from mimdsim.base.errors import DescriptionError, MimdsimError
from mimdsim.program import RecordedActivity
from mimdsim.search import parse_limits
from mimdsim.studies import Local, Study, list_studies, make_study, read_study, run_study, write_study
from mimdsim.studies.executors import run_if_same_sources
from mimdsim.studies.expressions import MOST_DEPTH, evaluate, names_in
from mimdsim.studies.metrics import METRICS, over_workloads, parse_constraint
from mimdsim.studies.points import Points, code_digest
from mimdsim.studies.sampling import sample_unit_cube
from mimdsim.studies.store import Store, count_rows

ROOT = Path(__file__).resolve().parents[2]
DELAY = 120  # s, of what a loaded machine starts
FILE = """
question = "How many tiles?"
machine = "bow"
workloads = ["digits"]
fill = 0.5
metrics = ["time", "area"]
constraints = ["max area 826 mm2", "min throughput 1000"]

[axes]
"chip.tiles" = [1000, 1472]
"chip.clock_hz" = { from = "1 GHz", to = "2 GHz", points = 3 }

[coupled]
"tile.sram_bytes" = "900 MB / chip.tiles"
"""


def study_of(**given: Any) -> Study:
    return make_study("test", **({"workloads": ["digits"], "fill": 0.5} | given))


def designs(**given: Any) -> list[dict[str, Any]]:
    return Points(study_of(**given)).designs()


# expressions


def test_expressions_are_arithmetic_over_fields() -> None:
    names = {"chip.tiles": 1472.0, "tile.worker_contexts": 6.0, "seed": 2.0}
    for text, value in {
        "900 MB / chip.tiles": 9e8 / 1472,
        "2 + 3 * 4 ** 2 ** 0.5 - -1": 3 + 3 * 4 ** (2**0.5),
        "-2 ** 2": -4,
        "7 // 2 * 2": 6,
        "min(chip.tiles, 1 KiB) + max(3, seed, 1)": 1027,
        "round(2.6) + floor(2.6) + ceil(2.2) + sqrt(16) + log2(8)": 15,
        " ( 1.5e3 + .5 ) ": 1500.5,
        "1.85 GHz": 1.85e9,
        "min(tile.worker_contexts)": 6,
    }.items():
        assert evaluate(text, names) == pytest.approx(value), text
    assert names_in("900 MB / chip.tiles + max(seed, chip.tiles)") == ("chip.tiles", "seed")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "division by zero"),
        ("1 +", "is missing before 'its end'"),
        ("(1", "')' is missing"),
        ("1 2", "is missing before '2'"),
        ("3 parsec", "is no unit"),
        ("__import__('os')", "cannot be read from"),
        ("a.b", "a.b"),
        ("sqrt(-1)", "math domain error"),
        ("(-1) ** 0.5", "is not a finite number"),
        ("10.0 ** 10 ** 10", ""),
        ("9 ** 9 ** 9 ** 9", ""),
        ("sqrt(1, 2)", "argument"),
        ("round(1.5, 10 ** 9)", "only min and max have more than one argument"),
        ("floor(1e308 * 10)", "grows beyond all numbers"),
        ("-" * (MOST_DEPTH + 1) + "1", "nested over"),
        ("(" * 5000, "over 400 characters"),
        ("", "is missing before"),
    ],
)
def test_what_is_no_expression_is_said(text: str, said: str) -> None:
    begun = time.monotonic()
    with pytest.raises((ValueError, KeyError)) as refused:
        evaluate(text, {})
    assert said in str(refused.value)
    assert time.monotonic() - begun < 1


FIELDS = {"chip.clock_hz": 1e9, "tile.sram_bytes": 1000.0, "chip.tiles": 10.0, "exchange.bytes_per_cycle": 8.0}


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("exchange.fixed_cycles", "100 ns * chip.clock_hz", 100),
        ("exchange.fixed_cycles", "2 * chip.tiles", 20),
        ("links.fixed_seconds", "3 / chip.clock_hz", 3e-9),
        ("links.bytes_per_second", "exchange.bytes_per_cycle * chip.clock_hz", 8e9),
        ("links.bytes_per_second", "64 GB/s / chip.tiles", 6.4e9),
        ("energy.static_watts", "2 pJ / 1 ns", 2e-3),
        ("energy.bundle_joules", "3 pJ/B * 4 B", 12e-12),
        ("tile.sram_bytes", "900 kB/chip.tiles", 9e4),
        ("tile.sram_bytes", "max(tile.sram_bytes - 2 KiB, 0)", 0),
        ("tile.sram_bytes", "sqrt(tile.sram_bytes * 1 kB)", 1000),
        ("tile.sram_bytes", "round(tile.sram_bytes / 3)", 333),
        ("chip.tiles", "tile.sram_bytes / 100 B", 10),
        ("chip.tiles", "log2(tile.sram_bytes / 250 B) ** 2", 4),
        ("network.second_threshold", "0.5", 0.5),
    ],
)
def test_units_are_followed_through_an_expression(field: str, text: str, value: float) -> None:
    assert evaluate(text, FIELDS, field) == pytest.approx(value)


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("exchange.fixed_cycles", "100 ns", "is in seconds, and exchange.fixed_cycles is a plain number; multiply by"),
        ("exchange.fixed_cycles", "min(3, 100 ns)", "min of what is a plain number and what is in seconds"),
        ("tile.sram_bytes", "chip.tiles", "is a plain number, and tile.sram_bytes is in bytes; write units: B, KiB"),
        ("tile.sram_bytes", "638976", "is a plain number"),
        ("tile.sram_bytes", "tile.sram_bytes + 3", "'+' of what is in bytes and what is a plain number"),
        ("tile.sram_bytes", "900 KiB * tile.sram_bytes", "is in bytes^2"),
        ("chip.tiles", "tile.sram_bytes / 7", "is in bytes, and chip.tiles is a plain number"),
        ("chip.clock_hz", "2e9", "in hz; write units: Hz, kHz"),
        ("chip.clock_hz", "1 ns", "is in seconds, and chip.clock_hz is in hz"),
        ("seed", "2 ** (1 KiB)", "an exponent must be a plain number"),
        ("seed", "log2(1 KiB)", "what log2 is taken of must be a plain number"),
        ("data.bin_seconds", "tile.sram_bytes * 1 s / 1 KiB - 1", "'-' of what is in seconds"),
    ],
)
def test_what_has_another_unit_is_refused(field: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        evaluate(text, FIELDS, field)


def test_a_coupled_field_of_another_unit_is_refused() -> None:
    with pytest.raises(DescriptionError, match=r"coupled\.exchange\.fixed_cycles: '100 ns': is in seconds"):
        designs(coupled={"exchange.fixed_cycles": "100 ns"})


@pytest.mark.parametrize("text", ["max memory 200", "max memory 409600", "max time 2", "min energy 3", "max area 826"])
def test_a_limit_needs_its_unit(text: str) -> None:
    with pytest.raises(ValueError, match="has no unit; write it with one of"):
        parse_constraint(text)
    if text.startswith("max") and "area" not in text:
        with pytest.raises(DescriptionError, match="has no unit; write it with one of"):
            parse_limits(text)


@given(st.text(alphabet="0123456789.eE+-*/() ,abckMGB_\"'[]", max_size=60))
def test_no_text_does_anything_but_give_a_number(text: str) -> None:
    try:
        value = evaluate(text, lambda name: 2.0)
    except ValueError:
        return
    assert np.isfinite(value)


# files


def test_a_study_file_and_its_points(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(FILE)
    study = read_study(tmp_path / "s.toml")
    found = Points(study).designs()
    assert [(one["chip.tiles"], one["chip.clock_hz"]) for one in found] == [
        (tiles, clock) for tiles in (1000, 1472) for clock in (1e9, 1.5e9, 2e9)
    ]
    assert {one["tile.sram_bytes"] for one in found} == {900_000, round(9e8 / 1472)}
    write_study(study, tmp_path / "again.toml", command="mimdsim study again.toml")
    assert read_study(tmp_path / "again.toml") == study
    assert (tmp_path / "again.toml").read_text().startswith("# mimdsim study again.toml\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"axis": {}}, "unknown key 'axis'"),
        ({"axes": {"seed": []}}, "has no values"),
        ({"axes": {"seed": {"from": 1}}}, "give a list of values"),
        ({"axes": {"seed": {"from": 1, "to": 2, "step": 1, "points": 2}}}, "either a step, or a number of points"),
        ({"axes": {"seed": {"values": [1], "points": 2}}}, "belong to a range"),
        ({"workloads": {"digits": 0}}, "must be more than 0"),
        ({"workloads": []}, "workloads"),
        ({"metrics": ["speed"]}, "metrics: speed; known: time"),
        ({"constraints": ["area < 3"]}, "write e.g."),
        ({"constraints": ["max aera 3 mm2"]}, "did you mean 'area'"),
        ({"constraints": ["max area 3 KiB"]}, "does not fit mm2"),
        ({"coupled": {"seed": "3 parsec"}}, "coupled.seed"),
        ({"axes": {"seed": [1]}, "coupled": {"seed": "1"}}, "seed given twice"),
        ({"sampling": {"kind": "sobol"}}, "needs a number of points"),
        ({"sampling": {"kind": "grid", "points": 3}}, "leave out points"),
        ({"sampling": {"kind": "all"}}, "sampling.kind"),
        ({"sampling": {"kind": "search", "points": 3}}, "needs axes"),
        ({"fill": 2}, "fill"),
        ({"workloads": [[]]}, "must be names or files"),
        ({"workloads": {"digits": 1e308, "shd-3": 1e308}}, "at most 1,000,000"),  # their sum is no number
        ({"axes": {"chip": {"tiles": [1]}}}, 'one key, in quotes: "chip.tiles"'),  # chip.tiles = [1], as TOML reads it
        ({"changes": {"chip": {"tiles": 1}}}, 'one key, in quotes: "chip.tiles"'),
        (
            {"axes": {"chip.tiles": 736}},
            "'axes.chip.tiles': give a list of values, a range by 'from' and 'to', or a share",
        ),
        ({"axes": [1]}, "'axes': must have keys, with a value each: a dict in Python"),
        ({"sampling": "random"}, "'sampling': must have keys, with a value each: a dict in Python"),
        ({"metrics": ["time", "time"]}, "metrics: time given twice"),
        ({"gpus": ["a100", "models/a100.toml"]}, "gpus: a100 given twice"),
        ({"constraints": ["max area 1e400 mm2"]}, "a finite number is needed"),
        ({"constraints": ["max area nan"]}, "'max area nan': 'nan' is not a number"),
    ],
)
def test_what_is_wrong_with_a_study_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError, match=said.replace("(", r"\(")):
        study_of(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"axes": {"tile.x": [1]}}, "unknown key 'tile.x'"),
        ({"axes": {"tile.x": {"within": 0.1, "points": 2}}}, "no field 'tile.x'"),
        ({"coupled": {"seed": "1 +"}}, "coupled.seed: '1 +'"),
        ({"axes": {"chip.tiles": {"from": 1000, "to": 1001}}}, "needs a step or a number of points"),
        ({"axes": {"chip.clock_hz": {"from": "1 KiB", "to": "2 GHz", "points": 2}}}, "does not fit clock_hz"),
        ({"axes": {"chip.clock_hz": {"from": 2e9, "to": 1e9, "points": 2}}}, "from must be less than to"),
        ({"axes": {"chip.clock_hz": {"from": 1e9, "to": 2e9, "step": 1}}}, "at most 100,000"),
        ({"axes": {"chip.clock_hz": {"from": 1e9, "to": 2e9, "step": float("inf")}}}, "at most 100,000"),
        ({"axes": {"chip.tiles": {"from": -1.7e308, "to": 1.7e308, "points": 3}}}, "both finite"),
        ({"workloads": ["a" * 100_000]}, "(100,000 characters)"),
        ({"axes": {"exchange.model": {"within": 0.1, "points": 2}}}, "'endpoint' is not a number"),
        ({"coupled": {"chip.tiles": "tile.sram_bytes", "tile.sram_bytes": "chip.tiles"}}, "in a circle"),
        ({"coupled": {"chip.tiles": "exchange.model * 2"}}, "exchange.model"),
        ({"coupled": {"chip.tiles": "chip.tile * 2"}}, "no field 'chip.tile'; did you mean 'tiles'"),
        ({"axes": {"nothing.x": [1]}}, "changes: 1 problem\n  - 'nothing.x' (as changed): no section 'nothing'"),
        ({"mapping": "bst"}, "mapping: 1 problem\n  - 'bst' is no file; write one, 'published' or 'best'"),
        ({"mapping": ""}, "mapping: 1 problem\n  - '' is no file"),
        ({"axes": {"seed": [1]}, "reference": "a100"}, "is a GPU"),
        ({"gpus": ["mk2"]}, "is a tiled machine"),
        ({"workloads": ["digit"]}, "digits"),
    ],
)
def test_what_does_not_fit_the_machine_is_said(given: dict[str, Any], said: str) -> None:
    def checked() -> None:
        points = Points(study_of(**given))
        points.of_reference()
        points.of(points.designs())

    with pytest.raises(DescriptionError) as refused:
        checked()
    assert said in str(refused.value)


def test_what_is_wrong_is_said_of_the_study_file(tmp_path: Path) -> None:
    def said(axes: str) -> str:
        (tmp_path / "s.toml").write_text(f'workloads = ["digits"]\nfill = 0.5\n[axes]\n{axes}\n')
        return mimdsim("study", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"), code=2)

    file = tmp_path / "s.toml"
    assert f"{file}: 1 problem\n  - axes.chip.tiles: the step" in said('"chip.tiles" = { from = 1, to = 2, step = -1 }')
    wrong = said('"tile.x" = [1]')
    assert f"{file}: machine 'bow': 1 problem\n  - unknown key 'tile.x' (by the study)" in wrong
    assert "--set" not in wrong


@pytest.mark.slow
def test_a_sweep_is_a_study_that_can_be_saved(tmp_path: Path) -> None:
    arguments = ("sweep", "digits", "bow", "--set", "chip.clock_hz=1 GHz,2 GHz", "--fill", "1", "--processes", "1")
    mimdsim(*arguments, "--out", str(tmp_path / "a"), "--save", str(tmp_path / "s.toml"))
    mimdsim("study", str(tmp_path / "s.toml"), "--processes", "1", "--out", str(tmp_path / "b"))
    assert (tmp_path / "a" / "results.csv").read_bytes() == (tmp_path / "b" / "results.csv").read_bytes()


@pytest.mark.parametrize("name", list_studies())
def test_studies_that_come_with_mimdsim_fit_their_machines(name: str) -> None:
    study = read_study(name)
    assert study.question.endswith("?")
    points = Points(study)
    if study.sampling.kind == "grid":
        chosen = points.designs()
    else:
        chosen = points.varied.at(np.random.default_rng(1).random((4, len(study.axes))))
    for point in points.of([chosen[0], chosen[-1]]):
        assert dict(point.changes).keys() == set(study.varied)


def test_the_example_of_the_docs_is_a_study(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text((ROOT / "docs" / "studies.md").read_text().split("```toml\n")[1].split("```")[0])
    study = read_study(tmp_path / "s.toml")
    points = Points(study)
    (point, other) = points.of(points.varied.at(np.full((1, 3), 0.5)))
    assert point.machine.tile.sram_bytes == round(9e8 / point.machine.chip.tiles)
    assert other.workload.name == "shd-3"


# sampling


def test_ranges_and_shares() -> None:
    contexts = designs(axes={"tile.worker_contexts": {"from": 3, "to": 12, "step": 3}})
    assert [one["tile.worker_contexts"] for one in contexts] == [3, 6, 9, 12]
    clocks = designs(axes={"chip.clock_hz": {"from": "1 GHz", "to": "4 GHz", "points": 3, "log": True}})
    assert [one["chip.clock_hz"] for one in clocks] == pytest.approx([1e9, 2e9, 4e9])
    near = designs(axes={"sync.internal_cycles": {"within": 0.5, "points": 3}})
    assert [one["sync.internal_cycles"] for one in near] == [63, 126, 189]
    sampled = designs(axes={"sync.internal_cycles": {"within": 0.5}}, sampling={"kind": "random", "points": 50})
    values = [one["sync.internal_cycles"] for one in sampled]
    assert all(isinstance(value, int) for value in values)
    assert 63 <= min(values) < 75 < 175 < max(values) <= 189


def test_values_with_units_are_numbers_of_the_field_as_those_of_ranges() -> None:
    """So that tables sort them, figures place them, and the last of them is told from the others."""
    found = designs(axes={"chip.clock_hz": ["1.35 GHz", 2e9], "tile.sram_bytes": ["256 KiB", 400_000]})
    assert [tuple(one.values()) for one in found][::3] == [(1.35e9, 262_144), (2e9, 400_000)]
    assert all(isinstance(one["tile.sram_bytes"], int) for one in found)
    assert designs(axes={"exchange.model": ["planner"]}) == [{"exchange.model": "planner"}]


@pytest.mark.parametrize("kind", ["random", "latin-hypercube", "sobol"])
def test_points_fill_the_space(kind: str) -> None:
    if kind != "random":
        pytest.importorskip("scipy")
    places = sample_unit_cube(kind, 200, 3, seed=5)
    assert places.shape == (200, 3)
    assert (places == sample_unit_cube(kind, 200, 3, seed=5)).all()
    assert (places != sample_unit_cube(kind, 200, 3, seed=6)).any()
    assert places.min() >= 0
    assert places.max() < 1
    counts = np.array([np.histogram(places[:, axis], bins=20, range=(0, 1))[0] for axis in range(3)])
    assert counts.min() >= (2 if kind == "random" else 8)


def test_metrics_of_several_workloads_are_one_number() -> None:
    assert over_workloads(METRICS["time"], [[1.0, 4.0]], [1, 1]) == pytest.approx(2)
    assert over_workloads(METRICS["time"], [[1.0, 4.0]], [3, 1]) == pytest.approx(2**0.5)
    assert over_workloads(METRICS["memory"], [[1.0, 4.0]], [1, 1]) == 4
    assert over_workloads(METRICS["accuracy"], [[0.9, 0.8]], [1, 1]) == 0.8
    assert np.isnan(over_workloads(METRICS["time"], [[1.0, None]], [1, 1]))
    limit = parse_constraint("max time 2 ms")
    assert limit.is_met({"ms_per_training_step": 1.9})
    assert not limit.is_met({"ms_per_training_step": 2.1})
    assert not limit.is_met({"ms_per_training_step": None})
    assert str(limit) == "max time 2 ms"


# results as they come


@pytest.mark.slow
def test_a_study_goes_on_and_several_workloads_stand_side_by_side(tmp_path: Path) -> None:
    axes = {"exchange.bytes_per_cycle": [2, 4]}
    first = package.study(study_of(axes=axes), tmp_path, processes=1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    both = {"digits": 1.0, str(ROOT / "workloads" / "digits.toml"): 1.0}
    more = study_of(axes={"exchange.bytes_per_cycle": [2, 4, 8]}, workloads=both, reference="mk2")
    second = package.study(more, tmp_path, processes=1)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [row["workload"] for row in second.rows] == list(both) * 3
    assert second.designs == 3
    assert second.complete
    assert [row["digest"] for row in first.rows] == [row["digest"] for row in second.rows[:4:2]]
    assert first.rows[0]["ratio"] == 1
    assert all(0 < row["ratio"] < 1 for row in second.rows)  # of a Mk2's
    as_is = package.study(study_of(axes={"exchange.bytes_per_cycle": [2, 16]}), tmp_path, as_is=True)
    assert not as_is.complete
    assert [row["exchange.bytes_per_cycle"] for row in as_is.rows] == [2]


@pytest.mark.slow
def test_a_point_belongs_to_who_claims_it(tmp_path: Path) -> None:
    keys = [f"{number:064x}" for number in (1 << 200, 2 << 200, 7 << 250)]
    script = (
        "import sys; from pathlib import Path; from mimdsim.studies.store import Store\n"
        "with Store(Path(sys.argv[1])) as store:\n"
        "    print([store.claim(key) for key in sys.argv[2:]], flush=True); sys.stdin.read()"
    )

    def other(*asked: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), *asked],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    with Store(tmp_path) as store:
        assert store.claim(keys[0])
        second = other(*keys)
        assert second.stdout is not None
        assert second.stdout.readline() == "[False, True, True]\n"
        assert not store.claim(keys[1])
        second.kill()  # and its claims with it
        second.wait()
        assert store.claim(keys[1])
        store.release(keys[:1])
        third = other(*keys)
        assert third.communicate("")[0] == "[True, False, True]\n"


def test_damaged_spikes_and_mappings_are_named_and_made_again(tmp_path: Path) -> None:
    activity = RecordedActivity(ids={"a": np.ones((1, 1, 1), np.int32)}, counts={"a": np.ones((1, 1))}, dropped={})
    with Store(tmp_path) as store:
        store.save_activity("spikes", (activity, 0.5, ()))
        store.save_mapping("point", None)
        assert store.has_activity("spikes")
        assert store.has_mapping("point")
        paths = [store.activity_path("spikes"), tmp_path / "mappings" / "point.json"]
        for path in paths:
            path.write_bytes(path.read_bytes()[:-9])
        assert not store.has_activity("spikes")
        assert not store.has_mapping("point")
        assert list(store.damaged) == paths
        assert all("the same command" in why for why in store.damaged.values())


@pytest.mark.slow
def test_two_processes_on_one_study_do_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'workloads = ["digits"]\nfill = 0.5\n[axes]\n"chip.tiles" = { from = 1000, to = 1200, step = 10 }\n'
    )
    command = [sys.executable, "-m", "mimdsim", "study", str(tmp_path / "s.toml"), "--processes", "1"]
    both = [subprocess.Popen([*command, "--out", str(tmp_path / "out")], cwd=ROOT) for _ in range(2)]
    assert [one.wait(timeout=300) for one in both] == [0, 0]
    with Store(tmp_path / "out") as store:
        assert len(store.rows) == 21
    assert count_rows(tmp_path / "out") == 21  # in all files: none is kept twice
    mimdsim("study", str(tmp_path / "s.toml"), "--out", str(tmp_path / "alone"), "--processes", "1")
    assert (tmp_path / "alone" / "results.csv").read_bytes() == (tmp_path / "out" / "results.csv").read_bytes()


class Cluster:
    """A real scheduler and its workers on loopback, each a process of its own that a test may kill. Whatever a loaded
    machine delays is waited for: only what never comes fails."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        place = folder / "scheduler.json"
        self._start("scheduler", "--scheduler-file", str(place), "--port", "0", "--no-dashboard", "--host", "127.0.0.1")
        wait_for(lambda: place.exists() and place.read_text().endswith("}"), "a scheduler")  # it is written in parts
        self.address: str = json.loads(place.read_text())["address"]

    def add_workers(self, count: int) -> None:
        distributed = pytest.importorskip("distributed")
        with distributed.Client(self.address, timeout=DELAY, set_as_default=False) as client:
            names = {str(len(self.processes) + number) for number in range(count)}
            for name in sorted(names):
                self._start("worker", self.address, "--name", name, "--nthreads", "1", "--no-nanny", "--no-dashboard")

            def known() -> set[str]:
                return {str(worker["name"]) for worker in client.scheduler_info()["workers"].values()}

            wait_for(lambda: names <= known(), f"workers {names}")

    def kill(self, number: int) -> None:
        os.killpg(self.processes[number].pid, signal.SIGKILL)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _start(self, *what: str) -> None:
        environment = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "distributed.cli.dask_" + what[0], *what[1:]]
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        with log:
            self.processes.append(
                subprocess.Popen(
                    command, cwd=self.folder, env=environment, start_new_session=True, stdout=log, stderr=log
                )
            )


def wait_for(there: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DELAY
    while not there():
        assert time.monotonic() < until, f"{what} did not start in {DELAY} s"
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    (tmp_path / "s.toml").write_text(
        'workloads = ["digits"]\ntraining_steps = 1\n[axes]\n"chip.tiles" = { from = 1000, to = 1190, step = 10 }\n'
    )
    (tmp_path / "dask").mkdir()
    with contextlib.closing(Cluster(tmp_path / "dask")) as started:
        yield started


@pytest.mark.slow
def test_a_study_on_dask_survives_killed_workers(cluster: Cluster, tmp_path: Path) -> None:
    """One of two workers is killed in the middle; then the other one, so that nobody is left who held the spikes."""
    cluster.add_workers(2)
    killed: list[int] = []

    def kill(what: str, done: int, total: int) -> None:
        if what != "timing points":
            return
        if not killed and done > 3:
            cluster.kill(1)
            killed.append(1)
        elif len(killed) == 1 and done > 13:
            cluster.kill(2)
            killed.append(2)
            cluster.add_workers(1)

    study = read_study(tmp_path / "s.toml")
    found = package.study(study, tmp_path / "cluster", dask=cluster.address, progress=kill)
    cluster.close()
    assert killed == [1, 2]
    assert found.complete
    assert not found.failed
    assert count_rows(tmp_path / "cluster") == 20
    with contextlib.closing(Local(2)) as engine:
        run_study(study, tmp_path / "here", engine, lambda *_: None)
    assert (tmp_path / "here" / "results.csv").read_bytes() == (tmp_path / "cluster" / "results.csv").read_bytes()


@pytest.mark.slow
def test_a_scheduler_that_ends_is_said_and_what_is_done_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_workers(1)
    kept: list[int] = []

    def kill(what: str, done: int, total: int) -> None:
        if what == "timing points" and not kept:
            cluster.kill(0)
            kept.append(done)

    with pytest.raises(MimdsimError, match=f"--dask {cluster.address}: the scheduler has ended"):
        package.study(read_study(tmp_path / "s.toml"), tmp_path / "out", dask=cluster.address, progress=kill)
    assert count_rows(tmp_path / "out") >= kept[0] > 0


def test_a_worker_of_other_sources_does_nothing() -> None:
    def nothing(_: object) -> None:
        return None

    assert run_if_same_sources(code_digest(), nothing, 1) is None
    with pytest.raises(MimdsimError, match="has another mimdsim; install the same"):
        run_if_same_sources("another", nothing, 1)


def test_no_scheduler_is_said() -> None:
    pytest.importorskip("distributed")
    from dask import config

    for address in ("", "garbage", "tcp://host", "host:port"):
        with pytest.raises(MimdsimError, match="is no address; write  tcp://HOST:PORT"):
            package.study(study_of(), dask=address)
    soon = {"distributed.comm.timeouts.connect": "0.5s"}
    with config.set(soon), pytest.raises(MimdsimError, match="no scheduler answers"):
        package.study(study_of(), dask="tcp://127.0.0.1:9")
