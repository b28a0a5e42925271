"""The code is clean: lint, format, types, spelling, import contracts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.newest, pytest.mark.slow]


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "mimdsim", "benchmarks", "examples", "tests"), ("mypy",)],
    ids=["lint", "format", "types"],
)
def test_tool_finds_nothing(command: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_words_are_spelled_right() -> None:
    """Of code, pages and data that ship; tests misspell on purpose."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    kinds = {".md", ".py", ".js", ".html", ".toml", ".cff"}
    written = [name for name in names if Path(name).suffix in kinds and not name.startswith(("tests/", "reports/"))]
    speller = Path(sys.executable).with_name("codespell")
    done = subprocess.run([speller, *written], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_import_contracts_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
