"""Advice: each piece is a change that was compiled and timed, and that its command makes."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shlex
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.base.processes import background_processes
from mimdsim.machine import changed_machine
from mimdsim.pipeline import Run
from mimdsim.pipeline.overrides import parse_changes
from mimdsim.pipeline.pipeline import SHORT
from mimdsim.pipeline.what_if import Lever, Request, mapping_levers
from mimdsim.profile import load_profile, save_profile
from mimdsim.profile.records import SCHEMA_VERSION
from mimdsim.report import summary_lines
from mimdsim.report.headline import MOST_ADVICE, verdicts

SMALL = {"data.timesteps": 6, "training.batch": 8, "training.max_training_steps": 1, "chip.tiles": 200}


@cache
def small_run() -> Run:
    return mimdsim.run("digits", "bow", changes=SMALL, gpus=())


def test_short_trainings_look_for_no_advice_by_themselves() -> None:
    assert small_run().profile.advice == ()


@pytest.mark.slow
def test_advice_saves_time_most_first() -> None:
    found = small_run().advice
    assert len(found) > 3
    assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)
    for one in found:
        assert one.gain_low <= one.gain <= one.gain_high
        assert one.gain > 0
        assert one.before > one.after
        assert 1 - one.cycles / small_run().cycles == pytest.approx(one.gain, abs=0.01)  # the host stream is the rest


@pytest.mark.slow
def test_what_the_background_looks_for_and_draws_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates and figures by other processes while this one trains, and by this one after it: the same bytes."""
    monkeypatch.setattr("mimdsim.pipeline.pipeline.WORTH_LOOKING", 0)
    changes = SMALL | {"training.max_training_steps": SHORT, "training.evaluate": "never", "chip.tiles": 60}
    written = []
    for count in (1, 2, 4):
        monkeypatch.setattr("os.cpu_count", lambda count=count: count)
        made = mimdsim.run("digits", "bow", changes=changes, gpus=(), report=tmp_path / str(count))
        assert made.profile.advice
        written.append({path.name: path.read_bytes() for path in (tmp_path / str(count)).rglob("*.*")})
    alone, *others = written
    for each in others:
        assert each.keys() == alone.keys()
        assert [name for name, data in alone.items() if data != each[name]] == []
    assert multiprocessing.active_children() == []


def test_what_a_killed_process_leaves_is_done_here() -> None:
    with background_processes(None) as background:
        if background is None:
            pytest.skip("one processor")
        made = background.begin(_doubled_here, os.getpid(), range(5))
        assert made() == [0, 2, 4, 6, 8]
        assert background.begin(_doubled_here, os.getpid(), [3])() == [6]
    assert multiprocessing.active_children() == []


def test_later_work_finds_what_was_kept() -> None:
    with background_processes(None) as background:
        if background is None:
            pytest.skip("one processor")
        assert background.begin(_doubled, None, [1, 2], _keep)() == [2, 4]
        assert background.begin(_beside_kept, None, [5])() == [[2, 4, 5]]
    assert not _KEPT


_KEPT: list[int] = []  # of the process beside this one


def _doubled(_: None, number: int) -> int:
    return 2 * number


def _keep(_: None, _numbers: Sequence[int], made: list[int]) -> None:
    _KEPT.extend(made)


def _beside_kept(_: None, number: int) -> list[int]:
    return [*_KEPT, number]


def test_what_cannot_be_sent_is_done_here() -> None:
    def local(given: int, number: int) -> int:
        return given + number

    with background_processes(None) as background:
        if background is None:
            pytest.skip("one processor")
        assert background.begin(local, 1, [1, 2, 3])() == [2, 3, 4]
        assert background.begin(local, 1, [])() == []


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4])
def test_large_results_are_not_waited_for(seconds: float) -> None:
    """Processes that end while they send something leave none waiting for the rest."""
    before = time.monotonic()
    with background_processes(None) as background:
        if background is None:
            pytest.skip("one processor")
        background.begin(_large, 100_000_000, [1, 2])
        time.sleep(seconds)
    assert time.monotonic() - before < 20


def _large(size: int, _: int) -> bytes:
    return bytes(size)


def test_few_tiles_have_levers() -> None:
    """Where as many copies as advice asks for cannot be."""
    for tiles in (4, 8, 16):
        case = dataclasses.replace(
            small_run().case, machine=changed_machine(small_run().machine, {"chip.tiles": tiles})
        )
        assert list(mapping_levers(case))


def _doubled_here(process: int, number: int) -> int:
    if os.getpid() != process:
        os._exit(9)
    return 2 * number


def test_what_is_not_waited_for_ends() -> None:
    before = time.monotonic()
    with background_processes(None) as background:
        if background is None:
            pytest.skip("one processor")
        background.begin(_sleep, 60.0, [1, 2])
    assert time.monotonic() - before < 20
    assert multiprocessing.active_children() == []


def _sleep(seconds: float, _: int) -> None:
    time.sleep(seconds)


@pytest.mark.slow
@pytest.mark.parametrize("at", range(3))
def test_what_its_command_makes_is_what_was_said(at: int) -> None:
    one = small_run().advice[at]
    words = shlex.split(one.command)
    assert words[:4] == ["mimdsim", "run", "digits", "bow"]
    assert set(words[4::2]) == {"--set"}
    workload, machine = parse_changes(tuple(words[5::2]))
    again = mimdsim.run("digits", "bow", changes=workload | machine, gpus=())
    assert again.cycles == pytest.approx(one.cycles, rel=0.005)  # other sums, hence a few other spikes
    assert again.tiled.memory.peak_bytes - small_run().tiled.memory.peak_bytes == one.more_bytes
    obtained = 1 - again.tiled.seconds_per_training_step / small_run().tiled.seconds_per_training_step
    assert one.gain_low <= obtained <= one.gain_high


def test_a_change_of_the_machine_is_the_same_as_another_machine() -> None:
    run = small_run()
    found = run.what_if({"exchange.bytes_per_cycle": 8.0})
    faster = run.retime(mimdsim.load_machine("bow", {"chip.tiles": 200, "exchange.bytes_per_cycle": 8.0}))
    assert found.cycles == faster.cycles
    assert found.kind == "machine"
    assert f"{100 * found.gain:.1f} % less time" in str(found)
    slower = run.what_if({"exchange.bytes_per_cycle": 1.0})
    assert slower.gain < 0
    assert "more time" in str(slower)
    assert str(run.what_if({"tile.sram_bytes": "512 KiB"})) == "tile.sram_bytes = 512 KiB: the same time and memory"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"training.batch": 4}, DescriptionError, "only fields of the mapping and of a machine's sections"),
        ({"mapping": {}}, DescriptionError, "only fields of the mapping"),
        ({"chip": {"tiles": 3}}, DescriptionError, "only fields of the mapping"),
        ({"tile.worker_contexts.x": 3}, DescriptionError, "only fields of the mapping"),
        ({"mapping.program.x": 3}, DescriptionError, "no such field"),
        ({"chip.clock_hz": 1.85}, DescriptionError, "clock_hz"),
        ({"tile.worker_context": 4}, DescriptionError, "worker_contexts"),
        ({"mapping.split.hidden0.batch": 0}, DescriptionError, "batch"),
        ({"tile.sram_bytes": 50_000}, DoesNotFit, "then needs"),
        ({"mapping.split.hidden0.neurons": 5000}, MappingError, "take at most 256"),
    ],
)
def test_what_cannot_be_is_said(changes: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        small_run().what_if(changes)


def test_levers_are_steps_from_the_mapping_that_is_there() -> None:
    case = small_run().case
    names = [lever.what for lever in mapping_levers(case)]
    assert len(names) == len(set(names))
    best = dataclasses.replace(case, options=case.options.model_copy(update={"program": "best", "id_bytes": 2}))
    fewer = [lever.what for lever in mapping_levers(best)]
    assert not any("rule" in name and "copies" not in name for name in fewer)
    assert not any("2 bytes" in name for name in fewer)
    assert Lever.of({"mapping.id_bytes": 2}).kind == "mapping"


def test_a_command_can_be_pasted() -> None:
    asked = Request(workload="my work/x.toml", machine="bow", mapping="m.toml", changes={"data.path": "a b"})
    assert shlex.split(asked.command({"mapping.program": ["merge"]})) == [
        *("mimdsim", "run", "my work/x.toml", "bow", "--mapping", "m.toml"),
        *("--set", "data.path=a b", "--set", 'mapping.program=["merge"]'),
    ]


@pytest.mark.parametrize(
    "value",
    [
        *(7, 0.5, True, "adam", "7", "true", "624 KiB", "every:5", "a'b", 'a"b', "1e9", "inf", "nan", "0x10", "[x]"),
        *([1, 2], ["merge"], {"batch": 2}, {"a": "b"}, (64, 64), [], "2026-11-23", "", " x ", "'x'"),
    ],
)
def test_a_command_says_the_value(value: object) -> None:
    command = Request(workload="w", machine="m", changes={}).command({"mapping.x": value})
    workload, _ = parse_changes(tuple(shlex.split(command)[5::2]))
    expected = list(value) if isinstance(value, tuple) else value
    assert workload == {"mapping.x": expected}
    assert type(workload["mapping.x"]) is type(expected)
    assert shlex.join(shlex.split(command)) == command


def test_a_command_says_each_key_once() -> None:
    asked = Request(
        workload="w", machine="m", changes={"mapping.split.a.batch": 2, "mapping.split.ab.batch": 3, "x.y": 1}
    )
    words = shlex.split(asked.command({"mapping.split.a": {"batch": 4}, "x.y": 2}))
    assert words[5::2] == ["mapping.split.ab.batch=3", "mapping.split.a={ batch = 4 }", "x.y=2"]
    assert asked.command({"x.z": None}) == ""


@pytest.mark.slow
def test_advice_on_what_was_changed_already_can_be_taken() -> None:
    changes = SMALL | {"mapping.program": ["merge"], "tile.worker_contexts": 64}
    run = mimdsim.run("digits", "bow", changes=changes, gpus=())
    for one in run.advice[:2]:
        workload, machine = parse_changes(tuple(shlex.split(one.command)[5::2]))
        again = mimdsim.run("digits", "bow", changes=workload | machine, gpus=())
        assert again.cycles == pytest.approx(one.cycles, rel=0.005)
    compared = mimdsim.compare("digits", ("a100", "bow"), changes=SMALL)
    assert compared.advice[0].command.startswith("mimdsim run digits bow --set ")
    loaded = mimdsim.run(
        mimdsim.load_workload("digits", {k: v for k, v in SMALL.items() if k != "chip.tiles"}), gpus=()
    )
    assert {one.command for one in loaded.advice} == {""}


@pytest.mark.slow
def test_machines_without_optional_numbers_get_advice(tmp_path: Path) -> None:
    text = mimdsim.machine.find_machine("tiny").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "exchange_share" not in line]
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    changes = {"network.hidden": (12,), "network.capacity": (6, 4), "data.timesteps": 6, "training.batch": 8}
    run = mimdsim.run("digits", str(path), changes=changes | {"training.max_training_steps": 1}, gpus=())
    assert {one.kind for one in run.advice} == {"mapping", "machine"}


@pytest.mark.slow
def test_the_summary_begins_with_the_best_advice(tmp_path: Path) -> None:
    run = small_run()
    profile = dataclasses.replace(run.profile, advice=run.advice)
    save_profile(tmp_path / "profile.json", profile)
    assert load_profile(tmp_path / "profile.json") == profile
    said = [one.text for one in verdicts(profile) if one.subject == "advice"]
    assert said == [f"{one}." for one in run.advice[:MOST_ADVICE]]
    lines = summary_lines(profile)
    text = " ".join(line.strip().removesuffix("\\").strip() for line in lines)
    for one in run.advice[:MOST_ADVICE]:
        assert one.command in text
    assert max(len(line) for line in lines) <= 110


@pytest.mark.parametrize(("version", "lacking"), [(3, ("advice",)), (4, ()), (5, ())])
def test_profiles_of_older_versions_are_read(version: int, lacking: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(path, small_run().profile)
    older = json.loads(path.read_text(encoding="utf-8"))
    assert (older["schema_version"], len(older.pop("sha256"))) == (SCHEMA_VERSION, 64)
    older["schema_version"] = version
    for name in lacking:
        assert older.pop(name) == []
    assert older["tiled"].pop("silicon")["process"] == "TSMC N7"
    if version < 5:
        assert older["tiled"].pop("costs_of_another") == []
    path.write_text(json.dumps(older), encoding="utf-8")
    tiled = small_run().profile.tiled
    assert tiled is not None
    without = dataclasses.replace(tiled, silicon=None)
    assert load_profile(path) == dataclasses.replace(small_run().profile, tiled=without)
