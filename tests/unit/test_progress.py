"""Progress with and without a terminal: nothing for short work, and how a training stands."""

from __future__ import annotations

import io
import re
import sys

import pytest

import mimdsim
from mimdsim.base.console import LINE_SECONDS, NEWS_SECONDS, Bars


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


def test_work_that_says_how_it_stands_is_heard_more_often(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with Bars(clock=lambda: now[0]) as bars:
        for done in range(1, 21):
            bars.show(f"training, epoch 1 of 2, loss {1 / done:.3g}", done, 20)
            now[0] += NEWS_SECONDS / 4
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training: 5 of 20, epoch 1 of 2, loss 0.2, about 19 s left"
    assert [line.split()[1] for line in lines] == ["5", "9", "13", "17"]


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
