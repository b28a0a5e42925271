"""Training steps of snnTorch through PopTorch: rows of the table, what a call adds to the chip's time, refusals."""

from __future__ import annotations

import csv
from math import exp, hypot
from pathlib import Path
from typing import Any

import pytest
from reference_rows import given

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.framework_steps import (
    FRAMEWORK_STEPS,
    START_DOUBT_SECONDS,
    START_SECONDS,
    Call,
)
from mimdsim.validation.reference_table import Asked
from mimdsim.validation.tables import check_files

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "references" / "framework_training_steps.csv"
ROW = {
    "framework": "snntorch-ipu", "machine": "tiny", "dense": "784-20-10", "batch": "8", "T": "2", "beta": "0.9",
    "dtype": "f32", "optimiser": "adam", "images_per_s": "16000", "source": "a log",
}  # fmt: skip


def rows_of(**changes: str) -> list[dict[str, Any]]:
    return [vars(row) for row in FRAMEWORK_STEPS.rows(given({**ROW, **changes}), Asked())]


def test_a_call_is_the_chip_and_both_ways_of_the_host() -> None:
    changes = {"data.timesteps": 2, "network.hidden": [20], "training.batch": 8}
    call, chip = Call("tiny", changes), load_machine("tiny")
    assert isinstance(chip, MimdMachine)
    streamed = 2 * 8 * 784 + 4 * 8 + 4 * 2 * 8 * 10 + 4  # halves of images and labels in, spikes and loss back
    host = streamed / chip.host.bytes_per_second + 4 * chip.host.request_seconds
    assert call.seconds == pytest.approx(call.timed.cycles / chip.chip.clock_hz + host + START_SECONDS)
    reach = exp(hypot(host / 2, START_DOUBT_SECONDS) / call.seconds)
    assert call.low < call.seconds / reach
    assert call.high > call.seconds * reach
    (row,) = rows_of()
    assert row["predicted"] == pytest.approx(1e3 * call.seconds)
    assert row["published"] == pytest.approx(0.5)


def test_the_start_of_the_engine_is_the_difference_of_two_runs_of_one_program() -> None:
    with (TABLE.parent / "devito_ipu.csv").open(newline="") as file:
        runs = [row for row in csv.DictReader(file) if row["grid"] == "403x403x403" and row["problem"] == "heat"]
    short, long = sorted(runs, key=lambda row: int(row["iterations"]))
    once = 1e-6 * float(short["us_per_iteration"]) - float(long["time_s"]) / int(long["iterations"])
    assert once * int(short["iterations"]) == pytest.approx(START_SECONDS, abs=0.01e-3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"framework": "norse"}, "known: snntorch-ipu"),
        ({"dtype": "f16"}, "known: f32"),
        ({"dense": "700-20-10"}, "700 inputs and 10 outputs"),
        ({"machine": "a100"}, "is a GPU"),
        ({"machine": "mk9"}, "mk9"),
    ],
)
def test_what_has_no_program_says_why(changes: dict[str, str], said: str) -> None:
    (row,) = rows_of(**changes)
    assert row["predicted"] is None
    assert said in row["note"]


@pytest.mark.parametrize(
    "changes", [{"dense": "784"}, {"batch": "0"}, {"T": "x"}, {"images_per_s": "nan"}, {"images_per_s": "0"}]
)
def test_numbers_that_are_none_are_refused(changes: dict[str, str]) -> None:
    (row,) = rows_of(**changes)
    assert (row["name"], row["kind"], row["predicted"]) == ("line 2", "not computed", None)
    assert f"column '{next(iter(changes))}'" in row["note"]


@pytest.mark.slow
def test_the_table_is_recognised_and_every_row_is_computed() -> None:
    rows = check_files((TABLE,), None, lambda *_: None)
    with TABLE.open(newline="") as file:
        published = list(csv.DictReader(file))
    assert [row.published for row in rows] == [pytest.approx(128e3 / float(one["images_per_s"])) for one in published]
    ratios = {one["machine"]: row.ratio for one, row in zip(published, rows, strict=True)}
    assert all(ratio is not None for ratio in ratios.values())
    assert ratios["mk1"] > ratios["mk2"] > ratios["bow"]  # type: ignore[operator]
