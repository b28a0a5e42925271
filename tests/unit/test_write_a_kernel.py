"""docs/write-a-kernel.md: its kernel is right, its numbers are those that come out, its calls are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from by_hand import tiny

from mimdsim.base.errors import DescriptionError
from mimdsim.checking.kernel import load_kernel
from mimdsim.kernels import Kernel

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "write-a-kernel.md").read_text(encoding="utf-8")
MEAN = PAGE.split("```python\n")[1].split("```")[0]
SIX = (
    ("min(k.tiles, CELLS)", "min(k.tiles * contexts, CELLS)"),
    ("np.arange(shares), edges", "np.arange(shares) // contexts, edges"),
    ("    shares =", "    contexts = machine.tile.worker_contexts\n    shares ="),
)


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    text = MEAN
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "mean.py").write_text(text)
    return folder / "mean.py"


def test_the_first_kernel_is_right_and_takes_what_the_page_says(tmp_path: Path) -> None:
    result = load_kernel(written(tmp_path)).check(tiny(), strict=True)
    assert result.passed, result
    assert all(line in PAGE for line in str(result).splitlines())


def test_six_vertices_a_tile_take_what_the_page_says(tmp_path: Path) -> None:
    result = load_kernel(written(tmp_path, *SIX)).check(tiny(), strict=True)
    assert result.passed, result
    assert f"then says {result.cycles:,} cycles" in PAGE
    assert result.cycles == 6 * (24 + 7 * 50) + 108 + 126


@pytest.mark.parametrize("changes", [(), SIX])
def test_it_runs_where_tiles_are_more_than_cells(tmp_path: Path, changes: tuple[tuple[str, str], ...]) -> None:
    result = load_kernel(written(tmp_path, ("CELLS = 4800", "CELLS = 10"), *changes)).check(tiny(), strict=True)
    assert result.passed, result


def test_a_box_too_long_is_told_as_the_page_says(tmp_path: Path) -> None:
    wrong = load_kernel(written(tmp_path, ("stop + 2", "stop + 3")))
    with pytest.raises(DescriptionError) as refused:
        wrong.check(tiny(), strict=True)
    (said,) = re.findall(r"^mean\.py, line .*$", PAGE, re.MULTILINE)
    assert said in str(refused.value)


@pytest.mark.parametrize("call", sorted(set(re.findall(r"\bk\.(\w+)\(", PAGE))))
def test_every_call_of_the_page_is_there(call: str) -> None:
    assert callable(getattr(Kernel, call))


def test_cycles_of_the_worked_kernels_are_those_of_the_page() -> None:
    rows = dict(re.findall(r"^\| `(\w+\.py)` \|.*\| ([\d,]+) \| [\d,]+ \|$", PAGE, re.MULTILINE))
    assert len(rows) == 6
    for file, cycles in rows.items():
        assert f"{load_kernel(ROOT / 'examples' / 'kernels' / file).check(tiny(), strict=False).cycles:,}" == cycles
