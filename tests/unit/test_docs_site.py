"""README and docs/ as a site: every page has a place in it, and every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_has_a_place_in_the_site() -> None:
    places = set(re.findall(r": (docs/[\w.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert places == {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.slow
def test_the_site_has_every_page_and_no_dead_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {path.stem for path in (tmp_path / "site" / "docs").glob("*.html")}
    assert pages == {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} | {"index"}
    for page in [*(tmp_path / "site").glob("*.html"), *(tmp_path / "site" / "docs").glob("*.html")]:
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        left = re.findall(r"^(?:<p>)?(?:- |\d+\. |\| ).*", text, re.MULTILINE)
        assert left == [], f"{page.name}: an empty line is missing before a list or table, or after a nested paragraph"
