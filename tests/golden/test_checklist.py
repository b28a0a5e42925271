"""Nothing that users hold on to changes unseen: the lists of `checklist.py`, as they were, and what replaced what."""

from __future__ import annotations

import pytest
from checklist import LISTED, gone


@pytest.mark.parametrize("name", [name for name in LISTED if name != "figures"])  # which test_published_figures.py has
def test_what_was_there_is_there_or_was_renamed(name: str) -> None:
    assert gone(name) == []
