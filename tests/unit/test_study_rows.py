"""Rows of results from disk and from workers: what a row may hold, and that nothing else becomes one."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.trees import VALUES, changed_tree

import mimdsim
from mimdsim.base.checksummed import write_sealed_json
from mimdsim.base.errors import DataFileError, DescriptionError, DoesNotFit, MimdsimError, of_the_machine
from mimdsim.base.identity import code_digest
from mimdsim.machine import MimdMachine, find_machine, load_machine
from mimdsim.program import RecordedActivity
from mimdsim.studies import make_study
from mimdsim.studies.executors import Local, run_if_same_sources
from mimdsim.studies.files import write_tables
from mimdsim.studies.points import Point, Points
from mimdsim.studies.store import Store, checked_result, load_mapping, load_rows, row_problem
from mimdsim.studies.worker import time_points
from mimdsim.workload import load_workload

AXES: dict[str, tuple[Any, ...]] = {"network.hidden": ([16],), "network.capacity": ([4, 10],), "data.timesteps": (3,)}


def points(machine: str, *, gpus: tuple[str, ...] = (), **axes: tuple[Any, ...]) -> list[Point]:
    given = AXES | {name.replace("__", "."): values for name, values in axes.items()}
    study = make_study("sweep", workloads=["digits"], machine=machine, axes=given, fill=0.5, gpus=gpus)
    made = Points(study)
    return made.of(made.designs())


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Of points that fit and do not, have too few tiles, and whose times are not known; with and without GPUs."""
    foreign = tmp_path_factory.mktemp("machine") / "foreign.toml"
    foreign.write_text(find_machine("tiny").read_text().replace('"colossus"', '"rv32"'))
    made = [
        *points("tiny", gpus=("a100", "v100"), exchange__bytes_per_cycle=(2, 4)),
        *points("tiny", tile__sram_bytes=("8 KiB",)),
        *points("tiny", chip__tiles=(2,)),
        *points(str(foreign)),
    ]
    found = {point.key: row for point in made for row in time_points([point], {})}
    assert not [row for row in found.values() if isinstance(row, Exception)]
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def test_inference_is_timed_where_a_metric_or_a_limit_asks_for_it(tmp_path: Path) -> None:
    """By the forward program of one sample, and its row is another one's."""
    asked: dict[str, dict[str, Any]] = {
        "none": {}, "metric": {"metrics": ("latency",)}, "limit": {"constraints": ("max inference_energy 1 J",)},
    }  # fmt: skip
    found = {}
    for name, more in asked.items():
        study = make_study("sweep", workloads=["digits"], machine="bow", axes=AXES, fill=0.5, **more)
        ((point,), made) = Points(study).of(Points(study).designs()), tmp_path / name
        assert study.infers == point.infers == (name != "none")
        ((row,), made) = time_points([point], {}), tmp_path / name
        assert isinstance(row, dict)
        assert row_problem(point.key, row) == ""
        found[name] = point.key, row
        written = write_tables([{"workload": "digits", **dict(point.changes), **row}], study, made)[0].read_text()
        assert ("latency_ms,latency_ms_low,latency_ms_high" in written) == (name != "none")
    assert found["metric"][0] == found["limit"][0] != found["none"][0]
    row, plain = found["metric"][1], found["none"][1]
    assert {name: row[name] for name in plain if name != "digest"} == {k: v for k, v in plain.items() if k != "digest"}
    assert 0 < row["latency_ms_low"] < row["latency_ms"] < row["latency_ms_high"]
    bow = load_machine("bow")
    assert isinstance(bow, MimdMachine)
    requests_ms = 2e3 * bow.host.request_seconds  # one in, one out; those of training steps hide behind compute
    assert requests_ms < row["latency_ms"] < requests_ms + row["ms_per_training_step"]
    assert 0 < row["inference_millijoules_low"] < row["inference_millijoules"] < row["millijoules"]
    few = AXES | {"chip.tiles": (2,)}
    study = make_study("sweep", workloads=["digits"], machine="tiny", axes=few, fill=0.5, metrics=("latency",))
    (point,) = Points(study).of(Points(study).designs())
    (row,) = time_points([point], {})  # type: ignore[assignment]
    assert row["latency_ms"] is None


def test_every_row_that_is_computed_can_be_read(rows: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    assert len(rows) == 5
    assert {row["fits"] for row in rows.values()} == {True, False}
    assert any(row["ms_per_training_step"] is None for row in rows.values())
    assert [row_problem(key, row) for key, row in rows.items()] == [""] * 5
    write_sealed_json(tmp_path / "rows.json", {"rows": rows})
    assert load_rows(tmp_path / "rows.json") == rows


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"compute_cycles": -1}, "column 'compute_cycles' is -1"),
        ({"compute_cycles": 1.5}, "column 'compute_cycles' is 1.5"),
        ({"sync_cycles": True}, "column 'sync_cycles' is True"),
        ({"ms_per_training_step": "3"}, "column 'ms_per_training_step' is '3'"),
        ({"ms_per_training_step": 1e300}, "column 'ms_per_training_step' is 1e[+]300"),
        ({"seconds_by_source": [["a", 1, 0]]}, "'seconds_by_source' does not come to"),
        ({"ms_low": 1e9}, "no number in an interval"),
        ({"ms_high": None}, "column 'ms_high' is None beside a time"),
        ({"ms_per_training_step": None}, "without a time"),
        ({"fits": None}, "column 'fits' is not true or false"),
        ({"note": 3}, "column 'note' is 3"),
        ({"note": "\ud800"}, "column 'note' is "),
        ({"digest": "a"}, "not that of its point"),
        ({"seed": None}, "column 'seed' is None"),
        ({"accuracy": 2}, "column 'accuracy' is 2"),
        ({"seconds_by_source": [["a", 1]]}, "column 'seconds_by_source' is"),
        ({"seconds_by_source": [["a", 1, -1]]}, "column 'seconds_by_source' is"),
        ({"seconds_by_source": {}}, "column 'seconds_by_source' is"),
        ({"a100 strongest_ms": []}, "column 'a100 strongest_ms' is "),
        ({"a100 strongest_low_ms": None}, "no number in an interval"),
        ({"peak_bytes": 10**400}, "column 'peak_bytes' is 1000"),
        ({"h100 published_ms": 1}, "column 'h100 strongest_ms' is missing"),
        ({"later": []}, r"column 'later' is \[\]"),
    ],
)
def test_a_row_that_was_changed_is_refused_with_file_and_column(
    rows: dict[str, dict[str, Any]], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    changed = copy.deepcopy(rows)
    key = next(iter(changed))
    changed[key] |= changes
    write_sealed_json(tmp_path / "rows.json", {"rows": changed})
    with pytest.raises(DataFileError, match=f"rows.json: .*{said}.*; delete it; its points are computed again"):
        load_rows(tmp_path / "rows.json")
    changed[key] = {name: value for name, value in rows[key].items() if name != next(iter(changes))}
    if next(iter(changes)) in rows[key]:
        assert row_problem(key, changed[key])  # as is a row without it


def test_half_a_character_is_said_as_an_escape(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    write_sealed_json(path, {"mapping": {"tiles": "\ud800"}})
    with pytest.raises(DataFileError, match="is no mapping; the same command searches again"):
        load_mapping(path)
    with pytest.raises(DescriptionError, match=r"'.udcff' is not a number with a unit"):
        points("tiny", tile__sram_bytes=("\udcff",))


@pytest.mark.slow
def test_a_row_without_the_columns_of_a_gpu_is_computed_again(tmp_path: Path) -> None:
    made = points("tiny", gpus=("a100",))
    study = make_study("sweep", workloads=["digits"], machine="tiny", axes=AXES, fill=0.5, gpus=("a100",))
    whole = mimdsim.study(study, tmp_path, processes=1)
    (file,) = (tmp_path / "points").glob("*.json")
    table = json.loads(file.read_text())["rows"]
    for name in [name for name in table[made[0].key] if name.startswith("a100 ")]:
        del table[made[0].key][name]
    write_sealed_json(file, {"rows": table})
    again = mimdsim.study(study, tmp_path, processes=1)
    assert again.rows == whole.rows
    assert f"{file}: a row has no column 'a100 published_ms'; delete it" in again.warnings[0]
    with Store(tmp_path) as store:
        assert made[0].key in store.rows
    assert Local(1).workers == 1


def test_spikes_of_another_network_are_refused(tmp_path: Path) -> None:
    (point,) = points("tiny")
    given = replace(point, fill=None)
    shapes = {"input": (3, 48, 64)}
    activity = RecordedActivity(
        ids={name: np.zeros(shape, np.int32) for name, shape in shapes.items()},
        counts={name: np.zeros((*shape[:2], 2), np.int32) for name, shape in shapes.items()},
        dropped={},
    )
    (found,) = time_points([given], {given.activity_key: (activity, None, ())}, {})
    assert isinstance(found, MimdsimError)
    assert f"activity/{given.activity_key}.npz: the " in str(found)
    assert "delete it: it is recorded again" in str(found)


def test_values_given_twice_are_refused_in_whatever_unit() -> None:
    for axes in ({"seed": (1, 2, 1)}, {"tile.sram_bytes": ("256 KiB", 262144)}, {"network.hidden": ([16], [16])}):
        with pytest.raises(DescriptionError, match="is given twice"):
            points("tiny", **{name.replace(".", "__"): values for name, values in axes.items()})
    assert len(points("tiny", seed=(1, 2))) == 2


def test_results_of_workers_are_taken_as_they_were_found(rows: dict[str, dict[str, Any]]) -> None:
    keys, held = list(rows), [*rows.values()]
    ids, counts = np.arange(12, dtype=np.int32).reshape(2, 2, 3), np.ones((2, 2, 2), np.int32)
    spikes = RecordedActivity(ids={"a.b": ids}, counts={"a.b": counts}, dropped={"a.b": 3})
    failed = [DoesNotFit("too large"), *held[1:]]
    for found in (held, failed, load_workload("digits").mapping, None, (spikes, 0.5, ("no event is used",))):
        assert checked_result(found, keys) is found


def test_failures_of_workers_arrive_as_they_are() -> None:
    def fail(problem: Exception) -> None:
        raise pickle.loads(pickle.dumps(problem))  # as Dask sends it

    for failure, kind in ((DescriptionError("x", ["y"]), MimdsimError), (OSError(28, "full"), OSError)):
        with pytest.raises(kind, match=r"y|full"):
            run_if_same_sources(code_digest(), fail, failure)
    with pytest.raises(KeyError, match="a") as failed:
        run_if_same_sources(code_digest(), fail, KeyError("a"))
    assert not of_the_machine(failed.value)  # it is raised after all points, as one of mimdsim's own


def test_anything_else_from_a_worker_is_refused(rows: dict[str, dict[str, Any]]) -> None:
    keys = list(rows)
    for given in (3, "x", [], {}, ("{}", {}), (None, None, None), *(value for value in VALUES if value is not None)):
        with pytest.raises(MimdsimError, match="a worker returned something else than results"):
            checked_result(given, keys)
    ids = np.zeros((2, 2, 3), np.int32)
    for spikes, accuracy in (
        (RecordedActivity(ids={"a": ids}, counts={}, dropped={}), None),
        (RecordedActivity(ids={"a": ids}, counts={"a": ids[..., :2]}, dropped={"a": -1}), None),
        (RecordedActivity(ids={"a": ids}, counts={"a": ids[..., :2]}, dropped={}), 1.5),
    ):
        with pytest.raises(MimdsimError, match="holds no recorded spikes"):
            checked_result((spikes, accuracy, ()), keys)
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(150):
        try:
            checked_result(changed_tree(copy.deepcopy([*rows.values()]), rng), keys)
        except MimdsimError:
            refused += 1
    assert refused > 100


def test_texts_of_studies_count_in_grammar() -> None:
    """One mechanism for counts and their nouns: no text has a number before a plural that may be 1."""
    package = Path(mimdsim.__file__).parent
    several = re.compile(r"\{[^{}]*\} (?:[a-z]+ ){0,2}(points|notes|axes|samples|timesteps)\b(?! per )")
    known = (
        "points; at most",
        "All {done:,} points",
        'points" if len',
        "of {len(first)} points",
        " axes needs at least",
    )
    known += ("{found.blocks} blocks", " axes need at least", "{len(every):,} timesteps", "{samples} samples")
    files = [*package.glob("studies/*.py"), *package.glob("report/*.py"), *package.glob("cli/*.py")]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(lines) > 5000
    wrong = [line for line in lines if several.search(line) and not any(part in line for part in known)]
    assert wrong == []
