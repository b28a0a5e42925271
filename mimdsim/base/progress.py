"""Progress bars for people at a terminal."""

from __future__ import annotations

import sys
from typing import Any


class Bars:
    """Progress with time left on a terminal, after two seconds; silent elsewhere."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            bar.close()

    def show(self, what: str, done: int, total: int) -> None:
        if not sys.stderr.isatty() or not total:
            return
        from tqdm import tqdm

        if what not in self._bars:
            self._bars[what] = tqdm(total=total, desc=what, delay=2, leave=False, file=sys.stderr)
        bar = self._bars[what]
        bar.update(done - bar.n)
        if done >= total:  # the next bar takes its line
            self._bars.pop(what).close()
