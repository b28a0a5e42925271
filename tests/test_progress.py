"""Progress where there is no terminal: a line now and then, nothing for short work."""

from __future__ import annotations

import pytest

from mimdsim.base.progress import LINE_SECONDS, Bars


def test_a_log_gets_a_line_every_half_minute_with_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with Bars(clock=lambda: now[0]) as bars:
        for done in range(1, 101):
            bars.show("training", done, 100)
            now[0] += LINE_SECONDS / 10
    assert capsys.readouterr().err.splitlines() == [
        f"training: {done} of 100, about {(100 - done) * 3} s left" for done in range(11, 100, 10)
    ]


def test_work_that_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with Bars(clock=lambda: now[0]) as bars:
        for what, total in (("reading", 3), ("training", 20), ("nothing", 0)):
            for done in range(1, total + 1):
                now[0] += 1.0
                bars.show(what, done, total)
    assert capsys.readouterr().err == ""
