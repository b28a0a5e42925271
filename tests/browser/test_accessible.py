"""Pages are for everybody: axe-core finds nothing on them, light and dark, wide and narrow; and they are small."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from random_profile import make_profile
from test_study_answer import area, row, studied

from mimdsim.profile import save_profile
from mimdsim.profile.records import SCHEMA_VERSION
from mimdsim.report import write_report
from mimdsim.report.index_page import index_page
from mimdsim.report.page import study_page
from mimdsim.studies.page_data import page_of

pytestmark = pytest.mark.slow
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra 'browser'")

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 2_000_000
SHOWN = {"report": "html[data-walk]", "study": "html[data-points]", "index": "table", "compared": "table"}


def made(kind: str, folder: Path) -> Path:
    """The page of the shipped run, of a study with its figures, or of two runs side by side."""
    if kind == "report":
        return ROOT / "reports" / "example" / "report.html"
    path = folder / f"{kind}.html"
    if kind == "study":
        rows = [row({"x": (1 + at / 10, 0.1), "y": (0.1, 0.05)}, **area(900 - at, 300, 1000)) for at in range(40)]
        study = studied(rows, metrics=("time", "area"), question="How much area?", axes={"chip.tiles": (1,)})
        path.write_text(study_page(page_of(study, f"question = {'wide ' * 40}")), encoding="utf-8")
        return path
    profile = dataclasses.replace(make_profile(), gpus=(), warnings=(), schema_version=SCHEMA_VERSION)
    if kind == "compared":
        write_report(profile, folder, other=(profile, None))
        return folder / "report.html"
    for name in ("one", "other"):
        (folder / name).mkdir()
        save_profile(folder / name / "profile.json", profile)
    path.write_text(index_page(folder), encoding="utf-8")
    return path


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
@pytest.mark.parametrize("kind", SHOWN)
def test_axe_finds_nothing(browser: Any, kind: str, scheme: str, width: int, tmp_path: Path) -> None:
    file = made(kind, tmp_path)
    assert file.stat().st_size < MOST_BYTES
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector(SHOWN[kind], state="attached", timeout=60_000)
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    context.close()
