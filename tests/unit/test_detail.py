"""The columns of single tiles: what the totals of a profile are sums of."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from small_detail import SMALL, made, with_links

import mimdsim
from mimdsim.base.checksummed import read_sealed_arrays, write_sealed_arrays
from mimdsim.base.errors import DataFileError, MimdsimError
from mimdsim.costs.fabric import fabric_of
from mimdsim.machine import load_machine
from mimdsim.pipeline import compile_workload, detail_of
from mimdsim.profile.detail import OF_LINKS, Detail, as_texts, load_beside, load_detail, save_detail
from mimdsim.workload import filled_activity, load_workload


@pytest.mark.parametrize("chips", [1, 2])
def test_columns_sum_to_the_profile(chips: int) -> None:
    tiled, detail = made(chips)
    columns = tiled.tile_columns
    assert detail.busy.sum(axis=0).tolist() == list(columns.busy_cycles)
    assert detail.sent.sum(axis=0).tolist() == list(columns.bytes_sent)
    assert detail.received.sum(axis=0).tolist() == list(columns.bytes_received)
    steps = len(detail.supersteps)
    assert detail.supersteps.tolist() == [span.name for span in tiled.spans[:steps]]
    assert detail.busy.sum(axis=1).tolist() == [span.busy_cycles for span in tiled.spans[:steps]]
    assert detail.busy.argmax(axis=1).tolist() == [span.slowest_tile for span in tiled.spans[:steps]]
    assert detail.flops.tolist() == [span.flops for span in tiled.spans[:steps]]
    assert detail.memory.max(axis=0).tolist() == list(columns.peak_bytes)
    assert detail.memory.max() == tiled.memory.peak_bytes
    assert (detail.contexts[detail.busy > 0] <= tiled.worker_contexts).all()


def test_bytes_accessed_are_those_that_vertices_read_and_write() -> None:
    """Six replicas of a gradient are cleared, then read and their sum written; an element of a weight gradient is read
    and written for each flop, but for ids and adjoints; zeros are written to all states."""
    _, detail = made()
    accessed = dict(zip(detail.supersteps.tolist(), detail.accessed.tolist(), strict=True))
    flops = dict(zip(detail.supersteps.tolist(), detail.flops.tolist(), strict=True))
    assert accessed["zero weight gradients"] == 4 * flops["sum replicas"]
    assert accessed["sum replicas"] * 6 == accessed["zero weight gradients"] * 7
    assert 2 * 4 * flops["weight gradient"] <= accessed["weight gradient"] <= 3 * 4 * flops["weight gradient"]
    assert accessed["hand on spikes"] == 0


@pytest.mark.parametrize("chips", [1, 2])
def test_every_byte_received_has_a_sender(chips: int) -> None:
    _, detail = made(chips)
    over_links = detail.received.sum() - detail.traffic[:, 3].sum()
    assert over_links == 0 if chips == 1 else over_links > 0
    assert bool(detail.links.sum()) == (chips > 1)
    from_groups = np.zeros(len(np.unique(detail.group_of)), np.int64)
    np.add.at(from_groups, detail.traffic[:, 2], detail.traffic[:, 3])
    received = np.bincount(detail.group_of, weights=detail.received.sum(axis=0))
    assert (from_groups == received).all() if chips == 1 else (from_groups <= received).all()
    assert (detail.sender_bytes.sum(axis=1) <= detail.received.sum(axis=0)).all()
    assert (np.diff(detail.sender_bytes, axis=1) <= 0).all()
    top, tile = int(detail.senders[40, 0]), 40
    if tile in detail.receivers[top]:
        assert detail.receiver_bytes[top][detail.receivers[top] == tile] == detail.sender_bytes[tile, 0]


def test_a_window_of_all_timesteps_sums_to_the_whole() -> None:
    _, detail = made(window=range(6))
    assert detail.window_timesteps.tolist() == list(range(6))
    assert len(detail.window_supersteps) > 20
    off = detail.window.sum(axis=1) - detail.busy[detail.window_supersteps]
    assert abs(off).max() <= 6  # each timestep is rounded by itself
    _, some = made(window=range(4, 100))
    assert some.window_timesteps.tolist() == [4, 5]
    assert (some.window == detail.window[:, 4:]).all()


def test_timesteps_are_those_of_the_spikes() -> None:
    """Also backward, where the last timestep runs first."""
    machine = load_machine("bow", {"chip.tiles": 48})
    compiled = compile_workload(load_workload("digits", SMALL), machine, must_fit=False)
    activity = filled_activity(compiled.network, 0.5)
    for counts in activity.counts.values():
        counts[2:] = 0
    detail = detail_of(compiled.program, machine, activity, compiled.memory, "a run", range(6))
    for name, with_spikes in (("weight gradient", [0, 1]), ("input gradient", [1, 2])):  # spikes of the timestep before
        (row,) = np.flatnonzero(detail.supersteps[detail.window_supersteps] == name)
        by_timestep = detail.window[row].max(axis=1)
        assert sorted(np.argsort(by_timestep)[-2:].tolist()) == with_spikes
        assert by_timestep[4:].max() == by_timestep.min()


def test_what_lies_on_a_tile_is_its_memory() -> None:
    tiled, detail = made()
    at = int(detail.memory.max(axis=1).argmax())
    lying = detail.on_tile(tiled.memory.peak_tile, at)
    assert sum(size for *_, size in lying) == tiled.memory.peak_bytes
    assert [size for *_, size in lying] == sorted((size for *_, size in lying), reverse=True)
    named = [(name, category, size) for name, category, size in lying if name]
    assert named[0] == tiled.memory.largest_on_peak_tile[0]


def test_a_file_is_what_was_written(tmp_path: Path) -> None:
    _, detail = made()
    path = tmp_path / "detail.npz"
    save_detail(path, detail)
    again = load_detail(path)
    assert all(np.array_equal(getattr(again, one.name), getattr(detail, one.name)) for one in fields(Detail))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataFileError, match="damaged"):
        load_detail(path)


@pytest.mark.parametrize("change", ["texts", "traffic", "holding", "busy", "live", "senders"])
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, change: str) -> None:
    _, detail = made()
    path = tmp_path / "detail.npz"
    save_detail(path, detail)
    arrays = read_sealed_arrays(path, 1 << 24, "")
    if change == "texts":
        arrays["texts"] = np.frombuffer(arrays["texts"].tobytes().replace(b'"version": 2', b'"version": 7'), np.uint8)
    elif change == "traffic":
        del arrays["traffic"]
    elif change == "busy":
        arrays["busy"] = arrays["busy"][:, 1:]
    else:
        arrays[change] = arrays[change].astype(np.int64) + 100_000
    write_sealed_arrays(path, arrays)
    with pytest.raises(DataFileError, match={"texts": "version 2", "busy": "does not fit"}.get(change, change)):
        load_detail(path)


@pytest.mark.parametrize("forged", ["a list", "ragged", "numbers", "long", "many entries"])
def test_forged_texts_and_sizes_are_refused_or_take_no_memory(
    tmp_path: Path, forged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, detail = made()
    path = tmp_path / "detail.npz"
    save_detail(path, detail)
    arrays = read_sealed_arrays(path, 1 << 24, "")
    texts = json.loads(arrays["texts"].tobytes())
    if forged == "ragged":
        texts["codelets"][0] = ["a", "b"]
    elif forged == "numbers":
        texts["supersteps"][0] = 7
    elif forged == "long":
        texts["codelets"][0] = "x" * 3_000_000
    elif forged == "many entries":
        monkeypatch.setattr("mimdsim.profile.detail.MAX_ENTRIES", 10_000)
    told: object = [1] if forged == "a list" else texts
    arrays["texts"] = np.frombuffer(json.dumps(told).encode(), np.uint8)
    write_sealed_arrays(path, arrays)
    if forged == "long":
        tracemalloc.start()
        assert len(load_detail(path).codelets[0]) == 3_000_000
        assert tracemalloc.get_traced_memory()[1] < 100e6
        tracemalloc.stop()
        return
    with pytest.raises(DataFileError, match=r"version|no list of texts|entries"):
        load_detail(path)


@pytest.mark.slow
def test_a_detail_of_other_supersteps_is_refused(tmp_path: Path) -> None:
    changes = SMALL | {"training.max_training_steps": 1, "chip.tiles": 48}
    run = mimdsim.run("digits", "bow", changes=changes, gpus=(), report=tmp_path)
    assert load_beside(tmp_path / "profile.json", run.profile) is not None
    names = as_texts([*run.detail.supersteps[:-1], "another"])
    save_detail(tmp_path / "detail.npz", dataclasses.replace(run.detail, supersteps=names))
    with pytest.raises(DataFileError, match="belongs to another run"):
        load_beside(tmp_path / "profile.json", run.profile)


@pytest.mark.slow
def test_programs_too_large_keep_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.pipeline.detail.MOST_PAIRS", 100)
    anew = made.__wrapped__
    _, detail = anew()
    assert (detail.senders == -1).all()
    assert detail.traffic[:, 3].sum() == detail.received.sum()
    monkeypatch.setattr("mimdsim.pipeline.detail.MOST_WINDOW", 48 * len(detail.supersteps) * 3)
    assert anew()[1].window_timesteps.tolist() == [0, 1, 2]
    monkeypatch.setattr("mimdsim.pipeline.detail.MOST_CELLS", 1000)
    with pytest.raises(MimdsimError, match="single tiles are not kept"):
        anew()
    small = SMALL | {"training.max_training_steps": 1, "chip.tiles": 48}
    mimdsim.run("digits", "bow", changes=small, gpus=(), report=tmp_path / "mine")
    assert not (tmp_path / "mine" / "detail.npz").exists()
    assert "Walk through" not in (tmp_path / "mine" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("chips", [1, 2])
def test_links_carry_what_the_fabric_says(chips: int, tmp_path: Path) -> None:
    program, machine, detail = with_links(chips)
    assert detail.router_grid.tolist() == [6, 8, 0]
    fabric, moved = fabric_of(machine), 0
    for row, (superstep, times, _) in enumerate(program.supersteps()):
        expected = np.zeros(4 * chips * 48)
        if superstep.exchange is not None:
            links = fabric.links(program, superstep.exchange)
            assert links is not None
            expected = links.loads.ravel() * times
            assert abs(detail.link_cycles[row].sum() - links.cycles.sum() * times) < 1e-6 * expected.sum() + 1
        found = np.zeros(4 * chips * 48)
        found[detail.link_number] = detail.link_bytes[row]
        assert (found == np.rint(expected)).all()
        moved += int(found.sum())
    hop_bytes = fabric.hop_bytes(program)
    often = [times for superstep, times, _ in program.supersteps() if superstep.exchange is not None]
    assert moved == (hop_bytes * often).sum() > 0
    path = tmp_path / "detail.npz"
    save_detail(path, detail)
    again = load_detail(path)
    assert all(np.array_equal(getattr(again, one.name), getattr(detail, one.name)) for one in fields(Detail))


def test_a_file_without_links_has_no_columns_of_them(tmp_path: Path) -> None:
    path = tmp_path / "detail.npz"
    save_detail(path, made()[1])
    assert not read_sealed_arrays(path, 1 << 24, "").keys() & OF_LINKS
    assert not load_detail(path).has_links


@pytest.mark.parametrize("change", sorted(OF_LINKS))
def test_links_that_contradict_the_rest_are_refused(change: str, tmp_path: Path) -> None:
    path = tmp_path / "detail.npz"
    save_detail(path, with_links()[2])
    arrays = read_sealed_arrays(path, 1 << 24, "")
    whole = arrays[change].astype(np.int64)
    wrong = [whole[:-1]] if change != "router_grid" else [whole * 0, whole * 10_000_000]
    for column in [*wrong, whole - 100_000, None]:
        left = {name: value for name, value in arrays.items() if name != change}
        write_sealed_arrays(path, left if column is None else left | {change: column})
        with pytest.raises(DataFileError, match=r"does not fit|lacks or adds columns"):
            load_detail(path)
