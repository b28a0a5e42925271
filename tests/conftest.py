"""A case or a few of a test are fast, all of them are CI's: `@pytest.mark.first(3)` marks the fourth and all after it
slow. Without the mark it is the second, but for pinned tables: their rows say what moved."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator

import pytest

# PyTorch's threads would wait for each other at full speed, and pytest-xdist has taken every core already
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the garbage collector, which would look for garbage in what collecting keeps, a quarter of its time; and
    later again at each of its full passes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("slow"):
            continue
        mark = item.get_closest_marker("first")
        law = item.nodeid.partition("[")[0]
        seen[law] += 1
        if mark is None and item.path.parent.name == "golden":
            continue
        if seen[law] > (1 if mark is None else mark.args[0]):
            item.add_marker(pytest.mark.slow)
