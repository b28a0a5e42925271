"""The page of open questions is whole, and the functions that make it work on a tiny chip."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import open_questions
from questions_bench import Bench, crossing, fitted, full_lists, table
from questions_exchange import merged, one_vertex_per_neuron

from mimdsim.pipeline import retime
from mimdsim.program import verify

PAGE = Path(__file__).resolve().parents[2] / "docs" / "open-questions.md"


@pytest.fixture(scope="module")
def bench() -> Bench:
    """Networks, batch, timesteps and chip a twenty-fourth of the published ones."""
    return Bench(shrink=24)


def test_every_section_is_in_the_page_with_a_table_and_no_path_of_a_machine() -> None:
    text = PAGE.read_text(encoding="utf-8")
    parts = text.split("\n## ")[1:]
    assert [part.split("\n")[0] for part in parts] == [made.__doc__ for made in open_questions.SECTIONS.values()]
    for part in parts:
        assert "| --- |" in part
        assert part.rstrip().endswith(".")
    assert not re.search(r"/(home|tmp|work|root|mnt|Users)/|\.\./|TEXT\d|nan", text)


def test_every_section_belongs_to_one_process() -> None:
    assert sorted(number for group in open_questions.GROUPS for number in group) == sorted(open_questions.SECTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 4, 5, 11])
def test_sections_are_made_from_a_tiny_chip(bench: Bench, number: int) -> None:
    text = open_questions.section(number, bench)
    assert text.startswith(f"## {number}. ")
    assert "| --- |" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3, 6, 7, 8, 9, 10])
def test_the_other_sections_too(bench: Bench, number: int) -> None:
    assert "| --- |" in open_questions.section(number, bench)


def test_two_vertices_of_a_tile_receive_ids_once(bench: Bench) -> None:
    compiled, one, copies = one_vertex_per_neuron(bench.compiled("nmnist-2", 14).program)
    assert compiled == one
    assert copies > 1.9 * one


@pytest.mark.slow
def test_merged_slices_keep_the_rules_and_save_syncs(bench: Bench) -> None:
    plain = bench.compiled("nmnist-2", 14)
    joined = merged(plain, ("slice", "stash"))
    assert not verify(joined.program, joined.program.tiles)
    spikes = bench.activity("nmnist-2", 14)
    one, other = (retime(made, bench.machine(), spikes) for made in (plain, joined))
    assert other.sync_cycles < one.sync_cycles
    assert other.cycles < one.cycles


def test_activity_is_repeated_to_a_larger_program(bench: Bench) -> None:
    known = bench.activity("nmnist-4", 6)
    steps, batch, _ = known.ids["input"].shape
    larger = bench.compiled("nmnist-4", 6, {"data.timesteps": 2 * steps, "layers times": 2}, {"links.chips": 2})
    found = fitted(known, larger)
    assert found.ids["hidden5"].shape[:2] == (2 * steps, batch)
    np.testing.assert_array_equal(found.counts["hidden5"][steps:], known.counts["hidden1"])


def test_full_lists_hold_different_ids_in_order(bench: Bench) -> None:
    spikes = full_lists(bench.compiled("nmnist-2", 14))
    assert (spikes.counts["hidden0"] == 14).all()
    assert (np.diff(spikes.ids["hidden0"], axis=2) > 0).all()


def test_crossings_lie_between_points() -> None:
    assert crossing([10, 20], [0.0, 10.0], [5.0, 5.0]) == "at about 15"
    assert crossing([10, 20], [0.0, 1.0], [5.0, 5.0]) == "nowhere up to 20"
    assert crossing([10, 20], [9.0, 9.0], [5.0, 5.0]) == "already at 10"
    assert table(["a", 1], [["b", 2]]) == ["", "| a | 1 |", "| --- | --- |", "| b | 2 |", ""]
