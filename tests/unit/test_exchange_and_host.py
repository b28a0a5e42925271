"""One multicast and one copy from the host beside what chips took: parts, intervals, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.reference_table import Row
from mimdsim.validation.silicon.transfers import MOST_WORDS, multicast_cycles
from mimdsim.validation.tables import check_files

HEADER = "source,what,machine,parameters,measured,unit,how\n"
SENDER = "interval of the sender"
HOST = "S,stream copy of one int,mk2 or bow (not said),4 bytes,{},cycles,H\n"


def rows_of(folder: Path, *lines: str) -> list[Row]:
    path = folder / "mine.csv"
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return check_files((path,), None, lambda *_: None)


def multicast(end: str, words: int, cycles: float) -> str:
    return f'S,"multicast of one tile to two, {end}",c600,{words} words,{cycles},cycles,H\n'


@pytest.mark.parametrize(
    ("end", "words", "cycles"),
    [
        (SENDER, 1, 204), (SENDER, 64, 270), (SENDER, 1024, 1230), (SENDER, 4148, 4350),
        ("interval of receiver 32", 1, 552), ("interval of receiver 32", 65, 618),
        ("interval of receiver 32", 4148, 4698),
    ],
)  # fmt: skip
def test_intervals_of_a_multicast_hold_what_a_chip_took(tmp_path: Path, end: str, words: int, cycles: float) -> None:
    (row,) = rows_of(tmp_path, multicast(end, words, cycles))
    assert row.within
    assert row.low is not None
    assert row.high is not None
    assert row.low <= cycles <= row.high


def test_only_words_and_the_barrier_move_an_interval() -> None:
    found = load_machine("c600")
    assert isinstance(found, MimdMachine)
    for receiver in (False, True):
        whole = multicast_cycles(found, 1, receiver=receiver)[0]
        assert multicast_cycles(found, 101, receiver=receiver)[0] == whole + 100
        slower = load_machine("c600", {"sync.internal_cycles": 226, "exchange.fixed_cycles": 500})
        assert isinstance(slower, MimdMachine)
        assert multicast_cycles(slower, 1, receiver=receiver)[0] == whole + 100


def test_a_row_tells_calibration_of_the_barrier(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, multicast(SENDER, 1, 204))
    assert row.bearing is not None
    assert row.predicted is not None
    slower = load_machine("c600", {"sync.internal_cycles": 130})
    assert isinstance(slower, MimdMachine)
    assert row.bearing.again(slower) == row.predicted + 4


def test_a_copy_from_the_host_is_within_a_bound_that_its_interval_reaches(tmp_path: Path) -> None:
    at_bow, at_mk2, exceeded = rows_of(tmp_path, *(HOST.format(cycles) for cycles in (172_931, 158_753, 50_000)))
    for row in (at_bow, at_mk2):
        assert row.upper_bound
        assert row.within
        assert row.high is not None
        assert row.published is not None
        assert row.high >= row.published
    assert exceeded.within is False
    mk2 = load_machine("mk2")
    assert isinstance(mk2, MimdMachine)
    assert exceeded.predicted == pytest.approx(mk2.chip.clock_hz * mk2.host.request_seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (multicast(SENDER, 0, 200), "whole number of words"),
        (multicast(SENDER, MOST_WORDS + 1, 200), "up to 4,160"),
        (multicast("interval of receiver 3", 1, 200), "known are"),
        ("S,gather,c600,3 words,5,cycles,H\n", "known are"),
        ("S,multicast of the sender,a100,3 words,5,cycles,H\n", "tiled machines"),
        ("S,stream copy,mk9,4 bytes,5,cycles,H\n", "mk9"),
        ("S,stream copy,mk2,4 bytes,5,us,H\n", "in cycles"),
        ("S,stream copy,mk2,4 words,5,cycles,H\n", "whole number of bytes"),
    ],
)
def test_what_is_not_predicted_says_why(tmp_path: Path, line: str, said: str) -> None:
    (row,) = rows_of(tmp_path, line)
    assert row.predicted is None
    assert said in row.note
