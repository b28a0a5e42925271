"""A few cases of a law are fast tests, all of them are CI's: `@pytest.mark.first(3)` marks the others slow."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("first")
        law = item.nodeid.partition("[")[0]
        seen[law] += 1
        if mark is not None and seen[law] > mark.args[0]:
            item.add_marker(pytest.mark.slow)
