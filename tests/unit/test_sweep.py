"""Sweeps: grids, re-timing without re-running, resuming, table and figure."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from commands import mimdsim

from mimdsim.base.checksummed import read_sealed_arrays, read_sealed_json, write_sealed_arrays, write_sealed_json
from mimdsim.base.errors import DataFileError, DescriptionError, MissingExtra
from mimdsim.machine import find_machine
from mimdsim.studies import make_study, note_lines, table_lines
from mimdsim.studies.points import Points, parse_axis
from mimdsim.studies.results import RESULTS, with_ratios
from mimdsim.studies.store import load_activity, load_rows

SMALL = ("--training-steps", "1", "--processes", "1")


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_grid_of_machine_fields_records_spikes_once(tmp_path: Path) -> None:
    axes = ("--set", "exchange.bytes_per_cycle=2,4,8", "--set", "sync.internal_cycles=50,126")
    mimdsim("sweep", "digits", "bow", *axes, *SMALL, "--out", str(tmp_path))
    rows = read(tmp_path)
    assert len(rows) == 6
    assert len(list((tmp_path / "activity").iterdir())) == 1
    assert (tmp_path / "sweep.png").stat().st_size > 1000
    # more bandwidth is never slower, and neither changes compute
    for sync in ("50", "126"):
        chosen = [row for row in rows if row["sync.internal_cycles"] == sync]
        cycles = [int(row["exchange_cycles"]) for row in chosen]
        assert cycles == sorted(cycles, reverse=True)
        assert cycles[0] > cycles[-1]
    assert len({row["compute_cycles"] for row in rows}) == 1


@pytest.mark.slow
def test_resume_computes_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mimdsim("sweep", "digits", "bow", "--set", "chip.clock_hz=1 GHz,2 GHz", *SMALL, "--out", str(tmp_path))
    assert (tmp_path / "sweep.png").stat().st_size > 1000
    first = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    monkeypatch.setattr("mimdsim.report.style.picture", lambda *_: b"")  # drawn once is enough
    mimdsim("sweep", "digits", "bow", "--set", "chip.clock_hz=1 GHz,2 GHz,4 GHz", *SMALL, "--out", str(tmp_path))
    assert len(list((tmp_path / "points").iterdir())) == 3
    assert all(path.stat().st_mtime_ns == time for path, time in first.items())
    slow, middle, fast = (float(row["ms_per_training_step"]) for row in read(tmp_path))
    assert slow == pytest.approx(2 * middle, rel=1e-6)
    assert middle == pytest.approx(2 * fast, rel=1e-6)


@pytest.mark.slow
def test_fields_that_change_spikes_are_run_again(tmp_path: Path) -> None:
    mimdsim("sweep", "digits", "bow", "--set", "training.batch=24,48", *SMALL, "--out", str(tmp_path))
    assert len(list((tmp_path / "activity").iterdir())) == 2


@pytest.mark.slow
def test_points_that_do_not_fit_stay_in_the_table(tmp_path: Path) -> None:
    axes = ("--set", "chip.tiles=3,200,1472", "--set", "tile.sram_bytes=32 KiB,624 KiB")
    output = mimdsim("sweep", "digits", "bow", *axes, *SMALL, "--out", str(tmp_path))
    rows = read(tmp_path)
    assert [row["fits"] for row in rows] == ["False", "False", "False", "True", "False", "True"]
    assert "tiles are usable" in rows[0]["note"]
    assert "KiB over" in output
    assert "no tiles" in output


@pytest.mark.slow
def test_several_processes_give_the_same_table(tmp_path: Path) -> None:
    for name, processes in (("one", "1"), ("two", "2")):
        arguments = ("--set", "tile.worker_contexts=3,6", "--training-steps", "1", "--processes", processes)
        mimdsim("sweep", "digits", "bow", *arguments, "--out", str(tmp_path / name))
    assert (tmp_path / "one" / "results.csv").read_bytes() == (tmp_path / "two" / "results.csv").read_bytes()


def test_axis_values_may_be_lists_units_and_words() -> None:
    assert parse_axis("network.hidden=[64, 32],[128]") == ("network.hidden", ([64, 32], [128]))
    assert parse_axis("tile.sram_bytes=256 KiB,624 KiB") == ("tile.sram_bytes", ("256 KiB", "624 KiB"))
    assert parse_axis("training.optimiser=adam,sgd") == ("training.optimiser", ("adam", "sgd"))


def test_too_many_points_are_refused() -> None:
    values = tuple(range(1, 402))
    many = make_study("sweep", workloads=["digits"], axes={"training.batch": values, "data.timesteps": values})
    with pytest.raises(DescriptionError, match="give fewer values"):
        Points(many).designs()


def test_damaged_activity_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "activity.npz"
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(DataFileError, match="the same command records them again"):
        load_activity(path)


@pytest.mark.slow
def test_damaged_points_are_named_and_computed_again(tmp_path: Path) -> None:
    arguments = ("sweep", "digits", "bow", "--fill", "1", "--processes", "1", "--gpu", "a100", "--out", str(tmp_path))
    mimdsim(*arguments, "--set", "chip.clock_hz=1 GHz")
    (bad,) = (tmp_path / "points").iterdir()
    whole, table = bad.read_text(), read(tmp_path)
    for damage in (whole.replace('"fits": true', '"fits": false'), "{}", whole[:-30]):
        bad.write_text(damage)
        output = mimdsim(*arguments, "--set", "chip.clock_hz=1 GHz,2 GHz")
        assert f"! {bad}: is damaged, or was written under another name" in output
        assert "its points are computed again" in output
        damaged, other = read(tmp_path)
        assert damaged == table[0]
        assert float(other["ms_per_training_step"]) > 0
    bad.unlink()
    assert "is damaged" not in mimdsim(*arguments, "--set", "chip.clock_hz=1 GHz,2 GHz")
    for path in (tmp_path / "points").iterdir():
        assert load_rows(path)


@pytest.mark.slow
def test_damaged_activity_is_named_and_recorded_again(tmp_path: Path) -> None:
    arguments = ("sweep", "digits", "bow", *SMALL, "--out", str(tmp_path))
    mimdsim(*arguments, "--set", "training.batch=8")
    (bad,) = (tmp_path / "activity").iterdir()
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 4
    bad.write_bytes(content)
    (tmp_path / "study.toml").unlink()  # of other fields; the spikes stay
    output = mimdsim(*arguments, "--set", "training.batch=8,12", "--set", "chip.clock_hz=1 GHz")
    assert (
        f"{bad}: is damaged, or was written under another name: its digest does not match; the same command" in output
    )
    assert [row["fits"] for row in read(tmp_path)] == ["True", "True"]
    (tmp_path / "study.toml").unlink()
    assert "is damaged" not in mimdsim(*arguments, "--set", "training.batch=8", "--set", "chip.clock_hz=2 GHz")


@pytest.mark.parametrize("kind", ["json", "npz"])
def test_no_damaged_file_is_read_back(tmp_path: Path, kind: str) -> None:
    """Every bit of a file counts, and so does its name; what is whole is plain JSON and NPZ for everybody."""
    path, other = tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"
    if kind == "json":
        write_sealed_json(path, {"a": 1.5, "b": {"c": [None, "é"]}})
        assert json.loads(path.read_text())["a"] == 1.5
    else:
        write_sealed_arrays(path, {"ids.x": np.arange(6), "counts.x": np.ones((2, 1), np.int32)})
        with np.load(path) as plain:
            assert plain["ids.x"].tolist() == list(range(6))

    def taken(which: Path) -> object:
        return (read_sealed_json if kind == "json" else read_sealed_arrays)(which, 4000, "delete it")

    assert taken(path)
    content = path.read_bytes()
    other.write_bytes(content)
    rng = np.random.default_rng(1)
    changed = [
        content[:at] + bytes([content[at] ^ (1 << rng.integers(8))]) + content[at + 1 :] for at in range(len(content))
    ]
    cut = [content[:at] for at in range(len(content))]
    for damaged in (*changed, *cut, content + b"x", content * 2, b" " * 5000):
        path.write_bytes(damaged)
        with pytest.raises(DataFileError, match=f"one.{kind}: .*; delete it"):
            taken(path)
    with pytest.raises(DataFileError, match="written under another name"):
        taken(other)
    path.unlink()
    path.mkdir()
    for place in (path, tmp_path / "none"):
        with pytest.raises(DataFileError, match="cannot be read"):
            taken(place)


def test_a_field_given_twice_is_refused() -> None:
    arguments = ("--set", "tile.worker_contexts=3", "--set", "tile.worker_contexts=6")
    assert "given twice" in mimdsim("sweep", "digits", "bow", *arguments, code=2)


@pytest.mark.slow
def test_errors_of_worker_processes_arrive_whole(tmp_path: Path) -> None:
    """DescriptionError, DataFileError and MissingExtra take other arguments than their text."""
    for error in (
        DescriptionError("here", ["one", "two"]),
        DataFileError("x.bin", "is short", byte_offset=7),
        MissingExtra("h5py", "data", "reading SHD files"),
    ):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    arguments = ("--set", "seed=1,2", "--processes", "2", "--out", str(tmp_path))
    output = mimdsim("sweep", "nmnist-2", "bow", *arguments, code=2)
    assert "data/nmnist" in output


def test_an_output_that_is_no_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "sub"):
        assert "choose another" in mimdsim("run", "digits", "bow", "--out", str(out), code=2)
        assert "choose another" in mimdsim("sweep", "digits", "bow", "--set", "seed=1", "--out", str(out), code=2)


@pytest.mark.slow
def test_points_of_other_sources_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("sweep", "digits", "bow", "--set", "chip.clock_hz=1 GHz", *SMALL, "--out", str(tmp_path))
    mimdsim(*arguments)
    monkeypatch.setattr("mimdsim.studies.points.code_digest", lambda: "another version")
    mimdsim(*arguments)
    assert len(list((tmp_path / "points").iterdir())) == 2


SATURATED = ("--set", "network.activity=0.1,0.2", "--set", "training.batch=4", "--fill", "1", "--processes", "1")
NARROW = (
    *("--set", "network.hidden=[24]", "--set", "data.inputs=40", "--set", "data.classes=3"),
    *("--set", "data.timesteps=4", "--set", "data.input_capacity=6"),
)


@pytest.mark.slow
def test_a_sweep_beside_gpus_times_the_same_network_on_them(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path), "--gpu", "a100", "--gpu", "h100")
    text = mimdsim("sweep", "nmnist-2-random", "tiny", "--verbose", *SATURATED, *NARROW, *out)
    assert "Lists filled to 100%" in text
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert len(rows) == 2
    for row in rows:
        for gpu in ("a100", "h100"):
            best = float(row[f"{gpu} strongest_ms"])
            assert float(row[f"{gpu} strongest_low_ms"]) <= best <= float(row[f"{gpu} strongest_high_ms"])
            assert best <= float(row[f"{gpu} published_ms"])
        assert float(row["millijoules"]) > 0
        assert float(row["samples_per_second"]) == pytest.approx(4e3 / float(row["ms_per_training_step"]), rel=1e-4)
    assert not (tmp_path / "activity").exists()  # nothing was trained
    assert (tmp_path / "crossover.png").stat().st_size > 10_000


@pytest.mark.slow
def test_fuller_lists_take_longer(tmp_path: Path) -> None:
    found = []
    for fill in ("0", "0.5", "1"):
        out = ("--out", str(tmp_path / fill), "--fill", fill)
        mimdsim("sweep", "nmnist-2-random", "tiny", "--set", "network.activity=0.5", *NARROW, *out)
        found.append(float(read(tmp_path / fill)[0]["ms_per_training_step"]))
    assert found == sorted(found)
    assert found[0] < found[2]


def test_a_tiled_machine_beside_is_refused(tmp_path: Path) -> None:
    text = mimdsim("sweep", "digits", "bow", "--set", "seed=1", "--gpu", "mk2", "--out", str(tmp_path), code=2)
    assert "'mk2'" in text
    assert "give a GPU to --gpu" in text


def test_a_ratio_to_a_gpu_has_its_interval() -> None:
    row = dict.fromkeys(RESULTS, 1) | {"ms_per_training_step": 2.0, "ms_low": 1.0, "ms_high": 4.0, "fits": True}
    row |= {"seed": 1, "a100 published_ms": 9.0, "a100 strongest_ms": 3.0}
    row |= {"a100 strongest_low_ms": 2.0, "a100 strongest_high_ms": 5.0}
    header, line = table_lines([row], ["seed"], ("a100",))
    assert header.endswith("a100 ms / tiled ms")
    assert line.endswith("1.5 (0.67-3.5)")  # half to double, and two thirds to five thirds, independently
    header, *_ = table_lines([row | {"tiles": 4}, row | {"tiles": 8}], ["seed", "tiles"], narrow=True)
    assert header.split()[:2] == ["tiles", "ms/step"]  # the seed is the same in both
    missing = table_lines([row | {"a100 strongest_ms": None}], ["seed"], ("a100",))[1]
    assert missing.endswith("-")


@pytest.mark.slow
def test_what_is_to_be_known_of_a_point_is_said_under_the_table(tmp_path: Path) -> None:
    axes = ("--set", "links.chips=1,2", "--set", "network.hidden=[16]", "--set", "network.capacity=[4,4]")
    text = mimdsim("sweep", "digits", "bow", *axes, *SMALL, "--out", str(tmp_path))
    assert "! links.chips=2, network.hidden=16, network.capacity=4-4: 1 of 2 chips used" in text
    assert "! links.chips=1" not in text
    text = mimdsim("sweep", "digits", "bow", "--set", "chip.tiles=2,3", *SMALL, "--out", str(tmp_path / "tiles"))
    assert "! chip.tiles=2: " in text


@pytest.mark.slow
def test_the_strongest_strategy_of_a_gpu_fits_its_memory(tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    text = find_machine("a100").read_text()
    assert text.count('capacity_bytes = "40 GiB"') == 1
    small.write_text(text.replace('capacity_bytes = "40 GiB"', 'capacity_bytes = "1 MiB"'))
    axes = ("--set", "seed=1", *SMALL, "--fill", "1", "--gpu", str(small))
    mimdsim("sweep", "digits", "bow", *axes, "--out", str(tmp_path / "out"))
    (row,) = read(tmp_path / "out")
    assert row["small strongest"] == ""


def test_what_changes_no_time_is_said_under_the_table() -> None:
    times = {(3, 2): 2.0, (6, 2): 1.5, (12, 2): 1.5001, (3, 4): 1.8, (6, 4): 1.2, (12, 4): 1.2}
    rows = [
        {"tile.worker_contexts": contexts, "exchange.bytes_per_cycle": width, "ms_per_training_step": ms, "note": ""}
        for (contexts, width), ms in times.items()
    ]
    rows.append(rows[0] | {"exchange.bytes_per_cycle": 8, "ms_per_training_step": None})  # did not fit
    axes = ["tile.worker_contexts", "exchange.bytes_per_cycle"]
    for row in rows:
        row["fits"] = True
    (line,) = note_lines(rows, axes)
    assert line == "= tile.worker_contexts from 6 to 12 changes no time by more than 0.2%: it limits nothing here"
    steeper = [
        {"network.surrogate_slope": slope, "ms_per_training_step": 2.0, "note": "", "fits": True} for slope in (1, 10)
    ]
    (line,) = note_lines(steeper, ["network.surrogate_slope"])
    assert line == "= network.surrogate_slope from 1 to 10 changes no time by more than 0.2%"


def test_what_training_scatters_is_said_to_be_in_no_interval() -> None:
    rows = [{"seed": seed, "ms_per_training_step": 2.0 - seed / 10, "note": "", "fits": True} for seed in (1, 2)]
    (line,) = note_lines(rows, ["seed"], trained=True)
    assert line.startswith("! seed: every value was trained separately;")
    assert note_lines(rows, ["seed"]) == []  # lists were filled
    assert note_lines(rows[:1], ["seed"], trained=True) == []
    mapped = [row | {"mapping.states_per_worker": row["seed"]} for row in rows]
    assert note_lines(mapped, ["mapping.states_per_worker"], trained=True) == []


def test_a_first_point_that_does_not_fit_is_told() -> None:
    rows = [
        {"seed": 1, "ms_per_training_step": ms, "note": "", "fits": fits} for ms, fits in ((2.0, False), (1.5, True))
    ]
    (line,) = note_lines(rows, [])
    assert line == "! times the first: of the first point that fits; those before it do not fit their memory"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((638_976, 638_977), "from 624 KiB to 624.00098 KiB changes"),
        ((163_840, 163_841), "from 160 KiB to 160.00098 KiB changes"),
        ((638_976, 655_360), "from 624 KiB to 640 KiB changes"),
    ],
)
@pytest.mark.parametrize("fits", [True, False])
def test_a_value_that_decides_what_fits_does_not_limit_nothing(values: tuple[int, int], said: str, fits: bool) -> None:
    """And two values that differ look different."""
    rows = [
        {"tile.sram_bytes": value, "seed": seed, "ms_per_training_step": 1.5, "note": "", "fits": fits or bool(seed)}
        for value in values
        for seed in (0, 1)
    ]
    rows[2]["fits"] = True
    found = [line for line in note_lines(rows, ["tile.sram_bytes", "seed"]) if line.startswith("= tile")]
    assert len(found) == 1
    assert said in found[0]
    assert ("limits nothing" in found[0]) == fits
    assert ("but what fits" in found[0]) == (not fits)
    rows = [row | {"fits": row["tile.sram_bytes"] == values[1]} for row in rows]
    assert not [line for line in note_lines(rows, ["tile.sram_bytes", "seed"]) if line.startswith("= tile")]


@pytest.mark.parametrize("values", [(1, 2), (2, 1)])
def test_more_hardware_that_takes_longer_is_explained(values: tuple[int, int]) -> None:
    """Sharing buses made a step slower, in silence: another program was planned."""
    times = {1: 6.65, 2: 6.84}
    rows = [
        {"exchange.tiles_per_bus": value, "ms_per_training_step": times[value], "note": "", "fits": True}
        for value in values
    ]
    (line,) = note_lines(rows, ["exchange.tiles_per_bus"])
    assert line.startswith("! exchange.tiles_per_bus from 1 to 2 takes up to 2.9% longer: each value has a program")
    rows[0]["fits"] = False
    assert not [line for line in note_lines(rows, ["exchange.tiles_per_bus"]) if "longer" in line]


def test_ratios_are_of_points_that_fit() -> None:
    times = [(False, 2.0), (True, 3.0), (True, 1.5), (False, 1.0)]
    rows = with_ratios(
        [
            {"n": n, "fits": fits, "ms_per_training_step": 1e3 * time, "seconds_by_source": [["a", time, 0.5]]}
            for n, (fits, time) in enumerate(times)
        ]
    )
    assert [row["ratio"] for row in rows] == [None, 1.0, 0.5, None]
    assert [row["ratio"] for row in with_ratios(rows, reference=rows[0])] == [None] * 4


@pytest.mark.slow
def test_energies_that_do_not_follow_the_machine_are_told(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path), "--processes", "1")
    text = find_machine("bow").read_text()
    text = text[: text.index("[area]")].replace("[energy]\n", '[energy]\nstatic_watts = "90 W"\n')
    text = text.replace("[energy.sources]\n", '[energy.sources]\nstatic_watts = "assumed: as it is given"\n')
    fixed = tmp_path / "fixed.toml"
    fixed.write_text(text)
    output = mimdsim("sweep", "digits", str(fixed), "--fill", "1", "--set", "chip.clock_hz=1.85 GHz,4 GHz", *out)
    said = "! chip.clock_hz=1.85 GHz and 1 more: energy: chip.clock_hz changed, but static power stays at 90 W"
    assert said in " ".join(output.split())  # folded to the width of a terminal
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert {(row["area_mm2"], row["static_watts"]) for row in rows} == {("", "90.0")}
    for row in rows:
        assert float(row["millijoules_low"]) < float(row["millijoules"]) < float(row["millijoules_high"])
        assert float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
    (tmp_path / "study.toml").unlink()
    told = mimdsim(
        "sweep", "digits", str(fixed), "--fill", "1", "--set", "chip.clock_hz=4 GHz",
        "--set", "energy.static_watts=200", *out,
    )  # fmt: skip
    assert "energy: " not in told
    (tmp_path / "study.toml").unlink()
    followed = mimdsim(
        "sweep", "digits", "bow", "--verbose", "--fill", "1", "--set", "chip.clock_hz=1.85 GHz,4 GHz", *out
    )
    assert "energy: " not in followed
    assert "static W" in followed
    first, second = csv.DictReader((tmp_path / "results.csv").open())
    assert first["area_mm2"] == second["area_mm2"]
    assert float(first["static_watts"]) < float(second["static_watts"])
