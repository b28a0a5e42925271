"""Profiles that somebody else made: what cannot be is refused by field, whatever is left is drawn."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import dump_json
from mimdsim.cli import main
from mimdsim.machine import GpuMachine, MimdMachine, load_machine
from mimdsim.pipeline import simulate
from mimdsim.profile import RunProfile, load_profile, save_profile, store, validate
from mimdsim.report import summary_lines, write_report
from mimdsim.report.sections import sections
from mimdsim.report.tables import csv_files
from mimdsim.workload import load_workload

SMALL = {
    **{"data.train_samples": 32, "data.test_samples": 16, "data.timesteps": 4, "data.grid": 8},
    **{"training.batch": 4, "training.epochs": 1, "training.max_training_steps": 2, "network.hidden": [16]},
    **{"network.capacity": [4, 10], "training.schedule": "cosine"},
}
NUMBERS = (-1, 0, 10**400, math.nan, math.inf, 1e308, 2**63 - 1)
HUGE = 10**400


@pytest.fixture(scope="module")
def profile() -> RunProfile:
    """Two tiled machines and a GPU; little of everything."""
    tiled, other, gpu = load_machine("tiny"), load_machine("tiny", {"chip.clock_hz": "2 GHz"}), load_machine("a100")
    assert isinstance(tiled, MimdMachine)
    assert isinstance(other, MimdMachine)
    assert isinstance(gpu, GpuMachine)
    return simulate(load_workload("digits", SMALL), tiled, (gpu,), beside=(other,)).profile


@pytest.fixture(scope="module")
def table(profile: RunProfile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of the profile, as another tool makes it: without a digest."""
    path = tmp_path_factory.mktemp("sound") / "profile.json"
    save_profile(path, profile)
    found: dict[str, Any] = json.loads(path.read_text())
    del found["sha256"]
    return found


def put(table: dict[str, Any], where: str, value: object) -> dict[str, Any]:
    """A copy of `table` with another value at a dotted path."""
    changed = dict(table)
    target: Any = changed
    *parts, last = where.split(".")
    for part in parts:
        key = int(part) if isinstance(target, list) else part
        target[key] = copy.copy(target[key])
        target = target[key]
    target[int(last) if isinstance(target, list) else last] = value
    return changed


def load(table: dict[str, Any], folder: Path) -> RunProfile:
    path = folder / "profile.json"
    path.write_text(json.dumps(table))
    return load_profile(path)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("seed", lambda seed: seed + 1),
        ("workload_title", lambda title: title + "!"),
        ("config_sha256", lambda digest: digest[::-1]),
        ("tiled.spans.0.op", lambda op: op + "s"),
        ("training.loss.0", lambda loss: 2 * loss),
        ("gpus.0.spans.0.seconds", lambda seconds: 2 * seconds),
    ],
)
def test_a_profile_that_was_edited_is_refused(profile: RunProfile, where: str, change: Any, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(path, profile)
    written = json.loads(path.read_text())
    integers = re.sub(r"(?<=[0-9])\.0(?=[,\n])", "", path.read_text())  # as JavaScript writes them
    for text in (json.dumps(written, indent=7), integers):
        path.write_text(text)
        assert load_profile(path) == profile
    value = written
    for part in where.split("."):
        value = value[int(part) if isinstance(value, list) else part]
    edited = put(written, where, change(value))
    with pytest.raises(DataFileError, match="was changed after mimdsim wrote it"):
        load(edited, tmp_path)
    del edited["sha256"]
    assert load(edited, tmp_path) != profile


def test_what_a_run_writes_is_sound(profile: RunProfile, table: dict[str, Any], tmp_path: Path) -> None:
    assert load(table, tmp_path) == profile
    for part in ("tiled", "training"):
        assert load(put(table, part, None), tmp_path)
    for part in ("tiled_beside", "gpus", "activity", "tiled.doubts"):
        assert load(put(table, part, []), tmp_path)


@pytest.mark.first(12)
@pytest.mark.parametrize(
    ("where", "value", "wanted"),
    [
        ("timesteps", 0, "a finite number above 0, below 2^63"),
        ("batch", 0, "a finite number above 0, below 2^63"),
        ("seed", -1, "a finite number of at least 0, below 2^63"),
        ("tiled.clock_hz", 0.0, "a finite number above 0, below 2^63"),
        ("tiled.clock_hz", math.inf, "a finite number above 0, below 2^63"),
        ("tiled.seconds_high", math.nan, "a finite number of at least 0, below 2^63"),
        ("tiled.seconds_low", 9.0, "at most the seconds of its training step, "),
        ("tiled.seconds_high", 0.0, "at least the seconds of its training step, "),
        ("tiled.seconds_low", 0.0, "what the half widths of its doubts make it, "),
        ("tiled_beside.0.seconds_high", 9.0, "what the half widths of its doubts make it, "),
        ("tiled.doubts.0.half_width_cycles", 2**40, "at most its cycles, "),
        ("tiled.spans.3.compute_cycles", -5, "a finite number of at least 0, below 2^63"),
        ("tiled.spans.3.slowest_tile", 16, "below 'tiled.tiles', 16"),
        ("tiled.spans.3.exchange_tile", 16, "below 'tiled.tiles', 16"),
        ("tiled.spans.3.exchange_tile", -2, "a finite number of at least 0, below 2^63"),
        ("tiled.spans.3.link_cycles", 10**9, "at most its exchange_cycles, "),
        ("tiled.tiles_used", 17, "the number of tiles with busy cycles, "),
        ("tiled.chips", 3, "a divisor of 'tiled.tiles', 16"),
        ("tiled.chips", 10**9, "a divisor of 'tiled.tiles', 16"),
        ("tiled.tile_columns.grid_columns", 0, "a finite number above 0, below 2^63"),
        ("tiled.tile_columns.grid_columns", 10**9, "at most 65536"),
        ("tiled.tile_columns.peak_bytes.3", 2**63, "a finite number of at least 0, below 2^63"),
        ("tiled.memory.peak_bytes", 5, "the largest of peak_bytes_by_tile, "),
        ("tiled.memory.peak_tile", 10**9, "a tile with the peak_bytes, "),
        ("tiled.memory.peak_bytes_by_tile.0", 1, "that of tile_columns.peak_bytes, "),
        ("tiled.memory.always_live_bytes_by_tile.0", 1, "that of tile_columns.always_live_bytes, "),
        ("tiled.memory.largest_on_peak_tile.0.2", 2**40, "at most the peak_bytes, "),
        ("tiled.memory.liveness.2.fullest_tile", 16, "below 'tiled.tiles', 16"),
        ("tiled.memory.liveness.2.total_bytes", 0, "at most its total_bytes, 0"),
        ("gpus.0.energy.parts.0.half_width_joules", 9.0, "at most its joules, "),
        ("gpus.0.seconds_low", 9.0, "at most the seconds of its training step, "),
        ("gpus.0.seconds_high", 0.0, "at least the seconds of its training step, "),
        ("gpus.0.host_exposed_seconds", 9.0, "at most its host_seconds, "),
        ("gpus.0.spans.0.seconds", math.inf, "a finite number of at least 0, below 2^63"),
        ("gpus.0.energy.parts.0.joules", -1.0, "a finite number of at least 0, below 2^63"),
        ("training.train_accuracy", 1.5, "a share, 0 to 1"),
        ("training.train_accuracy", math.nan, "a share, 0 to 1"),
        ("training.train_accuracy_by_epoch", [0.5, 0.5, 0.5], "at most the 2 of 'training.training_steps'"),
        ("training.samples", 9, "training_steps times batch, 8"),
        ("training.best_epoch", 9, "below the 0 epochs of validation_accuracy_by_epoch"),
        ("training.scheduled.0.1.0", math.nan, "a finite number"),
        ("training.scheduled.0.1", [], "2, one for each of 'training.training_steps'"),
        ("activity.1.full_lists", -0.1, "a share, 0 to 1"),
        ("activity.1.sparsity.forward", 1.01, "a share, 0 to 1"),
        ("activity.1.neurons", 0, "a finite number above 0, below 2^63"),
        ("activity.1.raster.0.0", 4, "a timestep, below 4"),
        ("activity.1.raster.0.1", 10**9, "a neuron of its layer, below 16"),
        ("activity.1.spikes_by_timestep", [1.0], "4, one for each of 'timesteps'"),
    ],
)
def test_what_cannot_be_is_refused_by_field_and_value(
    table: dict[str, Any], tmp_path: Path, where: str, value: object, wanted: str
) -> None:
    with pytest.raises(DataFileError) as refused:
        load(put(table, where, value), tmp_path)
    # what else the number contradicts may be named beside it; columns are counted
    said = f"{len(value)} entries" if isinstance(value, list) else str(value)
    named = {"tiled.memory.liveness.2.total_bytes": "tiled.memory.liveness.2.fullest_tile_bytes"}.get(where, where)
    assert f"field '{named}': " in refused.value.reason
    assert f", must be {wanted}" in refused.value.reason
    assert said in refused.value.reason


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("tiled.tile_columns.busy_cycles", "2 entries, must be 16, one for each of 'tiled.tiles'"),
        ("tiled.tile_columns.layer", "2 entries, must be 16, one for each of 'tiled.tiles'"),
        ("tiled_beside.0.memory.peak_bytes_by_tile", "2 entries, must be 16, one for each of 'tiled_beside.0.tiles'"),
        ("tiled.memory.bytes_by_category_and_tile.1", "2 entries, must be 16, one for each of 'tiled.tiles'"),
        ("tiled.memory.bytes_by_category_and_tile", "2 entries, must be 10, one for each of 'tiled.memory.categories'"),
        ("training.loss", "1 entries, must be 2, one for each of 'training.training_steps'"),
    ],
)
def test_cut_columns_are_refused(table: dict[str, Any], tmp_path: Path, where: str, wanted: str) -> None:
    column: Any = table
    for part in where.split("."):
        column = column[int(part) if isinstance(column, list) else part]
    with pytest.raises(DataFileError) as refused:
        load(put(table, where, column[:2] if len(column) > 2 else column[:1]), tmp_path)
    assert f"field '{where}': {wanted}" in refused.value.reason


def test_a_number_of_tiles_is_held_against_the_columns(table: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"busy_cycles': 16 entries, must be 1000000000.*; and more$"):
        load(put(table, "tiled.tiles", 10**9), tmp_path)


def test_sums_over_tiles_and_supersteps_must_agree(table: dict[str, Any], tmp_path: Path) -> None:
    columns = table["tiled"]["tile_columns"]
    busiest = max(range(16), key=lambda tile: columns["busy_cycles"][tile])
    for name in ("busy_cycles", "bytes_received"):
        more = columns[name][busiest] + 7
        with pytest.raises(DataFileError, match=rf"'tiled.tile_columns.{name}': \d+ in sum, must be that of"):
            load(put(table, f"tiled.tile_columns.{name}.{busiest}", more), tmp_path)
    peak = table["tiled"]["memory"]["peak_tile"]
    with pytest.raises(DataFileError, match=r"tile': \d+ in sum, must be the peak_bytes on the peak tile"):
        load(put(table, f"tiled.memory.bytes_by_category_and_tile.0.{peak}", 10**6), tmp_path)
    low, high = table["tiled"], put(table, "tiled.memory.liveness", table["tiled"]["memory"]["liveness"][:1])
    assert low["memory"]["liveness"][0]["fullest_tile_bytes"] < low["memory"]["peak_bytes"]
    with pytest.raises(DataFileError, match=r"peak_bytes': \d+, must be the largest fullest_tile_bytes of its liven"):
        load(high, tmp_path)
    both = put(table, "tiled.memory.always_live_bytes_by_tile.0", 10**9)
    with pytest.raises(DataFileError, match="must be at most the peak of its tile"):
        load(put(both, "tiled.tile_columns.always_live_bytes.0", 10**9), tmp_path)


def test_hundreds_of_digits_are_not_printed(table: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"compute_cycles': 100000000000\.\. \(401 digits\), must be") as refused:
        load(put(table, "tiled.spans.3.compute_cycles", HUGE), tmp_path)
    assert len(refused.value.reason) < 200


def test_a_few_problems_are_named_and_more_are_said(table: dict[str, Any], tmp_path: Path) -> None:
    broken = table
    for index in range(5):
        broken = put(broken, f"tiled.spans.{index}.times", -1)
    with pytest.raises(DataFileError) as refused:
        load(broken, tmp_path)
    assert refused.value.reason.count("must be") == 3
    assert refused.value.reason.endswith("; and more")


JSON = (
    {}, [], (), 3, "é\n", None, {"b": [1, 2.5, -0.0, 1e300], "a": {"z": [], "y": {}}}, [[1, 2], [], [[True], [None]]],
    ("a", 'q"', [{"k": (1,)}, "x, y"]), {"": [[{}]], "long": list(range(30))}, {2: "b", 1: [1]},
)  # fmt: skip


@pytest.mark.parametrize("value", JSON)
def test_json_is_as_the_standard_library_writes_it(value: Any) -> None:
    assert dump_json(value) == json.dumps(value, sort_keys=True, indent=1) + "\n"
    for other in (math.nan, [1, math.inf], {"a": [[-math.inf]]}):
        with pytest.raises(ValueError, match="Out of range float"):
            dump_json([value, other])


def test_columns_of_a_chip_of_a_million_tiles_are_not_gone_through_one_by_one(
    profile: RunProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 18 numbers for every tile: `dataclasses.asdict` alone took half a minute, and reading asked for each."""
    monkeypatch.setattr("dataclasses.asdict", pytest.fail)
    save_profile(tmp_path / "profile.json", profile)
    assert load_profile(tmp_path / "profile.json") == profile
    asked: list[float] = []
    monkeypatch.setattr(validate, "_required", lambda number, _: asked.append(number))
    assert not list(validate._numbers((3,) * 1000 + (4,), "", "bytes_sent"))
    assert sorted(asked) == [3, 4]


def test_a_diverged_training_is_written_and_read(profile: RunProfile, tmp_path: Path) -> None:
    assert profile.training is not None
    lost = dataclasses.replace(profile.training, loss=(math.nan, -math.inf))
    path = tmp_path / "profile.json"
    save_profile(path, dataclasses.replace(profile, training=lost))
    json.loads(path.read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    found = load_profile(path).training
    assert found is not None
    assert math.isnan(found.loss[0])
    assert found.loss[1] == -math.inf


def test_a_second_threshold_below_rest_any_seed_and_no_exchange_are_sound(
    table: dict[str, Any], tmp_path: Path
) -> None:
    assert load(put(table, "training.scheduled.0.1", [-100.0, -100.0]), tmp_path)
    assert load(put(table, "seed", 2**70), tmp_path)
    assert load(put(table, "tiled.spans.3.exchange_tile", -1), tmp_path)


def leaves(value: Any, where: str = "") -> Iterator[str]:
    """Paths of the numbers in a table: of a list the first, one in the middle and the last entry."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for index in sorted({0, len(value) // 2, len(value) - 1} & set(range(len(value)))):
            yield from leaves(value[index], f"{where}.{index}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield where


@pytest.mark.slow
def test_no_number_ends_in_a_traceback(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    one = put(put(table, "tiled_beside", []), "gpus", table["gpus"][:1])  # the others are checked and shown alike
    monkeypatch.setattr(store, "_read_table", lambda path: changed)
    refused = shown = 0
    for where in leaves(one):
        for number in NUMBERS:
            changed = put(one, where, number)
            try:
                found = load_profile(Path("profile.json"))
            except DataFileError:
                refused += 1
                continue
            assert found.tiled is not None
            assert summary_lines(found)
            assert sections(found)
            assert csv_files(found.tiled)
            shown += 1
    assert refused > 600
    assert shown > 100


@pytest.mark.slow  # all figures are drawn
def test_the_largest_numbers_that_are_taken_are_drawn(table: dict[str, Any], tmp_path: Path) -> None:
    broken = put(table, "tiled.tile_columns.grid_columns", 1 << 16)
    for where in ("batch", "tiled.worker_contexts", "tiled.exchange_cycles_other_model", "training.test_samples"):
        broken = put(broken, where, 2**63 - 1)
    for where in ("activity.1.capacity", "activity.1.neurons", "gpus.0.bytes_needed", "gpus.0.spans.0.flops"):
        broken = put(broken, where, 2**63 - 1)
    for where in ("gpus.0.seconds_high", "tiled.host_seconds", "activity.1.spikes_by_timestep.2"):
        broken = put(broken, where, 9e18)
    broken = put(broken, "training.loss", [1e308, 1e308])
    assert write_report(load(broken, tmp_path), tmp_path)


def test_a_pipe_or_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "no such profile" in CliRunner().invoke(main, ["report", str(tmp_path)], catch_exceptions=False).output
    for path in (pipe, Path(os.devnull)):
        result = CliRunner().invoke(main, ["report", str(path)], catch_exceptions=False)
        assert result.exit_code == 2
        assert "cannot be read: " in result.output
        assert "is not a regular file" in result.output


def test_no_more_than_the_bound_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profile.json"
    path.write_text("{}" + " " * 98)
    monkeypatch.setattr(store, "MAX_PROFILE_BYTES", 99)
    with pytest.raises(DataFileError, match="is over 99 bytes, not a mimdsim profile"):
        load_profile(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataFileError, match="is not JSON: 'utf-8' codec"):
        load_profile(path)


def test_a_profile_is_named_by_text_as_by_path(profile: RunProfile, tmp_path: Path) -> None:
    path = str(tmp_path / "profile.json")
    with pytest.raises(DataFileError, match="no such profile"):
        load_profile(path)
    save_profile(path, profile)
    assert load_profile(path) == load_profile(Path(path)) == profile
