"""The notebooks run, and what is committed of them is small and carries nothing of the machine that ran them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from scripts import script

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 400_000  # bytes of one, pictures included


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3
    said = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert all(path.name in said for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_there_and_clean(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    assert not re.search(r"/(?:tmp|home|root|usr|Users|var)/|file://|[A-Z]:\\\\|ipykernel_|execution_?time|iopub", text)
    notebook = json.loads(text)
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    assert all(output["output_type"] in ("stream", "display_data") for output in outputs)
    assert all(output.get("name", "stdout") == "stdout" for output in outputs)  # no warnings
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    numbers = [cell["execution_count"] for cell in code_cells(notebook)]
    assert numbers == list(range(1, len(numbers) + 1))  # in order, as one whole
    assert all(not cell["metadata"] for cell in notebook["cells"])


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("MIMDSIM_HOME", str(ROOT))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    execute = script("notebooks/execute.py")
    before, after = json.loads(path.read_text(encoding="utf-8")), execute.executed(path)
    for cell, again in zip(code_cells(before), code_cells(after), strict=True):
        kinds = [[output["output_type"] for output in each["outputs"]] for each in (cell, again)]
        assert sorted(set(kinds[0])) == sorted(set(kinds[1])), again["source"]
