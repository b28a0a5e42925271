"""What commands print: the verdict in a terminal's 25 lines, everything, nothing but a path, or one JSON document."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import mimdsim
from random_profile import make_profile

from mimdsim.profile import Change, Finding, RunProfile
from mimdsim.report import headline_record, short_lines, summary_lines
from mimdsim.report.console import SHORT_LINES, SHORT_WIDTH
from mimdsim.report.headline import verdicts

WHOLE = make_profile()
LONG = "a layer of a name that is not short, which goes on and on; and on. " * 5


def without_room(profile: RunProfile) -> RunProfile:
    assert profile.tiled is not None
    memory = dataclasses.replace(profile.tiled.memory, limit_bytes=profile.tiled.memory.peak_bytes - 1)
    return dataclasses.replace(profile, tiled=dataclasses.replace(profile.tiled, memory=memory))


def wordy(profile: RunProfile) -> RunProfile:
    """With more to say of everything than there is room for."""
    assert profile.tiled is not None
    beside = tuple(dataclasses.replace(profile.tiled, machine=f"m{at}", title=LONG) for at in range(6))
    return dataclasses.replace(
        profile,
        workload_title=LONG,
        warnings=(LONG, LONG, "short"),
        findings=(Finding(name="firing", passed=False, text=LONG), *profile.findings),
        changes=(Change(key="training.epochs", value="2"), Change(key="network.hidden", value=LONG)),
        tiled_beside=beside,
    )


PROFILES = {
    "whole": WHOLE,
    "without GPUs": dataclasses.replace(WHOLE, gpus=(), training=None),
    "does not fit": without_room(WHOLE),
    "several chips": dataclasses.replace(
        WHOLE, tiled=WHOLE.tiled and dataclasses.replace(WHOLE.tiled, chips=2), tiled_beside=()
    ),
    "wordy": wordy(WHOLE),
    "wordy, does not fit": without_room(wordy(WHOLE)),
    "only GPUs": dataclasses.replace(WHOLE, tiled=None, tiled_beside=(), advice=()),
}


@pytest.mark.parametrize("name", PROFILES)
def test_the_short_form_fits_a_terminal(name: str) -> None:
    profile, page = PROFILES[name], Path("reports/digits-bow/report.html")
    lines = short_lines(profile, page)
    assert len(lines) <= SHORT_LINES
    assert max(map(len, lines)) <= SHORT_WIDTH
    assert all(line.isprintable() for line in lines)
    text = "\n".join(lines)
    assert f"Report: {page}" in text
    assert "--verbose" in lines[-1]
    for subject in ("memory", "time") if profile.tiled is not None else ("GPU",):
        assert f"\n  {subject:<11} " in text or f"\n! {subject:<11} " in text
    assert "Energy" not in text
    assert len(lines) < len(summary_lines(profile))


def test_of_several_of_a_kind_the_first_is_told_with_their_number() -> None:
    lines = short_lines(dataclasses.replace(WHOLE, warnings=("one thing", "another")))
    assert sum("one thing" in line for line in lines) == 1
    assert "1 more of 'warning'" in lines[-1]
    assert not any("another" in line for line in lines)


@pytest.mark.parametrize("name", PROFILES)
def test_the_record_has_the_headline_figures(name: str) -> None:
    profile = PROFILES[name]
    found = headline_record(profile)
    wrong = [one.name for one in profile.findings if one.mood != "good"]
    assert [text.partition(":")[0] for text in found["warnings"][: len(wrong)]] == wrong
    assert bool(wrong) == ("wordy" in name)
    tiled = profile.tiled
    if tiled is None:
        assert "time" not in found
        return
    assert found["time"] == {
        "value": tiled.seconds_per_training_step,
        "unit": "s",
        "low": tiled.seconds_low,
        "high": tiled.seconds_high,
    }
    assert found["cycles"]["value"] == sum(found[part]["value"] for part in ("compute", "exchange", "sync"))
    assert found["peak_memory"]["limit"] == tiled.memory.limit_bytes
    assert found["fits"] is tiled.memory.fits
    for one in found["machines"]:
        assert one["reference"] or one["why_not_compared"] or one["ratio_to_reference"]["unit"] == "1"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`mimdsim run` without the run; what it was called with."""
    called: dict[str, Any] = {}

    def run(*_: object, **given: Any) -> SimpleNamespace:
        called.update(given)
        given["progress"]("training", 1, 2)
        return SimpleNamespace(profile=WHOLE)

    monkeypatch.setattr("mimdsim.api.run", run)
    return called


def test_run_prints_as_much_as_it_is_asked_for(ran: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "here"
    given = ("run", "digits", "tiny", "--out", str(folder))
    assert mimdsim(*given, "--quiet") == f"{folder}\n"
    short, verbose = mimdsim(*given), mimdsim(*given, "--verbose")
    assert short.splitlines() == short_lines(WHOLE, folder / "report.html")
    assert verbose.splitlines() == [*summary_lines(WHOLE), "", f"Report: {folder / 'report.html'}"]
    document = json.loads(mimdsim(*given, "--json"))
    assert document["written"] == str(folder)
    assert document["time"]["value"] == WHOLE.tiled.seconds_per_training_step  # type: ignore[union-attr]
    assert set(document) == {*headline_record(WHOLE), "written"}
    told = mimdsim(*given, "--quiet", "--json", code=2)
    assert "--quiet and --json exclude each other" in told


def test_keys_of_the_record_are_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "using.md").read_text()
    undocumented = [key for key in (*headline_record(WHOLE), "written") if f"`{key}`" not in page]
    assert undocumented == []


@pytest.mark.slow
def test_sweeps_studies_and_searches_take_the_same_options(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "s"))
    sweep = ("sweep", "digits", "tiny", "--fill", "0.5", "--set", "tile.worker_contexts=3,6", *out)
    assert mimdsim(*sweep, "--quiet") == f"{tmp_path / 's'}\n"
    short = mimdsim(*sweep).splitlines()
    assert len(short) <= SHORT_LINES
    assert any("times the first" in line for line in short)
    assert "compute" not in short[0]
    found = json.loads(mimdsim(*sweep, "--json"))
    assert [point["tile.worker_contexts"] for point in found["points"]] == [3, 6]
    assert found["complete"] is True
    place = ("place", "digits", "tiny", "--candidates", "3", "--processes", "1")
    assert "Front of time" not in (brief := mimdsim(*place))
    assert "All lists of spikes are 50 % full" in brief
    assert "Front of time" in mimdsim(*place, "--verbose")
    assert mimdsim(*place, "--quiet") == ""
    best = json.loads(mimdsim(*place, "--json"))["best"]
    assert best["time"]["unit"] == "s"
    assert best["fits"] is True


def test_a_step_that_waits_for_the_host_is_said_to() -> None:
    device = WHOLE.tiled.seconds(WHOLE.tiled.cycles)
    held = dataclasses.replace(WHOLE.tiled, host_seconds=4 * device, host_exposed_seconds=3 * device)
    said = {one.subject: one.text for one in verdicts(dataclasses.replace(WHOLE, tiled=held))}
    assert re.match(r"The host: the device needs .* and waits for 75.0 % of the time; a faster one", said["bottleneck"])
    assert "would save at most 0 ms (0.0 %)" in said["balance"]
