"""Several tiled machines beside each other: the same training step, compiled for each, on the same spikes."""

from __future__ import annotations

from pathlib import Path

import pytest

import mimdsim
from mimdsim.base.errors import DoesNotFit
from mimdsim.machine import GpuMachine, MimdMachine, load_machine
from mimdsim.pipeline import simulate
from mimdsim.pipeline.overrides import load_line_up
from mimdsim.profile import RunProfile, load_profile, save_profile
from mimdsim.profile.store import MAX_PROFILE_BYTES
from mimdsim.report import summary_lines, write_report
from mimdsim.report.headline import verdicts
from mimdsim.report.machine_comparison import by_operation, contenders
from mimdsim.workload import load_workload

SMALL = {
    **{"data.train_samples": 32, "data.test_samples": 16, "data.timesteps": 4, "data.grid": 8},
    **{"training.batch": 4, "training.epochs": 1, "training.max_training_steps": 2, "network.hidden": [16]},
    **{"network.capacity": [4, 10]},
}


def on(**changes: object) -> MimdMachine:
    machine = load_machine("tiny", {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(machine, MimdMachine)
    return machine


def rename(machine: MimdMachine, name: str) -> MimdMachine:
    return machine.model_copy(update={"name": name, "title": name})


@pytest.fixture(scope="module")
def compared() -> RunProfile:
    """The reference at 1 GHz beside one at 2 GHz, one of twice as many tiles, and one whose tiles are too small."""
    beside = (on(chip__clock_hz="2 GHz"), on(chip__tiles=32), on(tile__sram_bytes="30 KiB", chip__clock_hz="0.5 GHz"))
    slow_host = {"host__request_seconds": 0, "host__bytes_per_second": "1 TB/s"}
    return simulate(load_workload("digits", SMALL), on(**slow_host), beside=beside).profile


def test_machines_of_one_title_are_told_apart_by_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text('base = "bow"\ntitle = "Mine"\n')
    paths = [str(tmp_path / f"{name}.toml") for name in ("one", "two")]
    tiled, gpus = load_line_up([*paths, "tiny", "a100"], {})
    assert [one.title for one in tiled] == [f"Mine ({paths[0]})", f"Mine ({paths[1]})", on().title]
    assert gpus[0] == load_machine("a100")


def test_a_machine_that_is_too_small_stops_no_comparison() -> None:
    """First, it is no reference; without enough tiles it is left out; and all of them are refused together."""
    small, few = on(tile__sram_bytes="30 KiB"), on(chip__tiles=2)
    profile = mimdsim.compare(
        load_workload("digits", SMALL), (rename(few, "few"), rename(small, "small"), on())
    ).profile
    assert profile.tiled is not None
    assert (profile.tiled.machine, [one.machine for one in profile.tiled_beside]) == ("tiny", ["small"])
    assert [line.split(":")[0] for line in profile.warnings[:3]] == [
        f"the reference is {on().title}, not few",
        f"the reference is {on().title}, not small",
        "few is left out",
    ]
    with pytest.raises(DoesNotFit, match=r"(?s)layers need at least one tile each.*does not fit small"):
        mimdsim.compare(load_workload("digits", SMALL), (rename(few, "few"), rename(small, "small")))


def test_no_operation_is_free_on_tiles_because_its_vertex_does_the_work_of_two() -> None:
    gpu = load_machine("a100")
    assert isinstance(gpu, GpuMachine)
    profile = simulate(load_workload("digits", SMALL), on(), (gpu,)).profile
    assert profile.tiled is not None
    rows = by_operation(profile.tiled, profile.gpus[0])
    assert [row.words for row in rows if row.gpu_seconds and not row.tiled_seconds] == []
    assert any({"lif", "synapse"} <= set(row.ops) for row in rows)


def test_the_same_training_step_is_timed_on_every_tiled_machine(compared: RunProfile) -> None:
    reference, faster, wider, small = contenders(compared)
    assert [one.ratio_words for one in (reference, faster)] == ["reference", "it 2.0× faster (2.0–2.0)"]
    assert compared.tiled is not None
    double, more_tiles, _ = compared.tiled_beside
    assert double.cycles == compared.tiled.cycles
    assert more_tiles.tiles == 32
    assert more_tiles.cycles != compared.tiled.cycles  # compiled anew
    assert wider.ratio == pytest.approx(more_tiles.cycles / compared.tiled.cycles, rel=0.01)
    assert small.ratio_words == "unknown: does not fit its memory"  # no time of a machine that cannot run is compared
    assert not small.decided
    assert not small.fits


def test_what_tiled_machines_share_cancels_in_the_interval_of_their_ratio(compared: RunProfile) -> None:
    for one in contenders(compared)[1:]:
        assert one.ratio is not None
        assert one.ratio_low <= one.ratio <= one.ratio_high
        corners = one.low / contenders(compared)[0].high, one.high / contenders(compared)[0].low
        assert corners[0] < one.ratio_low
        assert one.ratio_high < corners[1]


@pytest.mark.slow
def test_the_report_shows_them_all_and_says_what_does_not_fit(compared: RunProfile, tmp_path: Path) -> None:
    found = [verdict for verdict in verdicts(compared) if verdict.subject == "machine"]
    assert [verdict.mood for verdict in found] == ["note", "note", "bad"]
    assert "it is 2.0× faster" in found[0].text
    assert "which it does not fit" in found[2].text
    assert "faster" not in found[2].text
    lines = "\n".join(summary_lines(compared))
    assert "Comparison, ms per training step" in lines
    assert "does not fit its memory" in lines
    steps: list[tuple[int, int]] = []
    write_report(compared, tmp_path, lambda _, done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert "8 Comparison with tiled machines and GPUs" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "figures" / "comparison.png").exists()


def test_a_profile_of_several_machines_is_read_as_it_was_written(compared: RunProfile, tmp_path: Path) -> None:
    save_profile(tmp_path / "profile.json", compared)
    assert load_profile(tmp_path / "profile.json") == compared


def test_a_profile_of_two_chips_of_most_tiles_is_not_too_large_to_be_read(tmp_path: Path) -> None:
    sizes = {}
    for tiles in (16, 4016):
        save_profile(tmp_path / "profile.json", simulate(load_workload("digits", SMALL), on(chip__tiles=tiles)).profile)
        sizes[tiles] = (tmp_path / "profile.json").stat().st_size
    assert 2 * 1_000_000 * (sizes[4016] - sizes[16]) / 4000 < MAX_PROFILE_BYTES
