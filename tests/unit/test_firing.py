"""Layers that never fire, or always, are said before any time, with a setting that mends it, wherever they count."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from networks import small_network

import mimdsim
from mimdsim.base.console import say
from mimdsim.cli import main
from mimdsim.execution import constant_layers
from mimdsim.pipeline import open_data, train_workload
from mimdsim.profile import FIRING, load_profile
from mimdsim.program import RecordedActivity
from mimdsim.report import marked_as_bad, summary_lines
from mimdsim.report.headline import verdicts
from mimdsim.studies import make_study
from mimdsim.studies.answer_text import answer_lines, firing_warnings
from mimdsim.validation.claims import values_program
from mimdsim.workload import list_workloads, load_workload
from mimdsim.workload.data.sources import INSTEAD, RANDOM_INSTEAD
from mimdsim.workload.description.sections import FILE_SOURCES

DEAD = """
title = "Dead"
seed = 1
[data]
source = "random"
timesteps = 10
input_capacity = 40
inputs = 40
classes = 5
activity = 0.02
train_samples = 40
test_samples = 8
[network]
hidden = [30]
capacity = [20, 5]
decay = 0.9
[training]
batch = 8
learning_rate = 0.001
max_training_steps = 2
weight_scale = 0.5
"""
NETWORK = small_network((6, 4, 3), timesteps=4, batch=2)


@pytest.fixture
def dead(tmp_path: Path) -> str:
    path = tmp_path / "dead.toml"
    path.write_text(DEAD)
    return str(path)


def recorded(dropped: dict[str, int] | None = None, **counts: Any) -> RecordedActivity:
    """Spikes of NETWORK: of the layers named, as they are, of the others one in the first timestep."""
    some = np.zeros((4, 2), np.int32)
    some[0, 0] = 1
    by_layer = {name: np.array(counts.get(name, some), np.int32) for name in ("input", "hidden0", "output")}
    both = {name: np.stack([spikes, spikes], axis=-1) for name, spikes in by_layer.items()}
    return RecordedActivity(ids={}, counts=both, dropped=dropped or {})


NONE, ALL = np.zeros((4, 2)), np.full((4, 2), 4)
LATE = ALL * np.array([[0, 0], [1, 0], [1, 1], [1, 1]])  # all neurons, from the first spike of each sample on


@pytest.mark.parametrize(
    ("activity", "found"),
    [
        (recorded(), {}),
        (recorded(hidden0=NONE), {"hidden0": "never"}),
        (recorded(hidden0=NONE, output=NONE, input=NONE), dict.fromkeys(("input", "hidden0", "output"), "never")),
        (recorded(hidden0=NONE, dropped={"hidden0": 1}), {}),
        (recorded(hidden0=ALL), {"hidden0": "always"}),
        (recorded(hidden0=LATE), {"hidden0": "always"}),
        (recorded(hidden0=ALL - 1, dropped={"hidden0": 8}), {"hidden0": "always"}),
        (recorded(hidden0=ALL - 1, dropped={"hidden0": 7}), {}),
        (recorded(hidden0=np.where(np.arange(8).reshape(4, 2) == 7, 3, 4)), {}),  # one neuron rests once
        (recorded(hidden0=ALL * [[0, 0], [0, 0], [1, 1], [1, 1]]), {}),  # no more than half of the timesteps
        (recorded(hidden0=ALL * [1, 0]), {}),  # one sample is silent
        (recorded(input=np.full((4, 2), 6)), {}),  # an input may be dense
    ],
)
def test_which_layers_are_constant(activity: RecordedActivity, found: dict[str, str]) -> None:
    assert constant_layers(NETWORK, activity) == found


def test_layers_and_inputs_without_spikes_are_not_asked() -> None:
    counts = recorded(hidden0=NONE).counts
    spiking = RecordedActivity(ids={}, counts={"hidden0": counts["hidden0"]}, dropped={})
    quiet = small_network((6, 4, 3), timesteps=4, batch=2, spikes="dense")
    steady = [layer if layer.name == "hidden0" else replace(layer, spiking=False) for layer in quiet.layers]
    network = replace(quiet, layers=tuple(steady), encoding="image")
    assert constant_layers(network, spiking) == {"hidden0": "never"}


def run(workload: str, changes: dict[str, Any] | None = None, **more: Any) -> mimdsim.Run:
    return mimdsim.run(workload, "bow", changes=changes, **{"gpus": (), **more})


def found_settings(text: str) -> dict[str, str]:
    return dict(re.findall(r"--set ([a-z_.]+)=(\S+)", text))


def test_a_silent_layer_is_said_before_any_time(dead: str, tmp_path: Path) -> None:
    """On the console, on the page, in the profile that is read again, and in what the API returns."""
    made = run(dead, gpus=("a100",), report=tmp_path / "report")
    profile = load_profile(tmp_path / "report" / "profile.json")
    assert profile.findings == made.profile.findings
    page = (tmp_path / "report" / "report.html").read_text()
    said = "Layers hidden0 and output never fire in the training step that is timed"
    assert verdicts(profile)[0].subject == FIRING
    assert verdicts(profile)[0].mood == "bad"
    assert verdicts(profile)[0].text.startswith(said)
    lines = summary_lines(profile)
    assert next(at for at, line in enumerate(lines) if said[:60] in line) < next(
        at for at, line in enumerate(lines) if " ms " in line
    )
    assert page.index(f'<li class="bad"><b>{FIRING}</b><span>{said}') < page.index("per training step")
    assert made.warnings[0].startswith(f"{FIRING}: {said}")
    printed = " ".join(str(made).split())  # folded to lines
    assert printed.index(said) < printed.index("cycles")
    for verdict in verdicts(profile):
        if verdict.subject in ("time", "GPU"):
            assert verdict.mood == "bad"
            assert verdict.text.endswith("This holds for these spikes only: see firing.")


SILENT = {
    "as drawn": {},
    "dense": {"network.spikes": "dense"},
    "little room": {"network.capacity": [1, 1]},
    "high threshold": {"network.threshold": 1e6},
    "whole tensors": {"training.engine": "whole_tensors"},
    "potentials": {"network.output": "membrane"},
    "deep": {"network.hidden": [30, 30, 30], "network.capacity": [20, 20, 20, 5]},
    "recurrent": {"network.recurrence": "all_to_all"},
}
FULL = {
    "network.threshold": 1e-6,
    "network.second_threshold": -100,
    "training.weight_offset": 1.0,
    "data.activity": 0.3,
}


@pytest.mark.parametrize("changes", [*SILENT.values(), FULL], ids=[*SILENT, "always"])
def test_what_is_advised_was_tried_and_mends_it(dead: str, changes: dict[str, Any]) -> None:
    (finding,) = (one for one in run(dead, changes).profile.findings if one.name == FIRING)
    assert not finding.passed
    assert ("always fire" if changes is FULL else "never fire") in finding.text
    settings = found_settings(finding.text)
    assert settings
    mended = run(dead, changes | {key: float(value) for key, value in settings.items()})
    assert not any(one.name == FIRING for one in mended.profile.findings)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data.activity": 0.0}, "The input never spikes .* data.activity = 0 is the chance of a spike: raise it"),
        (
            {"network.hidden": [30] * 3, "network.capacity": [20] * 3 + [5], "data.timesteps": 2},
            r"No input spike gets to hidden2 and output in 2 timesteps: .* data.timesteps must be over 3",
        ),
        (
            {"training.initial_weights": "zeros.npz"},
            "No value that was tried of .*initial_activity, .*network.threshold, network.second_threshold mends",
        ),
    ],
)
def test_what_no_weights_mend_is_said(
    dead: str, changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(dead).parent)
    np.savez("zeros.npz", **{"w.hidden0": np.zeros((40, 30), "f4"), "w.output": np.zeros((30, 5), "f4")})
    (finding,) = (one for one in run(dead, changes).profile.findings if one.name == FIRING)
    assert re.search(said, finding.text)


@pytest.mark.parametrize(
    "changes",
    [
        {"training.weight_scale": 8},
        {"training.weight_scale": 8, "training.max_training_steps": 1},
        {"training.weight_scale": 8, "network.spikes": "dense"},
        {"training.weight_scale": 8, "network.output": "membrane"},
    ],
)
def test_layers_that_work_say_nothing(dead: str, changes: dict[str, Any]) -> None:
    made = run(dead, changes)
    assert made.profile.findings == ()
    assert all(verdict.mood != "bad" for verdict in verdicts(made.profile) if verdict.subject == "time")


def test_a_layer_that_fires_in_other_batches_is_only_warned_of(dead: str) -> None:
    """Inputs so few that most batches have none: not a network that never fires."""
    made = run(dead, {"data.activity": 4e-4, "training.weight_scale": 60, "seed": 5})
    assert made.profile.findings == ()
    assert any("in the training step that is timed, but not in each of 8 other batches" in one for one in made.warnings)


def test_a_training_that_silences_layers_is_told_apart(dead: str) -> None:
    few = {"data.train_samples": 32, "data.input_capacity": 8}
    changes = {"training.weight_scale": 1, "training.max_training_steps": 3, **few}
    text = " ".join(one.text for one in run(dead, changes).profile.findings)
    assert "With the initial weights they do otherwise" in text


@pytest.mark.slow
def test_points_of_sweeps_and_studies_carry_it(dead: str, tmp_path: Path) -> None:
    axes = {"training.weight_scale": (0.5, 8)}
    silent, works = mimdsim.sweep(dead, "bow", axes, training_steps=1, processes=1)
    assert "Layers hidden0 and output never fire" in silent["note"]
    assert "fire" not in works["note"]
    given = make_study("s", workloads=[dead], machine="bow", axes=axes, training_steps=1)
    studied = mimdsim.study(given, tmp_path / "study", processes=1)
    (said,) = firing_warnings(studied)
    assert said.startswith("1 of 2 points (training.weight_scale = 0.5): Layers hidden0 and output never fire")
    lines = list(answer_lines(studied))
    assert lines[0] == f"! {said}"
    best = lines.index("Best in time of 2 points: training.weight_scale = 0.5.")
    assert lines[best + 1].startswith("It has layers that never fire, or always")
    again = mimdsim.study(given, tmp_path / "study", processes=1, as_is=True)
    assert firing_warnings(again) == [said]
    filled = mimdsim.sweep(dead, "bow", axes, fill=0.0, processes=1)  # lists that a user empties
    assert not any("fire" in row["note"] for row in filled)


@pytest.mark.slow
def test_the_page_and_the_console_of_a_sweep_begin_with_it(dead: str, tmp_path: Path) -> None:
    call = ["sweep", dead, "bow", "--set", "training.weight_scale=0.5,8", "--training-steps", "1", "--processes", "1"]
    told = CliRunner().invoke(main, [*call, "--out", str(tmp_path / "out")], color=True)
    assert told.exit_code == 0, told.output
    lines = (line for line in told.output.splitlines() if not line.startswith("working, for"))  # of a busy machine
    first, second = next(lines), next(lines)
    assert first.startswith("\x1b[31m! 1 of 2 points")
    assert second.startswith("\x1b[31m   ")
    assert told.output.index(first) < told.output.index("ms/step")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index('<li class="bad">1 of 2 points') < page.index('<li class="good">')


@pytest.mark.slow
def test_a_mapping_that_is_searched_for_silent_layers_says_so(dead: str) -> None:
    found = mimdsim.place(dead, "bow", training_steps=1, candidates=1, processes=1)
    assert found.doubted == ("Layers hidden0 and output never fire in the training step that is timed",)


def test_what_is_wrong_is_red_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["  memory      Fits", "! firing      Layer output", "              never fires", "  time        1 ms", ""]
    assert [bad for _, bad in marked_as_bad(lines)] == [False, True, True, False, False]

    @click.command()
    def told() -> None:
        say("! wrong", bad=True)

    assert CliRunner().invoke(told, color=True).output == "\x1b[31m! wrong\x1b[0m\n"
    assert CliRunner().invoke(told).output == "! wrong\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert CliRunner().invoke(told, color=True).output == "! wrong\n"


SHIPPED = [name for name in list_workloads() if load_workload(name).data.source in FILE_SOURCES]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("braille", "nmnist-256", "shd-3") else pytest.mark.slow)
        for name in SHIPPED
    ],
)
def test_what_replaces_recordings_makes_layers_fire(name: str) -> None:
    """The suggestion, on every shipped workload that reads files; layers that no spike can reach are left out."""
    few = {"data.train_samples": 48, "data.test_samples": 1, "training.max_training_steps": 1}
    plain = {"training.evaluate": "never", "training.validation_share": 0, "training.keep_best": False}
    workload = load_workload(name, {**RANDOM_INSTEAD, **few, **plain, "training.engine": "program"})
    assert all(f"--set {key}={value}" in INSTEAD for key, value in RANDOM_INSTEAD.items())
    compiled = values_program(workload)
    constant = constant_layers(compiled.network, train_workload(workload, compiled, open_data(workload)).activity)
    reached = {layer.name for index, layer in enumerate(compiled.network.layers) if index < workload.data.timesteps}
    assert not constant.keys() & reached
