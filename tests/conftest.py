"""A few cases of a law are fast tests, all of them are CI's: `@pytest.mark.first(3)` marks the others slow. Kernels
are compiled once, by as many processes as there are workers, before these start."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

if "MIMDSIM_KERNELS" in os.environ:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from specialisations import Watch

    Watch().install()


def pytest_sessionstart(session: pytest.Session) -> None:
    workers = getattr(session.config.option, "numprocesses", None)
    if workers and "MIMDSIM_KERNELS" not in os.environ:  # of xdist, in the process that starts them
        from mimdsim.numerics.ahead import start

        for process in start("tests", workers):
            process.wait()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("first")
        law = item.nodeid.partition("[")[0]
        seen[law] += 1
        if mark is not None and seen[law] > mark.args[0]:
            item.add_marker(pytest.mark.slow)
