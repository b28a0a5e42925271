"""Inference after a training: what is recorded, that its parts add up, and how it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import mimdsim
from mimdsim.cli import main
from mimdsim.pipeline.result import Run
from mimdsim.profile import load_profile
from mimdsim.report.headline import verdicts

SMALL = {"network.hidden": (24,), "network.capacity": (6, 10), "training.max_training_steps": 8}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("inference") / "run"
    return mimdsim.run("digits", "tiny", gpus=("a100",), changes=SMALL, inference=True, report=folder)


@pytest.mark.slow
def test_parts_of_an_inference_add_up(made: Run) -> None:
    one, batch = made.inference
    assert (one.batch, batch.batch) == (1, 48)
    for each in (one, batch):
        ours = each.tiled
        assert ours.timestep_seconds is not None
        assert ours.device_seconds == pytest.approx(each.timesteps * ours.timestep_seconds + each.fixed_seconds)
        assert 0 < ours.device_low < ours.device_seconds < ours.device_high
        assert each.slowest_seconds >= ours.latency_seconds
        assert ours.latency_seconds > ours.seconds_per_batch
        assert each.peak_bytes < made.tiled.memory.peak_bytes
    assert one.runs == 16
    assert one.tiled.device_seconds < batch.tiled.device_seconds < made.tiled.seconds(made.tiled.cycles)
    assert [gpu.machine for gpu in one.gpus] == ["a100"]


@pytest.mark.slow
def test_an_inference_is_told_and_read_back(made: Run, tmp_path: Path) -> None:
    said = [one.text for one in verdicts(made.profile) if one.subject == "inference"]
    assert said[0].startswith("One sample takes ")
    assert "us a timestep if its spikes arrive one by one" in said[0]
    assert mimdsim.run("digits", "tiny", gpus=(), changes=SMALL).inference == ()


@pytest.mark.slow
def test_the_command_prints_and_writes_it(tmp_path: Path) -> None:
    keys = ["network.hidden=[24]", "network.capacity=[6, 10]", "training.max_training_steps=8"]
    changes = [part for key in keys for part in ("--set", key)]
    result = CliRunner().invoke(
        main, ["run", "digits", "tiny", *changes, "--inference", "--verbose", "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 0, result.output
    assert "Inference, the forward pass alone" in result.output
    assert "Inference: the forward pass alone" in (tmp_path / "run" / "report.html").read_text()
    read = load_profile(tmp_path / "run" / "profile.json")
    assert [each.batch for each in read.inference] == [1, 48]
