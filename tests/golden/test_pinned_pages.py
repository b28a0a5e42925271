"""What the report shows of invented runs, as it is: `pinned_pages/*.txt`, one file a run.

No law says how wide a line is drawn, or which sentence stands below a table; but nothing of it changes without being
meant. After a change that is meant, `python tests/golden/test_pinned_pages.py` writes the files anew; their
difference says what changed. Figures are told as `drawn_text.py` tells them: all their numbers, colours and words, but
no pixels.
"""

from __future__ import annotations

import base64
import html
import io
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_text import figure_lines, table_lines
from invented_runs import PROFILES, WHOLE, swept
from PIL import Image
from pins import assert_as_pinned

from mimdsim.base.units import SOURCE_KINDS
from mimdsim.profile import RunProfile
from mimdsim.report import report_files, summary_lines, write_report
from mimdsim.report.figures_sweep import draw_crossover, draw_sweep
from mimdsim.report.formatting import (
    aligned_milliseconds,
    changed_fields,
    clipped,
    share,
    significant,
    thousands,
)
from mimdsim.report.headline import verdicts
from mimdsim.report.machine_comparison import contenders, strongest_gpu
from mimdsim.report.page import FIGURES
from mimdsim.report.sections import sections
from mimdsim.report.style import picture
from mimdsim.report.tables import CSV_FILES, csv_files, csv_text
from mimdsim.studies.results import note_lines
from mimdsim.studies.results import table_lines as console_table

FOLDER = Path(__file__).resolve().parent / "pinned_pages"
sys.path.insert(0, str(FOLDER.parents[2] / "benchmarks"))

from benchmark_figures import draw_convergence, draw_scaling  # noqa: E402


def shown(profile: RunProfile) -> Iterator[str]:
    """All that the report shows of a run: console, tables, figures, CSV files."""
    yield "# console"
    yield from summary_lines(profile)
    yield "# verdicts"
    yield from (f"{one.subject} ({one.mood}): {one.text}" for one in verdicts(profile))
    yield "# machines"
    found = contenders(profile)
    yield from (f"{one.label}: {one}" for one in found) if len(found) < 3 else (one.label for one in found)
    strongest = strongest_gpu(found)
    yield f"strongest: {strongest.label if strongest else 'none'}"
    for section in sections(profile):
        yield f"# section {section.key}: {section.title}. {section.missing}"
        for each in section.tables:
            yield from table_lines(each)
        for each in section.folded:
            yield from (f"folded {line}" for line in table_lines(each))
    yield from (f"changed: {key} = {value}" for key, value in changed_fields(profile))
    for plan in FIGURES:
        if (figure := plan.draw(profile)) is None:
            continue
        yield f"# figure {plan.name} in {plan.section}: {plan.caption}"
        yield from figure_lines(figure)
    for name, content in csv_files(profile.tiled).items() if profile.tiled else ():
        yield f"# {name}"
        lines = content.splitlines()
        yield from lines if profile is WHOLE else (*lines[1:3], f"{len(lines)} lines", *lines[-2:])


STASHES = ("full", "carry", "every:2")
GPUS = ("a100", "h100")


def swept_figures() -> Iterator[str]:
    """Tables and figures of sweeps over numbers, units, names and more lines than are drawn."""
    key, stash = "tile.worker_contexts", "mapping.stash"
    wide = swept(3, axis=key, values=(6, 1, 2, 16), others=STASHES)
    narrow = swept(2, axis="chip.clock_hz", values=("1 GHz", "500 MHz", "8 GHz"))
    many = swept(5, axis=key, values=(1, 8, 4), others=[f"every:{at}" for at in range(14)])
    names = swept(2, axis="network.neuron", values=("lif", "alpha", ["a", 3]))
    tight = [row | {"limit_bytes": 10_240 + place} for place, row in enumerate(swept(2, axis=key, values=(1, 2, 3)))]
    cases: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
        "wide": (wide, [key, stash]),
        "units": (narrow, ["chip.clock_hz"]),
        "many": (many, [key, stash]),
        "names": (names, ["network.neuron"]),
        "several limits": (tight, [key]),
        "no axes": (wide, []),
        "no times": (wide[-1:], [key]),
    }
    for name, (rows, axes) in cases.items():
        yield f"# sweep, {name}"
        for figure in (draw_sweep(rows, axes), draw_crossover(rows, axes, GPUS[: 1 + len(axes)][::-1])):
            yield from figure_lines(figure) if figure is not None else ["no figure"]
    for rows, axes, gpus in ((wide, [key, stash], GPUS), (narrow, ["chip.clock_hz"], ())):
        yield "# table of a sweep"
        yield from console_table(rows, axes, gpus)
    yield "# no GPU"
    yield str(draw_crossover(wide, [key], ()))
    yield str(draw_crossover(wide, [], GPUS))
    yield from note_lines([row | {"note": "odd" if row["fits"] else ""} for row in wide], [key, stash], trained=True)


def scaled(chips: int, neurons: int) -> dict[str, Any]:
    ms = 2.0 + chips * 0.25 + neurons / 8
    return {
        "chips": chips, "neurons_per_tile": neurons, "ms": ms, "ms_low": ms - 0.5, "ms_high": ms + 1.0,
        "fits": chips * neurons < 16,
    }  # fmt: skip


def other_figures() -> Iterator[str]:
    """Figures of weak scaling and of convergence."""
    for rows in (
        [scaled(chips, neurons) for chips in (4, 1, 2) for neurons in (8, 2)],
        [scaled(chips, neurons) for chips in (1, 2) for neurons in range(1, 11)],
        [],
    ):
        yield f"# weak scaling, {len(rows)} points"
        yield from figure_lines(draw_scaling(rows, title="Invented scaling"))
    runs = {f"variant {at}": [[0.3, 0.5 + 0.01 * at, 0.6, 0.9, 0.95], [0.2, 0.7, 0.8, 0.85, 0.9]] for at in range(9)}
    few = {"variant 1": [[0.95, 0.97, 0.99]], "other": [[0.93, 0.98, 0.985], [0.96, 0.97, 1.0]]}
    for curves in ({"first": runs, "second": few, "third": few}, {"only": {"low": [[0.1, 0.2]]}}):
        yield f"# convergence, {len(curves)} panels"
        yield from figure_lines(draw_convergence(curves))


CASES: dict[str, Callable[[], Iterator[str]]] = {
    **{name: lambda make=make: shown(make()) for name, make in PROFILES.items()},  # type: ignore[misc]
    "sweeps": swept_figures,
    "other figures": other_figures,
}
LARGE = ("several machines", "many", "on the bounds", "a tenth full")


def pinned(name: str) -> Path:
    return FOLDER / f"{name.replace(' ', '_')}.txt"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in CASES]
)
def test_pages_are_as_pinned(name: str) -> None:
    known = pinned(name).read_text(encoding="utf-8").splitlines()
    found = list(CASES[name]())
    assert_as_pinned(found, known, __file__)


def test_pictures_are_large_and_carry_no_program() -> None:
    """130 dots an inch, for screens; the same bytes whatever drew them."""
    figure = FIGURES[0].draw(WHOLE)
    assert figure is not None
    assert figure.get_dpi() == 100
    png = picture(figure)
    assert struct.unpack(">II", png[16:24]) == (9.6 * 130, int(3.82 * 130))
    assert b"tEXt" not in png
    pixels = np.asarray(Image.open(io.BytesIO(png)))  # checks the sums of its parts
    figure.savefig(drawn := io.BytesIO(), dpi=130)
    assert np.array_equal(pixels, np.asarray(Image.open(drawn).convert("RGB")))


@pytest.mark.slow
def test_every_picture_is_embedded_and_progress_is_told(tmp_path: Path) -> None:
    """What the page shows lies beside it, byte for byte."""
    told: list[tuple[str, int, int]] = []
    paths = write_report(WHOLE, tmp_path, lambda *of: told.append(of))
    assert told == [("drawing figures", number, 10) for number in range(10)]
    figures = [f"figures/{plan.name}.png" for plan in FIGURES]
    assert [str(path.relative_to(tmp_path)) for path in paths] == ["report.html", *figures, *CSV_FILES]
    assert report_files() == ("report.html", *figures, *CSV_FILES)
    content = html.unescape(paths[0].read_text(encoding="utf-8"))
    shown = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", content)
    assert [base64.b64decode(data) for data in shown] == [(tmp_path / name).read_bytes() for name in figures]
    assert all(plan.caption in content for plan in FIGURES)
    assert all(said in content for said in CSV_FILES.values())
    for name, text in csv_files(WHOLE.tiled).items() if WHOLE.tiled else ():
        assert (tmp_path / name).read_text(encoding="utf-8") == text


def test_a_table_for_spreadsheets_holds_no_formula() -> None:
    rows = [("=1+1", "+x", "-x", "@x", "a=1", ""), (-1, 2.5, None, True, "x\n\x1by", "'q'")]
    assert csv_text(("@tile", "b"), rows) == ("'@tile,b\n'=1+1,'+x,'-x,'@x,a=1,\n-1,2.5,,True,x y,'q'\n")


def test_numbers_at_their_edges() -> None:
    """One digit more or less, and where rounding goes over into the next power of ten."""
    values = (1234567.0, 1234.5, 99.96, 9.995, 0.1, 0.00012345, 1e-12, -0.0, float("nan"))
    assert [significant(value) for value in values] == [
        "1,234,567", "1,234", "100", "9.99", "0.100", "0.000123", "0.000000000", "0", "nan",
    ]  # fmt: skip
    assert [significant(99.96, digits) for digits in (1, 2, 4)] == ["100", "100", "99.96"]
    parts = [(0.0123456, 0.5), (0.0123456, 0.00001), (0.0, 0.5), (1e-7, 0.5), (1.0, 0.0), (float("inf"), 1.0), (40, 99)]
    assert [aligned_milliseconds(*part) for part in parts] == [
        "12.35", "12.345600", "0.00", "<0.01", "1,000", "inf", "40,000",
    ]  # fmt: skip
    assert [share(*each) for each in ((0.0005, 1), (0.000499, 1), (0, 5), (-1, 5))] == [
        "0.1 %", "<0.1 %", "0.0 %", "-20.0 %",
    ]  # fmt: skip
    assert [clipped("abcdef", width) for width in (7, 6, 5, 2, 1)] == ["abcdef", "abcdef", "abc..", "..", ".."]
    assert thousands(float("inf")) == "inf"
    assert SOURCE_KINDS == ("measured", "published", "derived", "assumed")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, lines in CASES.items():
        pinned(name).write_text("\n".join(lines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
