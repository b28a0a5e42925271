"""Every figure and number of the docs is made by a command, and is what that makes today: docs/made_by.csv."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import made_by  # noqa: E402
from made_by import DIGITS, OUT, content, content_of_file, difference, digest, numbers, table  # noqa: E402

CHECKS = ("all", "tables", "digest")
NOT_MADE_AGAIN = "not made again since"
MOST_MINUTES = 10  # of all that is made again


def test_every_picture_notebook_and_made_page_has_a_row() -> None:
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]
    made = [path for path in pages if re.search(r"[Mm]ade by\s+`?(?:python )?benchmarks/\w", path.read_text())]
    pictures = [path for kind in ("png", "svg") for path in (ROOT / "docs").glob(f"*.{kind}")]
    wanted = {path.relative_to(ROOT).as_posix() for path in (*made, *pictures, *(ROOT / "notebooks").glob("*.ipynb"))}
    assert wanted <= {row.file for row in table()}


@pytest.mark.parametrize("row", table(), ids=lambda row: row.file)
def test_rows_name_what_is_there(row: made_by.Made) -> None:
    assert (ROOT / row.file).is_file()
    assert all((ROOT / script).is_file() for script in re.findall(r"\S+\.py\b", row.command))
    if row.checked not in CHECKS:  # another test compares it
        assert Path(row.file).stem in (ROOT / row.checked).read_text() or row.file.startswith("docs/reference-")
        return
    assert float(row.minutes) > 0
    assert bool(row.made_of) == (row.checked == "digest")
    if row.checked == "digest" and not row.digest:  # known to be stale: then a page says so
        shown_in = [path for path in (ROOT / "docs").glob("*.md")
                    if path.name == Path(row.file).name or f"]({Path(row.file).name})" in path.read_text()]  # fmt: skip
        assert any(NOT_MADE_AGAIN in path.read_text() for path in shown_in)
        return
    assert len(row.digest) == (DIGITS if row.checked == "digest" else 0)
    assert (OUT in row.command) or row.checked != "all"


def test_what_is_made_again_takes_ten_minutes_in_all() -> None:
    assert sum(float(row.minutes) for row in table() if row.checked in ("all", "tables")) <= MOST_MINUTES


def test_contents_of_files_are_what_changes_figures(tmp_path: Path) -> None:
    def said(name: str, text: str) -> object:
        (tmp_path / name).write_text(text)
        return content_of_file(tmp_path / name)

    assert said("a.py", "x = 1  # one\n") == said("b.py", '"""A module."""\n\nx = 1\n') != said("c.py", "x = 2\n")
    assert said("a.toml", "x = 1 # one") == said("b.toml", "x=1") != said("c.toml", "x=2")
    cell = '{{"cells": [{{"source": ["{}"], "outputs": [{}]}}]}}'
    assert said("a.ipynb", cell.format("f()", 1)) == said("b.ipynb", cell.format("f()", 2))
    assert said("a.ipynb", cell.format("f()", 1)) != said("c.ipynb", cell.format("g()", 1))


def test_digests_change_with_the_figures_that_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(table()[0], made_of="step:digits@tiny")
    before = digest(row)
    from mimdsim.base import residuals

    wider = {name: replace(one, factor=1.1 * one.factor) for name, one in residuals.RESIDUALS.items()}
    monkeypatch.setattr(residuals, "RESIDUALS", wider)
    content.cache_clear()
    try:
        assert digest(row) != before
    finally:
        content.cache_clear()
    with pytest.raises(ValueError, match="no such kind"):
        digest(replace(row, made_of="stepp:digits@tiny"))


@pytest.mark.first(100)
@pytest.mark.parametrize("row", table(), ids=lambda row: row.file)
def test_no_number_of_a_table_is_changed_by_hand(row: made_by.Made) -> None:
    compared = row.checked != "digest" and row.file != "README.md"  # by another test, or with what is made again
    wanted = "" if compared else numbers(row.file)
    assert wanted == row.numbers, f"python benchmarks/made_by.py --run {row.file}, or --keep what it made"


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in table() if row.digest], ids=lambda row: row.file)
def test_nothing_is_stale(row: made_by.Made) -> None:
    assert digest(row) == row.digest, f"stale: python benchmarks/made_by.py --run {row.file}  ({row.command})"


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in table() if row.checked in ("all", "tables")], ids=lambda row: row.file)
def test_commands_make_what_is_there(row: made_by.Made, tmp_path: Path) -> None:
    assert difference(row, tmp_path / "out.md") == ""
