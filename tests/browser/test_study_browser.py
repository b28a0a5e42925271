"""The page of a study in a browser: opened from a file, without network; its table filters and sorts 10,000 points."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_study_answer import HOSTILE, area, row, studied

from mimdsim.report.page import ROWS_AT_ONCE, study_page
from mimdsim.studies.page_data import page_of

pytestmark = pytest.mark.slow

POINTS = 10_000


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        row(
            {"x": (1 + at % 97 / 10, 0.1), "y": (0.1, 0.05)}, **area(900 - at % 89, 300, 1000), **{"data.path": HOSTILE}
        )
        for at in range(POINTS)
    ]
    study = studied(
        rows, metrics=("time", "area"), question=HOSTILE, axes={"chip.tiles": (1,), "data.path": (HOSTILE,)}
    )
    page = dataclasses.replace(page_of(study, "question = 1"), sections=[])  # its figures are drawn in other tests
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(study_page(page), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 700, "height": 900})
    wrong: list[str] = []
    page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    page.on("pageerror", lambda problem: wrong.append(str(problem)))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or wrong.append(asked.url))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-points]", state="attached")
    yield page
    assert wrong == []
    page.close()


def cells(page: Any, name: str) -> list[str]:
    heads = [
        head.partition(",")[0]
        for head in page.eval_on_selector_all("#points-table th", "a => a.map(x => x.textContent)")
    ]
    place = heads.index(name) + 1
    found = page.eval_on_selector_all(f"#points-table tbody td:nth-child({place})", "a => a.map(x => x.textContent)")
    return list(found)


def test_rows_come_some_at_a_time(opened: Any) -> None:
    assert opened.text_content("#points-count") == f"rows 1 to {ROWS_AT_ONCE} of 10,000"
    assert cells(opened, "chip.tiles")[:2] == ["100", "200"]
    assert opened.is_disabled("#points-before")
    opened.click("#points-after")
    assert cells(opened, "chip.tiles")[0] == "10,100"
    assert opened.text_content("#points-count") == "rows 101 to 200 of 10,000"
    assert opened.evaluate("document.documentElement.scrollWidth") == 700
    assert set(cells(opened, "data.path")) == {HOSTILE}


def test_words_and_numbers_filter(opened: Any) -> None:
    opened.fill("#points-filter", "tiles>=999900 kept")
    assert cells(opened, "chip.tiles") == ["999,900", "1,000,000"]
    opened.fill("#points-filter", "what=KEPT time<1.15 chip.tiles<=9800")
    assert cells(opened, "chip.tiles") == ["100", "9,800"]
    opened.fill("#points-filter", "the answer")
    assert len(cells(opened, "what")) == 1
    opened.fill("#points-filter", "<img nothing")
    assert opened.text_content("#points-count") == "none of 10,000"
    opened.fill("#points-filter", "")
    assert opened.text_content("#points-count").endswith("of 10,000")


def test_headers_sort(opened: Any) -> None:
    head = opened.locator("#points-table th button", has_text="area,")
    head.click()
    rising = [float(value) for value in cells(opened, "area")]
    assert rising == sorted(rising)
    assert rising[0] == 812
    head.click()
    assert float(cells(opened, "area")[0]) == 900
    assert opened.get_attribute("#points-table th[aria-sort]", "aria-sort") == "descending"


def test_what_is_shown_is_copied(opened: Any) -> None:
    opened.evaluate(
        "() => { window.taken = '';"
        "document.execCommand = () => { window.taken = document.activeElement.value; return true; };"
        "navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }"
    )
    opened.fill("#points-filter", "tiles>=999900")
    opened.click("#points-copy")
    opened.wait_for_selector("#points-copy:text('Copied')")
    lines = opened.evaluate("window.taken").splitlines()
    assert lines[0].startswith("chip.tiles,data.path,what,time [ms],")
    assert [line.partition(",")[0] for line in lines[1:]] == ["999900", "1000000"]
