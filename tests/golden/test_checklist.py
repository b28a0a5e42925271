"""Nothing that users hold on to changes unseen: the lists of `checklist.py`, as they were, and what replaced what."""

from __future__ import annotations

import tomllib

import pytest
from checklist import LISTED, LISTS, read

RENAMED = {
    name: dict(table) for name, table in tomllib.loads((LISTS / "renamed.toml").read_text(encoding="utf-8")).items()
}


SLOW = {"figures": pytest.mark.slow}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in LISTED])
def test_what_was_there_is_there_or_was_renamed(name: str) -> None:
    """A line of the list of before is in that of now, or `renamed.toml` says what it is now; '' if nothing is."""
    now, renamed = set(LISTED[name]()), RENAMED.get(name, {})
    before = read(name)
    assert [line for line in before if line not in now and line not in renamed] == []
    assert [now_named for now_named in renamed.values() if now_named and now_named not in now] == []
    assert [line for line in renamed if line not in before] == [], "what never was cannot be renamed"
