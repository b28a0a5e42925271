"""Progress reports: bars on a terminal, an occasional line in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

LINE_SECONDS = 30.0  # between two lines without a terminal
NEWS_SECONDS = 5.0  # between those of work that says how it stands
NEWS_BAR = "{desc} |{bar}| {n_fmt}/{total_fmt}, {remaining} left{postfix}"  # 80 columns suffice


class Bars:
    """Progress with time left, after two seconds on a terminal; elsewhere a line on stderr every half minute, every few
    seconds if work says how it stands."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._bars: dict[str, Any] = {}
        self._clock = clock
        self._begun: dict[str, tuple[float, int]] = {}  # when each was first shown, and how much was done then
        self._said = clock()

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            bar.close()

    def show(self, what: str, done: int, total: int) -> None:
        """what: the work, and after a comma, if it wants, how it stands: "training, epoch 2 of 6, loss 0.412"."""
        if not total:
            return
        what, _, stands = what.partition(", ")
        if not sys.stderr.isatty():
            self._say(what, stands, done, total)
            return
        from tqdm import tqdm

        if what not in self._bars:
            form = NEWS_BAR if stands else None
            self._bars[what] = tqdm(total=total, desc=what, delay=2, leave=False, file=sys.stderr, bar_format=form)
        bar = self._bars[what]
        bar.set_postfix_str(stands, refresh=False)
        bar.update(done - bar.n)
        if done >= total:  # the next bar reuses its line
            self._bars.pop(what).close()

    def _say(self, what: str, stands: str, done: int, total: int) -> None:
        now = self._clock()
        since, before = self._begun.setdefault(what, (now, done))
        if now - self._said < (NEWS_SECONDS if stands else LINE_SECONDS) or done >= total:
            return
        self._said = now
        left = f", about {(now - since) / (done - before) * (total - done):,.0f} s left" if done > before else ""
        stands = stands and f", {stands}"
        print(f"{what}: {done:,} of {total:,}{stands}{left}", file=sys.stderr, flush=True)
