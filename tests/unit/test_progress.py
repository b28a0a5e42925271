"""Progress with and without a terminal: nothing for short work, and how a training stands."""

from __future__ import annotations

import io
import re
import sys

import pytest

import mimdsim
from mimdsim.base.console import SILENT_SECONDS, Bars


def test_a_log_gets_a_line_every_few_seconds_with_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with Bars(clock=lambda: now[0]) as bars:
        for done in range(1, 101):
            bars.show("training", done, 100)
            now[0] += SILENT_SECONDS / 8
    told = [
        f"training: {done} of 100, about {(100 - done) * SILENT_SECONDS / 8:,.0f} s left" for done in range(9, 100, 8)
    ]
    assert capsys.readouterr().err.splitlines() == told


def test_work_that_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with Bars(clock=lambda: now[0]) as bars:
        for what, total in (("reading", 3), ("training", 20), ("nothing", 0)):
            for done in range(1, total + 1):
                now[0] += SILENT_SECONDS / 32
                bars.show(what, done, total)
    assert capsys.readouterr().err == ""


def test_work_says_how_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with Bars(clock=lambda: now[0]) as bars:
        for done in range(1, 21):
            bars.show(f"training, epoch 1 of 2, loss {1 / done:.3g}", done, 20)
            now[0] += SILENT_SECONDS / 4
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"training: 5 of 20, epoch 1 of 2, loss 0.2, about {15 * SILENT_SECONDS / 4:.0f} s left"
    assert [line.split()[1] for line in lines] == ["5", "9", "13", "17"]


def goes_on(bars: Bars, now: list[float]) -> None:
    """What is said of work, as long as it says nothing itself."""
    now[0] += SILENT_SECONDS
    bars.go_on()


def test_work_that_says_nothing_is_said_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    for silent in (False, True):
        with Bars(clock=lambda: now[0], silent=silent) as bars:
            goes_on(bars, now)
            bars.show("compiling", 0, 1)
            goes_on(bars, now)
            bars.show("timing points, of 2 workloads", 3, 20)
            goes_on(bars, now)
            bars.go_on()  # it is not long ago
            bars.show("timing points", 20, 20)
            goes_on(bars, now)
        told = capsys.readouterr()
        assert told.out == ""
        lines = ["working, for 4 s", "compiling, for 4 s", "timing points: 3 of 20, of 2 workloads, for 4 s"]
        assert told.err.splitlines() == ([] if silent else [*lines, "working, for 4 s"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_bar_with_how_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Bars() as bars:
        for done in range(1, 3):
            bars.show(f"training, epoch {done} of 3, loss 0.5", done, 3)
        (bar,) = bars._bars.values()
        assert (bar.desc, bar.n, bar.postfix) == ("training", 2, "epoch 2 of 3, loss 0.5")
        bar.ncols = 80
        assert re.search(r"2/3, \S+ left, epoch 2 of 3, loss 0.5$", str(bar))
        bars.show("timing points", 1, 2)
        assert bars._bars["timing points"].postfix in (None, "")


def test_a_training_says_epoch_loss_and_accuracy() -> None:
    told: list[tuple[str, int, int]] = []
    short = {
        **{"data.timesteps": 5, "data.train_samples": 48, "data.test_samples": 16, "training.batch": 16},
        **{"training.epochs": 3, "training.max_training_steps": 8, "network.hidden": (12,), "network.capacity": (6, 4)},
    }
    made = mimdsim.run("digits", "tiny", gpus=(), changes=short, progress=lambda *all_of: told.append(all_of))
    steps = [each for each in told if each[0].startswith("training, ")]
    assert [(done, total) for _, done, total in steps] == [(done, 8) for done in range(1, 9)]
    form = re.compile(r"training, epoch (\d) of 3, loss ([0-9.e+-]+), accuracy ([0-9.]+) %")
    found = [form.fullmatch(what) for what, *_ in steps]
    epochs, losses, accuracies = zip(*(each.groups() for each in found if each), strict=True)
    assert [int(epoch) for epoch in epochs] == [1, 1, 1, 2, 2, 2, 3, 3]
    loss = made.log.loss
    assert [float(each) for each in losses[:3]] == [
        pytest.approx(sum(loss[: n + 1]) / (n + 1), rel=1e-2) for n in range(3)
    ]
    ends = [float(accuracies[at]) for at in (2, 5)]
    assert ends == [pytest.approx(100 * each, abs=0.06) for each in made.log.train_accuracy_by_epoch]
