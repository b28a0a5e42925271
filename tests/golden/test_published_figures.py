"""What is predicted for all published figures, in one file, so that one process predicts them once."""

from __future__ import annotations

from pathlib import Path

import pytest
from checklist import gone
from reference_rows import TRAINING, published_rows, stale
from scripts import script

from mimdsim.base.residuals import RESIDUALS, WIDER, quantile
from mimdsim.validation import validate
from mimdsim.validation.markdown_page import load_notes, page_lines, ratios_svg

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "predicted-and-measured.md"
SHARED = ROOT.parent / "shared"
DATA = SHARED / "data" / "nmnist"
SILICON = SHARED / "references" / "silicon"


def test_rows_that_are_out_have_notes_and_no_note_is_stale() -> None:
    notes, rows = load_notes(), [row for row in published_rows() if row.file != TRAINING]
    assert [row.name for row in notes.missing(rows)] == []
    assert stale(notes, rows) == []


@pytest.mark.skipif(not DATA.exists(), reason="needs N-MNIST recordings")
def test_rows_out_of_the_training_log_have_notes_and_the_page_is_current() -> None:
    notes, rows = load_notes(), published_rows(DATA)
    assert [row.name for row in notes.missing(rows)] == []
    assert stale(notes, rows) == []
    assert PAGE.read_text(encoding="utf-8") == "\n".join(page_lines(rows, notes, with_data=True)) + "\n"
    assert PAGE.with_suffix(".svg").read_text(encoding="utf-8") == ratios_svg(rows)


def test_figures_that_were_predicted_are_or_are_renamed() -> None:
    assert gone("figures") == []


@pytest.mark.skipif(not SILICON.exists(), reason="needs the folder of outside references")
def test_factors_are_those_of_the_tables_and_intervals_hold() -> None:
    residuals = script("benchmarks/residuals.py")
    also = ("tenstorrent_noc_latencies", "tenstorrent_dram_measured", "blur_weak_scaling")
    rows = [*published_rows(), *validate([SILICON / f"{name}.csv" for name in also])]
    for name in WIDER:
        of, giving = residuals.lenders(rows, name)
        known = RESIDUALS[name]
        found = quantile(residuals.scores(giving)), len(giving), len({each.origin for each in giving})
        assert (of, *found) == (known.of, pytest.approx(known.factor, rel=0.006), known.rows, known.sources), name
        own = [each for each in rows if each.figures == name and each.score is not None]
        if len(own) >= 20:
            least, most = residuals.band(len(own))
            assert least <= sum(score <= known.factor for score in residuals.scores(own)) <= most, name
