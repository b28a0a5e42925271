"""Rows of measured training steps of GPUs: read with line and column, predicted for the widths that were run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mimdsim.base.search_path import files_of
from mimdsim.validation import validate

TABLE = files_of("references", "")["gpu_training_steps.csv"]


def rows() -> list[dict[str, str]]:
    with TABLE.open() as file:
        return list(csv.DictReader(file))


def written(folder: Path, **changes: str) -> Path:
    """The first row, changed."""
    path = folder / "mine.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows()[0]))
        writer.writeheader()
        writer.writerow(rows()[0] | changes)
    return path


def test_a_row_is_milliseconds_and_millijoules(tmp_path: Path) -> None:
    time, energy = validate(written(tmp_path))
    assert (time.unit, energy.unit) == ("ms", "mJ")
    assert time.kind == "hoisted fp32"
    assert time.ratio == pytest.approx(1.04, abs=0.03)
    (time,) = validate(written(tmp_path, mJ=""))
    assert time.unit == "ms"


def test_widths_that_are_no_multiple_of_16_bytes_take_longer(tmp_path: Path) -> None:
    even, odd = (
        validate(written(tmp_path, widths=widths, precision="fp16"))[0].predicted
        for widths in ("2312-1472-1472-16", "2312-1466-1466-10")
    )
    assert even is not None
    assert odd is not None
    assert odd > 1.5 * even


def test_a_network_of_planes_is_written_as_the_literature_does(tmp_path: Path) -> None:
    planes = {"widths": "2x34x34-12c5-sum2-64c5-sum2-10", "batch": "20", "timesteps": "25", "listed": "", "mJ": ""}
    (half,) = validate(written(tmp_path, precision="fp16", **planes))
    (single,) = validate(written(tmp_path, precision="fp32", **planes))
    assert half.kind == "hoisted fp16, convolutions"
    assert half.predicted is not None
    assert single.predicted is not None
    assert 0.2 < half.predicted < single.predicted < 1.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"widths": "20"}, "'spikes' needs a number for each of 'widths'"),
        ({"widths": "20-x-3-4"}, "column 'widths': '20-x-3-4' is not whole numbers from 1, between them '-'"),
        ({"spikes": "1 2 nan 4"}, "column 'spikes': '1 2 nan 4' is not numbers from 0"),
        ({"recurrent": "some"}, "column 'recurrent': 'some' is none of none, hidden layers"),
        ({"gpu": "B100"}, "no description of device 'B100'"),
        ({"precision": "fp4"}, "column 'precision': 'fp4' has no model"),
        ({"strategy": "hoist"}, "no such strategy; did you mean 'hoisted'"),
        ({"widths": "2x34x34-12c5-sum2"}, "'sum2' is not expected there"),
        ({"widths": "2x34x34-12c5-10", "strategy": "eager"}, "no such strategy"),
        ({"batch": "0"}, "column 'batch': '0' is not a whole number of at least 1"),
        ({"ms": "-1"}, "column 'ms': '-1' is not a number above 0"),
        ({"widths": "999999999-999999999-999999999-999999999"}, "needs"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    row, *_ = validate(written(tmp_path, **changes))
    assert row.predicted is None
    assert row.name == "line 2"
    assert said in row.note
