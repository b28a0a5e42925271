"""Files that 0.1.0 wrote open, resume and are timed again; what they do not say is said.

`data/0.1.0` holds a run with its checkpoint, a mapping, a sweep, a study, a machine and a kernel, made by its commands
from `small.toml` on `own.toml` before results recorded what they belong to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import mimdsim
from mimdsim.pipeline import compile_workload, retime
from mimdsim.pipeline.overrides import load_tiled
from mimdsim.profile import load_profile
from mimdsim.profile.detail import load_beside
from mimdsim.studies.store import load_activity, load_rows
from mimdsim.workload import load_workload

WRITTEN = Path(__file__).resolve().parent / "data" / "0.1.0"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, in which commands run: results of 0.1.0 name their descriptions from there."""
    shutil.copytree(WRITTEN, tmp_path / "0.1.0")
    monkeypatch.chdir(tmp_path / "0.1.0")
    return tmp_path / "0.1.0"


def test_a_run_opens_and_says_nothing_of_inputs_and_code() -> None:
    profile = load_profile(WRITTEN / "run" / "profile.json")
    kernel = load_profile(WRITTEN / "kernel-profile.json")
    assert kernel.findings[0].mood == "good"
    assert (profile.tool_version, profile.inputs, profile.code_sha256) == ("0.1.0", (), "")
    detail = load_beside(WRITTEN / "run" / "profile.json", profile)
    assert detail is not None
    assert profile.tiled is not None
    assert detail.busy.shape[-1] == profile.tiled.tiles


def test_a_finished_training_is_read_and_goes_on(here: Path) -> None:
    written = load_profile(here / "run" / "profile.json")
    assert written.training is not None
    same = mimdsim.run("small.toml", "own.toml", gpus=(), checkpoint="training.npz", resume=True)
    assert same.profile.training is not None
    assert same.profile.training.loss == written.training.loss
    assert same.profile.tiled.cycles == written.tiled.cycles  # type: ignore[union-attr]
    assert "written before inputs and code were recorded" in same.warnings[0]
    longer = mimdsim.run(
        "small.toml", "own.toml", gpus=(), changes={"training.epochs": 3}, checkpoint="training.npz", resume=True
    )
    assert longer.profile.training is not None
    assert longer.profile.training.loss[: len(written.training.loss)] == written.training.loss


@pytest.mark.parametrize("folder", ["sweep", "study"])
def test_rows_and_spikes_are_read(folder: str) -> None:
    for path in (WRITTEN / folder / "points").iterdir():
        (row,) = load_rows(path).values()
        assert row["fits"] is True
    for path in (WRITTEN / folder / "activity").iterdir():
        activity, _, said = load_activity(path)
        assert activity.counts["input"].any()
        assert said == ()


@pytest.mark.parametrize("contexts", [3, 6])
def test_recorded_spikes_take_the_cycles_and_bytes_that_they_took(contexts: int) -> None:
    """To the integer: compiled and timed anew with the spikes of the sweep."""
    (path,) = (WRITTEN / "sweep" / "activity").iterdir()
    activity = load_activity(path)[0]
    workload = load_workload(WRITTEN / "small.toml", {"training.max_training_steps": 2})
    machine = load_tiled(str(WRITTEN / "own.toml"), {"tile.worker_contexts": contexts})
    timed = retime(compile_workload(workload, machine), machine, activity)
    rows = [row for path in (WRITTEN / "sweep" / "points").iterdir() for row in load_rows(path).values()]
    (row,) = (row for row in rows if timed.cycles == round(row["ms_per_training_step"] * 1e6))  # at 1 GHz
    spans = timed.spans
    assert sum(span.compute_cycles for span in spans) == row["compute_cycles"]
    assert sum(span.exchange_cycles for span in spans) == row["exchange_cycles"]
    assert timed.memory.peak_bytes == row["peak_bytes"]


def test_a_sweep_and_a_study_go_on_and_say_what_is_unknown(here: Path) -> None:
    axis = {"tile.worker_contexts": (3, 6)}
    rows = mimdsim.sweep("small.toml", "own.toml", axis, training_steps=2, processes=1, folder=here / "sweep")
    old = (here / "sweep" / "results.csv").read_text().splitlines()[1:]
    assert [f"{row['ms_per_training_step']:g}" for row in rows] == [line.split(",")[2] for line in old]
    studied = mimdsim.study("study.toml", here / "study", processes=1)
    assert "this folder holds 2 rows from before inputs were recorded" in " ".join(studied.warnings)


def test_a_mapping_a_machine_and_a_kernel_are_taken(here: Path) -> None:
    mapped = mimdsim.run("small.toml", "own.toml", gpus=(), mapping="mapping.toml", changes={"training.epochs": 1})
    assert mapped.cycles < load_profile(here / "run" / "profile.json").tiled.cycles  # type: ignore[union-attr]
    checked = mimdsim.check("kernel.py", "own.toml")
    assert checked.passed
    assert np.isfinite([value.max() for value in mapped.gradients.values()]).all()
