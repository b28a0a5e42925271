"""A pinned table that no longer holds is told with what differs and the command that writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from pins import assert_as_pinned

TESTS = Path(__file__).resolve().parent


def test_the_command_is_told_with_what_differs() -> None:
    assert_as_pinned(["a", "b"], ["a", "b"], __file__)
    with pytest.raises(
        AssertionError,
        match=r"-b\n\+c\nif this change is meant, run  PYTHONPATH=.* python tests/golden/test_pins\.py  and",
    ):
        assert_as_pinned(["a", "c"], ["a", "b"], __file__)
    with pytest.raises(AssertionError, match="-b"):
        assert_as_pinned(["a"], ["a", "b"], __file__)


@pytest.mark.parametrize("path", sorted(TESTS.glob("test_pinned_*.py")), ids=lambda path: path.stem)
def test_every_table_is_written_by_the_command_that_its_test_names(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f"`python tests/golden/{path.name}`" in text.partition('"""\n\n')[0]
    assert "assert_as_pinned(" in text
    assert "sys.stdout" not in text
