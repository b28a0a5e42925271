"""Questions about a run, in one line each, and the same answers from its files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import DataFileError, MappingError, MimdsimError
from mimdsim.pipeline import Run
from mimdsim.profile import queries
from mimdsim.profile.queries import RunQueries

SMALL = {"data.timesteps": 6, "training.batch": 8, "training.max_training_steps": 1, "chip.tiles": 48}


@cache
def small_run() -> Run:
    return mimdsim.run("digits", "bow", changes=SMALL, gpus=())


@pytest.fixture(params=["pandas", "numpy"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RunQueries:
    """A run whose tables are pandas frames, or columns of numpy."""
    if request.param == "pandas":
        pytest.importorskip("pandas")
    else:
        monkeypatch.setattr(queries, "frame", lambda columns: columns)
    return small_run()


def column(table: object, name: str) -> np.ndarray:
    return np.asarray(table[name])  # type: ignore[index]


def test_the_critical_path_is_the_time(asked: RunQueries) -> None:
    path = asked.critical_path()
    assert column(path, "cycles").sum() == asked.tiled.cycles
    computing = column(path, "part") == "compute"
    assert column(path, "cycles")[computing].sum() == asked.tiled.compute_cycles
    assert (column(path, "ahead") >= 0).all()
    longest = int(column(path, "cycles").argmax())
    at, tile = int(column(path, "superstep")[longest]), int(column(path, "tile")[longest])
    assert asked.tiled.spans[at].cycles >= column(path, "cycles")[longest]
    assert tile in (asked.tiled.spans[at].slowest_tile, asked.tiled.spans[at].exchange_tile)
    waits = column(path, "part") == "exchange"
    assert (column(path, "partner")[waits] != column(path, "tile")[waits]).all()


@pytest.mark.slow
def test_without_syncs_and_on_several_chips_parts_wait_for_a_tile_that_has_the_work() -> None:
    deep, alone = {"network.hidden": [96] * 5, "network.capacity": [20] * 6}, 0
    for more in ({"sync.internal_cycles": 0, "sync.exchange_share": 0.0}, {"links.chips": 2}):
        run = mimdsim.run("digits", "bow", changes=SMALL | deep | more, gpus=())
        path, per_chip = run.critical_path(), run.tiled.tiles // run.tiled.chips
        assert run.tiled.chips == more.get("links.chips", 1)
        assert column(path, "cycles").sum() == run.tiled.cycles
        waits = [span.exchange_cycles + span.sync_cycles > 0 for span in run.tiled.spans]
        for row in np.flatnonzero(column(path, "part") == "compute"):
            number, tile = column(path, "superstep")[row], column(path, "tile")[row]
            span = run.tiled.spans[number]
            assert tile // per_chip == span.slowest_tile // per_chip
            if waits[number] and waits[number + 1]:  # nothing else was done since the last wait
                assert tile == span.slowest_tile
                alone += 1
    assert alone > 20


def test_tables_add_up(asked: RunQueries) -> None:
    tiles, steps, memory = asked.tiles, asked.supersteps, asked.memory
    assert column(tiles, "busy_cycles").sum() == asked.detail.busy.sum()
    assert column(tiles, "peak_bytes").max() == asked.tiled.memory.peak_bytes
    assert column(steps, "compute_cycles").sum() == asked.tiled.compute_cycles
    assert column(steps, "balanced_cycles").sum() <= column(steps, "compute_cycles").sum()
    assert column(steps, "bytes_received").sum() == column(asked.traffic, "bytes").sum()
    assert column(memory, "bytes").sum() == sum(asked.detail.held(at)[1].sum() for at in range(len(memory["variable"])))


def test_one_tile(asked: RunQueries) -> None:
    busiest = int(asked.detail.busy.sum(axis=0).argmax())
    work = asked.work_of(busiest)
    assert column(work, "busy_cycles").sum() == asked.detail.busy[:, busiest].sum()
    assert (np.diff(column(work, "busy_cycles")) <= 0).all()
    assert (column(work, "busy_cycles") <= column(work, "slowest_cycles")).all()
    there = asked.on_tile(busiest)
    assert column(there, "bytes").sum() == asked.detail.memory[:, busiest].max()
    name = str(asked.detail.supersteps[3])
    assert column(asked.on_tile(busiest, name), "bytes").sum() == asked.detail.memory[3, busiest]
    partners = asked.partners(busiest)
    assert busiest not in column(partners, "sender")
    assert column(partners, "bytes_from")[0] == column(partners, "bytes_from").max()


def test_bytes_from_tile_to_tile_are_those_received() -> None:
    run = small_run()
    for number in range(len(run.detail.supersteps)):
        between = run.bytes_between(number)
        assert between.sum(axis=0).tolist() == run.detail.received[number].tolist()
        assert not between.diagonal().any()
    whole = sum(run.bytes_between(number) for number in range(len(run.detail.supersteps)))
    assert whole[run.detail.senders[7, 0], 7] == run.detail.sender_bytes[7, 0] == whole[:, 7].max()


def test_another_window_of_timesteps() -> None:
    later = small_run().detail_in(range(4, 6))
    assert later.window_timesteps.tolist() == [4, 5]
    assert later.window[:, 0].tolist() == small_run().detail.window[:, 4].tolist()
    asked = mimdsim.run("digits", "bow", changes=SMALL, gpus=(), window="4-5")
    assert asked.detail.window.tolist() == later.window.tolist()


def test_a_window_that_no_timestep_is_in_is_refused_before_training() -> None:
    with pytest.raises(MimdsimError, match=r"window \(timesteps\): '6': they are 0 to 5"):
        mimdsim.run("digits", "bow", changes=SMALL, gpus=(), window=[5, 6])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: run.on_tile(48), "no tile 48 in the profile, which has 48"),
        (lambda run: run.work_of(-1), "no tile -1"),
        (lambda run: run.partners(1000), "no tile 1000"),
        (lambda run: run.on_tile(0, "update weight"), "did you mean 'update weights'"),
        (lambda run: run.on_tile(0, 999), "no superstep 999"),
    ],
)
def test_what_is_not_there_is_said(ask: object, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        ask(small_run())  # type: ignore[operator]


@pytest.mark.slow
def test_a_saved_report_answers_the_same(tmp_path: Path) -> None:
    made = mimdsim.run("digits", "bow", changes=SMALL, gpus=(), report=tmp_path / "mine")
    opened = mimdsim.open_report(tmp_path / "mine")
    assert repr(opened) == repr(made)
    assert opened.explain("backward") == str(made.explain("backward"))
    with pytest.raises(MappingError, match="no superstep 'nothing'"):
        opened.explain("nothing")
    for name in ("tiles", "supersteps", "memory", "traffic"):
        ours, theirs = getattr(made, name), getattr(opened, name)
        assert all(np.array_equal(column(ours, one), column(theirs, one)) for one in ours)
    (tmp_path / "mine" / "detail.npz").unlink()
    with pytest.raises(DataFileError, match="no such file, which has the columns of tiles"):
        mimdsim.open_report(tmp_path / "mine" / "profile.json")


@pytest.mark.slow
def test_the_detail_of_another_run_is_refused(tmp_path: Path) -> None:
    for name, batch in (("one", 8), ("other", 4)):
        mimdsim.run("digits", "bow", changes=SMALL | {"training.batch": batch}, gpus=(), report=tmp_path / name)
    (tmp_path / "other" / "detail.npz").replace(tmp_path / "one" / "detail.npz")
    with pytest.raises(DataFileError, match="belongs to another run"):
        mimdsim.open_report(tmp_path / "one")
