"""Traces in Chrome's format: their times are the profile's cycles, and viewers can read them."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.base.units import parse_numbers
from mimdsim.cli import main
from mimdsim.pipeline import Run
from mimdsim.profile import RunProfile
from mimdsim.profile.detail import DETAIL_FILE, Detail
from mimdsim.report.trace import write_trace

# https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: what each kind of event must have
EVERY = {"ph", "ts", "pid", "tid", "name"}
REQUIRED = {"X": EVERY | {"dur", "cat"}, "C": EVERY | {"args"}, "M": EVERY | {"args"}}
REQUIRED |= {"s": EVERY | {"id", "cat"}, "f": EVERY | {"id", "cat", "bp"}}


@lru_cache
def made(chips: int = 1) -> Run:
    short = {"data.timesteps": 6, "training.batch": 8, "training.max_training_steps": 1, "training.evaluate": "never"}
    return mimdsim.run("digits", "bow", gpus=(), changes=short | {"chip.tiles": 96 // chips, "links.chips": chips})


def parts(run: Run) -> tuple[RunProfile, Detail]:
    return run.profile, run.detail


def traced(tmp_path: Path, chips: int = 1, **options: Any) -> tuple[dict[str, Any], str]:
    path = tmp_path / "trace.json"
    said = write_trace(path, *parts(made(chips)), **options)
    return json.loads(path.read_text()), said


def threads(trace: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The lasting events by names of process and thread, in the order of the file."""
    named = {
        (event["name"], event["pid"], event["tid"] if event["name"] == "thread_name" else 0): event["args"].get("name")
        for event in trace["traceEvents"]
        if event["ph"] == "M"
    }
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            process, thread = named["process_name", event["pid"], 0], named["thread_name", event["pid"], event["tid"]]
            found[process, thread].append(event)
    return dict(found)


@pytest.mark.parametrize("chips", [1, 2])
def test_durations_are_the_cycles_of_the_profile(tmp_path: Path, chips: int) -> None:
    run, (trace, _) = made(chips), traced(tmp_path, chips, tiles=(0, 41))
    clock, tracks = run.machine.chip.clock_hz, threads(trace)

    def check(events: list[dict[str, Any]], cycles: int) -> None:
        assert sum(event["args"]["cycles"] for event in events) == cycles
        assert sum(event["dur"] for event in events) == pytest.approx(cycles / clock * 1e6, abs=1e-3 * len(events))

    on_path = tracks["critical path", "supersteps"]
    tiled = run.tiled
    for phase, cycles in (
        ("compute", tiled.compute_cycles),
        ("exchange", tiled.exchange_cycles),
        ("sync", tiled.sync_cycles),
    ):
        check([event for event in on_path if event["cat"] == phase], cycles)
    check([event for event in on_path if "executions" in event["args"]], run.tiled.cycles)
    for (process, thread), events in tracks.items():
        if process.startswith("chip "):
            tile = int(thread.removeprefix("tile "))
            assert process == f"chip {tile * chips // run.detail.tiles}"
            check([event for event in events if event["cat"] == "compute"], int(run.detail.busy[:, tile].sum()))
            check([event for event in events if event["cat"] == "exchange"], int(run.detail.exchange[:, tile].sum()))
    busiest = int(run.detail.busy.sum(axis=0).argmax())
    drawn = {thread for process, thread in tracks if process.startswith("chip ")}
    assert {"tile 0", "tile 41", f"tile {busiest}"} <= drawn


@pytest.mark.parametrize("chips", [1, 2])
def test_events_of_a_thread_follow_or_hold_each_other(tmp_path: Path, chips: int) -> None:
    trace, _ = traced(tmp_path, chips, timesteps=True)
    times = [event["ts"] for event in trace["traceEvents"]]
    assert times == sorted(times)
    for events in threads(trace).values():
        open_until: list[float] = []
        for event in events:
            end = round(event["ts"] + event["dur"], 3)
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_tiles_of_one_chip_stay_within_the_critical_path(tmp_path: Path) -> None:
    tracks = threads(traced(tmp_path)[0])
    ends = {
        event["args"]["superstep"]: round(event["ts"] + event["dur"], 3)
        for event in tracks["critical path", "supersteps"]
        if "superstep" in event["args"]
    }
    for (process, _), events in tracks.items():
        for event in events if process == "chip 0" else ():
            if event["args"]["superstep"] in ends:
                assert event["ts"] + event["dur"] <= ends[event["args"]["superstep"]] + 1e-3


def test_arrows_pair_up_inside_events(tmp_path: Path) -> None:
    trace, _ = traced(tmp_path)
    starts = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "s"}
    ends = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "f"}
    assert len(starts) > 20
    assert starts.keys() == ends.keys()
    lasting = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        for one in (start, ends[number]):
            assert any(
                (event["pid"], event["tid"]) == (one["pid"], one["tid"])
                and event["ts"] <= one["ts"] <= event["ts"] + event["dur"]
                for event in lasting
            )


@pytest.mark.parametrize("chips", [1, 2])
def test_the_file_is_as_the_format_asks(tmp_path: Path, chips: int) -> None:
    trace, _ = traced(tmp_path, chips, timesteps=True)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert trace["otherData"]["cycles"] == made(chips).cycles
    numbers = defaultdict(set)
    for event in trace["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys(), event
        assert all(isinstance(event[name], int) and event[name] > 0 for name in ("pid", "tid"))
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
        elif event["ph"] != "M":
            numbers[event["tid"]].add(event["pid"])
    assert all(len(processes) == 1 for processes in numbers.values())
    fullest = [event["args"]["bytes"] for event in trace["traceEvents"] if event["name"].startswith("memory")]
    assert max(fullest) == made(chips).tiled.memory.peak_bytes


def test_timesteps_one_by_one(tmp_path: Path) -> None:
    detail = made().detail
    tracks = threads(traced(tmp_path, timesteps=True)[0])
    whole = next(events for (_, thread), events in tracks.items() if thread == "timesteps")
    assert sum(event["name"] == "forward 3" for event in whole) == 1
    backward = [
        event["name"] for event in whole if event["name"].startswith("backward ") and event["name"][9:].isdigit()
    ]
    assert backward == [f"backward {timestep}" for timestep in range(5, -1, -1)]
    busiest = int(detail.busy.sum(axis=0).argmax())
    of_tile = [
        event
        for (process, thread), events in tracks.items()
        if process.startswith("timestep") and thread == f"tile {busiest}"
        for event in events
    ]
    assert sum(event["args"]["cycles"] for event in of_tile) == detail.window[:, :, busiest].sum()


@pytest.mark.parametrize("most", [0, 40, 700, 3000])
def test_no_more_events_than_allowed(tmp_path: Path, most: int) -> None:
    trace, said = traced(tmp_path, tiles=range(96), timesteps=True, most_events=most)
    assert len(trace["traceEvents"]) <= max(most, 10)  # names of tracks are always there
    assert "left out: " in said
    assert trace["otherData"]["left_out"]


def test_a_file_with_room_for_all_leaves_nothing_out(tmp_path: Path) -> None:
    _, whole = traced(tmp_path, timesteps=True, tiles=range(96))
    assert "left out" not in whole


def test_tiles_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MimdsimError, match=r"-1, 96: bow.* has tiles 0 to 95"):
        traced(tmp_path, tiles=(3, -1, 96))
    with pytest.raises(MimdsimError, match="-2 busiest"):
        traced(tmp_path, busiest=-2)
    assert list(parse_numbers("0, 7,40-42", 96, "tiles")) == [0, 7, 40, 41, 42]
    assert list(parse_numbers("all", 3, "tiles")) == [0, 1, 2]
    for wrong in ("x", "1-", "-4", "9-2", "96", "1" * 30, "٣x"):
        with pytest.raises(MimdsimError, match=r"^tiles: "):
            list(parse_numbers(wrong, 96, "tiles"))


def test_the_command_writes_one_and_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mimdsim.profile import save_profile
    from mimdsim.profile.detail import save_detail

    monkeypatch.setattr("mimdsim.report.write_report", lambda *_: [])  # takes seconds, and is tested elsewhere
    profile = tmp_path / "profile.json"
    save_profile(profile, made().profile)
    asked = ["report", str(profile), "--out", str(tmp_path / "page"), "--trace", str(tmp_path / "trace.json.gz")]
    told = CliRunner().invoke(main, asked)
    assert told.exit_code == 2
    assert DETAIL_FILE in told.output
    assert "mimdsim run" in told.output
    save_detail(tmp_path / DETAIL_FILE, made().detail)
    told = CliRunner().invoke(main, [*asked, "--trace-tiles", "5-6", "--trace-timesteps"])
    assert told.exit_code == 0, told.output
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert ("chip 0", "tile 5") in threads(trace)
    told = CliRunner().invoke(main, [*asked[:4], "--trace-tiles", "5"])
    assert told.exit_code == 2
    assert "--trace FILE" in told.output


def test_the_trace_processor_reads_it(tmp_path: Path) -> None:
    processor = pytest.importorskip("perfetto.trace_processor")
    shell = shutil.which("trace_processor_shell")
    traced(tmp_path, chips=2, timesteps=True)
    try:
        config = processor.TraceProcessorConfig(bin_path=shell)
        opened = processor.TraceProcessor(trace=str(tmp_path / "trace.json"), config=config)
    except Exception as problem:  # whatever keeps the package from downloading its program
        pytest.skip(f"no trace_processor_shell on PATH and none to download: {str(problem)[:100]}")
    with opened as trace:
        cycles = "extract_arg(arg_set_id, 'args.cycles')"
        found = next(iter(trace.query(f"select sum({cycles}) as n from slice where category = 'compute'"))).n
        written = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert found == sum(event["args"]["cycles"] for event in written if event.get("cat") == "compute")
        assert next(iter(trace.query("select count(*) as n from flow"))).n == sum(e["ph"] == "f" for e in written)
        wrong = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        assert [(each.name, each.value) for each in trace.query(wrong)] == []
