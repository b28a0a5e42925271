"""How large the house may be: lines of hand-written sources that ship, and Python files, by package.

A budget is raised only with a reason in the commit; what a change saves lowers it. `python
tests/golden/test_line_budget.py` prints what there is.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

import mimdsim

PACKAGE = Path(mimdsim.__file__).parent
TABLE = Path(__file__).resolve().parent / "line_budget.csv"
KINDS = (".py", ".js", ".css", ".html")


def sizes() -> dict[str, tuple[int, int]]:
    """(lines, Python files) by package; modules beside the packages are 'top'."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in PACKAGE.rglob("*"):
        parts = path.relative_to(PACKAGE).parts
        if path.suffix not in KINDS or "vendor" in parts or "shipped" in parts:
            continue
        package = parts[0] if len(parts) > 1 else "top"
        lines[package] += len(path.read_text(encoding="utf-8").splitlines())
        files[package] += path.suffix == ".py"
    return {package: (lines[package], files[package]) for package in sorted(lines)}


def budget() -> dict[str, tuple[int, int]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["package"]: (int(row["lines"]), int(row["files"])) for row in csv.DictReader(file)}


@pytest.mark.parametrize("package", budget())
def test_a_package_keeps_its_budget(package: str) -> None:
    lines, files = sizes()[package]
    most_lines, most_files = budget()[package]
    assert lines <= most_lines, f"{package} has {lines:,} lines, {lines - most_lines:,} more than its budget"
    assert files <= most_files, f"{package} has {files} files"


def test_every_package_has_a_budget() -> None:
    assert sizes().keys() == budget().keys()


if __name__ == "__main__":
    print("package,lines,files", *(f"{name},{lines},{files}" for name, (lines, files) in sizes().items()), sep="\n")
