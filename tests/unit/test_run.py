"""One run, whole: files, determinism, and what the page is drawn from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import mimdsim

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import changes_mark
from mimdsim.base.units import is_kind
from mimdsim.pipeline.result import recorded_changes
from mimdsim.profile import Change, load_profile
from mimdsim.profile.records import SCHEMA_VERSION

FEW = ("data.timesteps=6", "data.train_samples=96", "data.test_samples=48", "training.max_training_steps=2")
SHORT = tuple(part for field in FEW for part in ("--set", field))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without its figures."""
    made = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mimdsim.report.page.FIGURES", ())
        mimdsim("run", "digits", "bow", "--out", str(made), *SHORT)
    return made


@pytest.fixture(scope="module")
def drawn_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("drawn")
    mimdsim("run", "digits", "bow", "--out", str(made), *SHORT)
    return made


def assert_written(folder: Path, *more: str) -> None:
    names = {path.name for path in folder.iterdir()}
    assert {"report.html", "profile.json", "tiles.csv", "supersteps.csv", "liveness.csv", *more} <= names
    assert (folder / "report.html").stat().st_size < 5 << 20
    assert not list(folder.rglob("*.tmp"))


def test_run_writes_page_tables_and_profile(folder: Path) -> None:
    assert_written(folder)


@pytest.mark.slow  # drawing takes most of a short run
def test_run_writes_figures_too(drawn_folder: Path) -> None:
    assert_written(drawn_folder, "figures")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn, where only profiles are looked at: drawing takes most of a short run."""
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())


@pytest.mark.usefixtures("no_figures")
def test_same_seed_same_bytes(folder: Path, tmp_path: Path) -> None:
    mimdsim("run", "digits", "bow", "--out", str(tmp_path), *SHORT)
    assert (tmp_path / "profile.json").read_bytes() == (folder / "profile.json").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_another_seed_gives_another_profile(folder: Path, tmp_path: Path) -> None:
    mimdsim("run", "digits", "bow", "--out", str(tmp_path), *SHORT, "--set", "seed=7")
    assert (tmp_path / "profile.json").read_bytes() != (folder / "profile.json").read_bytes()


def test_profile_adds_up(folder: Path) -> None:
    profile = load_profile(folder / "profile.json")
    tiled = profile.tiled
    assert tiled is not None
    assert tiled.seconds_low < tiled.seconds_per_training_step < tiled.seconds_high
    # time is the sum of its parts, and no tile is busy for longer than the chip computes
    assert tiled.cycles == tiled.compute_cycles + tiled.exchange_cycles + tiled.sync_cycles
    assert max(tiled.tile_columns.busy_cycles) <= tiled.compute_cycles
    assert sum(tiled.tile_columns.busy_cycles) == sum(span.busy_cycles for span in tiled.spans)
    assert sum(tiled.tile_columns.bytes_received) == sum(span.bytes_received for span in tiled.spans)
    assert tiled.memory.peak_bytes == max(tiled.tile_columns.peak_bytes)
    assert all(is_kind(assumption.kind) for assumption in tiled.assumptions)
    assert all(assumption.source for assumption in tiled.assumptions)


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_what_set_changed_is_recorded_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ("training.learning_rate=0.01", "network.capacity=[300,12,10]", "training.batch=120")
    settings = [part for field in (*fields, "tile.worker_contexts=3") for part in ("--set", field)]
    monkeypatch.chdir(tmp_path)
    output = mimdsim("run", "digits", "bow", "--gpu", "none", "--verbose", *settings, *SHORT)
    (folder,) = (tmp_path / "reports").iterdir()
    assert re.fullmatch("digits-bow-set-[0-9a-f]{6}", folder.name)  # no unchanged run is replaced
    profile = load_profile(folder / "profile.json")
    assert profile.tiled is not None
    assert profile.tiled.title == "Graphcore Bow IPU (1,472 tiles, 1.85 GHz) (changed)"
    assert profile.changes == (
        Change(key="data.test_samples", value="48"),
        Change(key="data.timesteps", value="6"),
        Change(key="data.train_samples", value="96"),
        Change(key="network.capacity", value="[300, 12, 10]"),
        Change(key="tile.worker_contexts", value="3"),
        Change(key="training.batch", value="120"),
        Change(key="training.learning_rate", value="0.01"),
        Change(key="training.max_training_steps", value="2"),
    )
    first = " ".join(output.partition("Verdict")[0].split())
    assert "changed by --set: data.test_samples = 48, data.timesteps = 6, data.train_samples = 96, " in first
    assert "network.capacity = [300, 12, 10], tile.worker_contexts = 3, training.batch = 120, " in first
    assert "training.learning_rate = 0.01, " in first
    header = (folder / "report.html").read_text().partition("</header>")[0]
    assert "<b>network.capacity</b> = [300, 12, 10]" in header
    assert "<b>training.learning_rate</b> = 0.01" in header
    said = "\n".join(profile.warnings)
    assert "network.capacity: 300 for the 256 neurons of hidden0" in said
    assert "training.batch = 120, but there are 96 samples to train on (data.train_samples = 96)" in said


def test_the_order_of_changes_makes_no_other_record() -> None:
    given: dict[str, Any] = {"training.batch": 3, "data.bin_seconds": "1 ms", "network.bias": True}
    recorded = recorded_changes(given)
    assert recorded == recorded_changes(dict(reversed(given.items())))
    assert [(each.key, each.value) for each in recorded] == [
        ("data.bin_seconds", "1 ms"), ("network.bias", "true"), ("training.batch", "3"),
    ]  # fmt: skip


def test_a_profile_that_lacks_what_was_changed_is_refused(folder: Path, tmp_path: Path) -> None:
    table = json.loads((folder / "profile.json").read_text())
    assert table.pop("changes")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(table))
    with pytest.raises(DataFileError, match="field 'changes' is missing"):
        load_profile(path)


def test_a_profile_with_true_for_a_number_is_refused(folder: Path, tmp_path: Path) -> None:
    table = json.loads((folder / "profile.json").read_text())
    table["tiled"]["spans"][0]["times"] = True
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(table))
    with pytest.raises(DataFileError, match=r"field 'tiled.spans.0.times': True would be read as 1"):
        load_profile(path)


def test_gpu_side_shows_the_published_and_the_strong_baseline(folder: Path) -> None:
    strategies = {gpu.strategy for gpu in load_profile(folder / "profile.json").gpus}
    assert {"as_published", "as_published_synchronised", "graph_replay", "hoisted"} <= strategies


@pytest.mark.slow
def test_report_is_drawn_from_the_profile_alone(drawn_folder: Path, tmp_path: Path) -> None:
    output = mimdsim("report", str(drawn_folder / "profile.json"), "--out", str(tmp_path))
    assert (tmp_path / "report.html").read_bytes() == (drawn_folder / "report.html").read_bytes()
    assert "ms per training step" in output


@pytest.mark.usefixtures("no_figures")
def test_compare_puts_machines_side_by_side(tmp_path: Path) -> None:
    mimdsim("compare", "digits", "mk2", "h100", "v100", "--out", str(tmp_path), *SHORT)
    profile = load_profile(tmp_path / "profile.json")
    assert profile.tiled is not None
    assert profile.tiled.machine == "mk2"
    assert {gpu.machine for gpu in profile.gpus} == {"h100", "v100"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not JSON"),
        (json.dumps({"schema_version": 99}), "has schema_version 99"),
        (json.dumps({"schema_version": SCHEMA_VERSION, "seed": 0}), "field"),
    ],
)
def test_a_bad_profile_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    assert message in mimdsim("report", str(path), code=2)


def test_a_missing_profile_is_refused(tmp_path: Path) -> None:
    assert "no such profile" in mimdsim("report", str(tmp_path / "none.json"), code=2)


def test_folders_of_changed_runs_tell_changes_apart() -> None:
    assert changes_mark({}) == ""
    assert changes_mark({"a": 1, "b": 2}) == changes_mark({"b": 2, "a": 1})
    assert changes_mark({"a": 1}) != changes_mark({"a": 2})
