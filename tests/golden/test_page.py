"""The page of predicted beside measured figures: whole, honest about what is out, and free of this machine's paths."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from commands import mimdsim
from reference_rows import stale

from mimdsim.base.errors import DescriptionError, MimdsimError
from mimdsim.validation.markdown_page import (
    COLUMNS,
    LAST,
    NO_NOTE,
    Disagreement,
    Notes,
    Summary,
    TableNote,
    load_notes,
    page_lines,
    rows_as_json,
    table,
    write_page,
)
from mimdsim.validation.reference_table import Row
from mimdsim.validation.tables import check_files, default_files
from mimdsim.validation.training_runs import Run, configurations, mean_rows, slope_rows, tilewise_rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "predicted-and-measured.md"


def make_row(name: str, predicted: float | None, published: float | None = 10.0, **more: object) -> Row:
    given = {"file": "mine.csv", "unit": "ms", "tolerance": 0.15, "low": None, "high": None, "source": "a paper"}
    return Row(name=name, predicted=predicted, published=published, **{**given, **more})  # type: ignore[arg-type]


ROWS = [
    make_row("good", 10.5, low=9.0, high=12.0, kind="first", second=9.5, second_name="ms_keras", noise=0.3),
    make_row("bad | <b>", 13.0, kind="first"),
    make_row("alone", 3.25, None, kind="second", note="nothing published"),
    make_row("unknown", None, kind="second", note="no formula"),
    make_row("other good", 10.0, file="other.csv"),
]
NOTES = Notes(
    table=(TableNote(file="mine.csv", title="My table", about="What it is."),),
    disagreement=(Disagreement(file="mine.csv", rows=("bad*",), term="the wire", note="Too slow."),),
)


def page_of(rows: list[Row], notes: Notes = NOTES, **more: object) -> str:
    return "\n".join(page_lines(rows, notes, **{"with_data": False, **more}))  # type: ignore[arg-type]


def sections(page: str) -> dict[str, str]:
    """Text of every second-level section by its heading."""
    parts = re.split(r"^## (.*)$", page, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# ---- the page


def test_every_table_has_a_section_and_every_row_is_there() -> None:
    page = sections(page_of(ROWS))
    assert list(page) == [
        "Summary",
        "How to read the tables",
        "My table: `mine.csv`",
        "`other.csv`",
        "What cannot be computed, and why",
        LAST,
    ]
    mine = page["My table: `mine.csv`"]
    assert "What it is." in mine
    assert "| good | 10.50 | 10 ± 0.30 | ms | 1.050 | 9.500 | 1.105 | 15% | within | 9 to 12 | S1 |  |" in mine
    assert "| bad \\| &lt;b> | 13 | 10 | ms | 1.300 | – | – | 15% | **OUT** | – | S1 |  |" in mine
    assert "| alone | 3.250 | – | ms | – | – | – | – | – | – | S1 | R1 |" in mine
    assert "- S1: a paper\n- R1: nothing published" in mine
    assert "unknown" not in mine
    assert "| mine.csv | unknown | 10 | ms | no formula |" in page["What cannot be computed, and why"]
    assert "| other good | 10 |" in page["`other.csv`"]


def test_the_summary_has_a_line_for_every_kind() -> None:
    summary = sections(page_of(ROWS))["Summary"]
    assert "| mine.csv | first | 2 | 2 | 1 of 2 | 17.5% | 17.5% | bad \\| &lt;b> (1.300) |" in summary
    assert "| mine.csv | second | 2 | 1 | – | – | – | – |" in summary
    assert "| all |  | 5 | 4 | 2 of 3 | 11.7% | 5.0% |" in summary


def test_what_is_out_is_explained_or_called_open() -> None:
    last = sections(page_of(ROWS))[LAST]
    assert "### the wire\n\nToo slow.\n\n- `mine.csv`, bad \\| &lt;b>: 13 predicted, 10 published, 1.300" in last
    assert NO_NOTE not in last
    assert NO_NOTE in sections(page_of(ROWS, Notes()))[LAST]
    assert "No row is out." in sections(page_of(ROWS[:1]))[LAST]


def test_the_command_that_made_it_is_named_without_folders() -> None:
    page = page_of(ROWS, with_data=True, files=("mine.csv",))
    assert "`mimdsim validate mine.csv --data N-MNIST --page FILE.md`" in page
    assert "--data" not in page_of(ROWS)


@pytest.mark.slow
def test_the_command_writes_the_page(tmp_path: Path) -> None:
    """Stencils carry rows that are out and rows that cannot be computed; the code stays 3."""
    page = tmp_path / "new" / "page.md"
    stencil = ROOT / "references" / "stencil_phases.csv"
    rows = json.loads(mimdsim("validate", str(stencil), "--json", "--page", str(page), code=3))
    text = page.read_text(encoding="utf-8")
    for row in rows:
        assert f"| {row['name']} |" in text
    assert sorted(path.name for path in page.parent.iterdir()) == ["page.md", "page.svg"]
    assert str(tmp_path) not in text
    assert str(ROOT) not in text
    again = tmp_path / "again.md"
    mimdsim("validate", str(stencil), "--page", str(again), code=3)
    assert again.read_text(encoding="utf-8") == text.replace("(page.svg)", "(again.svg)")
    assert again.with_suffix(".svg").read_bytes() == page.with_suffix(".svg").read_bytes()


def test_a_page_without_references_or_without_a_place_is_refused(tmp_path: Path) -> None:
    assert "is for  mimdsim validate" in mimdsim("check", "digits", "--page", "x.md", code=2)
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file" / "page.md")
    assert "cannot be written as a folder" in mimdsim("validate", "--page", nowhere, code=2)
    with pytest.raises(MimdsimError, match="cannot be written"):
        write_page(tmp_path, ROWS, with_data=False)


@pytest.mark.parametrize("name", ["out.svg", "out.SVG"])
def test_a_page_that_its_own_figure_would_replace_is_refused(tmp_path: Path, name: str) -> None:
    page = tmp_path / name
    output = mimdsim("validate", "tile_mapping_golden.json", "--page", str(page), code=2)
    assert f"--page {page}: its figure is written there; name the page .md" in output
    assert not page.exists()
    with pytest.raises(DescriptionError, match="its figure is written there"):
        write_page(page, ROWS, with_data=False)


def test_errors_are_told_by_size_in_console_page_and_json() -> None:
    products = [
        make_row("small", 11.0, kind="A100 fp32", size=5e8),
        make_row("large", 10.2, kind="A100 fp32", size=2e11),
        make_row("largest", 10.4, kind="A100 fp32", size=1e13),
        make_row("many", 9.5, kind="A100 fp32, batched", size=1e9),
    ]
    text = "\n".join(table(products))
    assert "below 1 GFLOP: 1 of 1 within tolerance, mean error 10.0%" in text
    assert "100 GFLOP and more: 2 of 2 within tolerance, mean error 3.0%" in text
    assert "10 to 100 GFLOP" not in text  # no such row
    page = page_of(products)
    assert "| A100 fp32, 100 GFLOP and more | 2 | 2 | 2 of 2 | 3.0% |" in page
    assert "| A100 fp32, batched, 1 to 10 GFLOP | 1 |" in page
    told = {row["name"]: row for row in json.loads(rows_as_json([*products, make_row("other", 12.0)]))}
    assert told["large"]["range"] == "100 GFLOP and more"
    assert told["large"]["range_mean_error"] == pytest.approx(0.03)
    assert told["large"]["kind_mean_error"] == pytest.approx((0.1 + 0.02 + 0.04) / 3)
    assert told["other"]["table_mean_error"] == pytest.approx((0.1 + 0.02 + 0.04 + 0.05 + 0.2) / 5)
    assert (told["other"]["range"], told["other"]["range_mean_error"]) == ("", None)


# ---- notes


def test_rows_out_without_note_and_stale_notes_are_found() -> None:
    assert NOTES.missing(ROWS) == []
    assert [row.name for row in Notes().missing(ROWS)] == ["bad | <b>"]
    assert stale(NOTES, ROWS) == []
    assert stale(NOTES, ROWS[:1]) == ["mine.csv: bad*"]
    assert stale(NOTES, ROWS[-1:]) == []  # another table: nothing can be said


def test_a_misspelt_note_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.toml"
    path.write_text('[[disagreement]]\nfile = "a.csv"\nrow = ["x"]\nterm = "t"\nnote = "n"\n')
    with pytest.raises(DescriptionError, match="did you mean 'rows'"):
        load_notes(path)


def test_every_table_carried_is_introduced() -> None:
    notes = load_notes()
    assert all(notes.of_table(path.name) for path in default_files())


def test_the_page_in_docs_is_whole_and_explains_what_is_out() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = sections(text)
    for path in default_files():
        assert any(heading.endswith(f"`{path.name}`") for heading in found), path.name
    assert NO_NOTE not in text
    out = text.count("| **OUT** |")
    assert out == sum(line.startswith("- `") for line in found[LAST].splitlines())
    assert not re.search(r"/(home|tmp|work|root|mnt|Users)/|\.\./", text)


# ---- means and slopes of the training log


def make_run(hidden: str, capacity: int, activity: float | None, total: float, predicted: float) -> Run:
    widths = {"1": "90", "2": "60-60", "4": "30-30-30-30"}[hidden]
    capacities = "-".join(["8", *[str(capacity)] * int(hidden), "2"])
    return Run(
        configuration=(hidden, f"100-{widths}-10", capacities, "48", "100"),
        activity=activity,
        total=total,
        keras=total + 1,
        predicted=(predicted, predicted - 1, predicted + 2),
    )


RUNS = [
    make_run("2", 6, 0.1, 10.0, 10.0),
    make_run("2", 6, 0.1, 14.0, 11.0),
    make_run("2", 60, 1.0, 20.0, 30.0),
    make_run("4", 3, 0.1, 6.0, 5.0),
    make_run("1", 9, 0.1, 21.0, 22.0),
]


def test_means_are_of_configurations_that_ran_more_than_once() -> None:
    (only,) = mean_rows(RUNS, 0.15)
    assert only["name"] == "mean of 2: 2 hidden, 8-6-6-2 of 100-60-60-10"
    assert (only["predicted"], only["low"], only["high"]) == (10.5, 9.5, 12.5)
    assert (only["published"], only["second"]) == (12.0, 13.0)
    assert only["tolerance"] == pytest.approx(8**0.5 / 12)  # the runs scatter by more than 15 %
    assert only["noise"] == pytest.approx(2.0)
    assert next(mean_rows(RUNS, 0.5))["tolerance"] == 0.5


def test_slopes_run_from_the_smallest_to_the_largest() -> None:
    capacity, width = slope_rows(RUNS)
    assert capacity["name"] == "slope in capacity: 2 hidden, capacity 60 less 6"
    assert (capacity["predicted"], capacity["published"], capacity["second"]) == (19.5, 8.0, 8.0)
    assert capacity["noise"] is None  # one run at the larger capacity: its scatter is not known
    assert width["name"] == "slope in width: activity 0.1, 1 less 4 hidden (90, 30 wide)"
    assert (width["predicted"], width["published"], width["tolerance"]) == (17.0, 15.0, 0.2)
    without = [dataclasses.replace(run, activity=None) for run in RUNS]
    assert [row["kind"] for row in slope_rows(without)] == ["slope in capacity"]
    assert list(slope_rows(RUNS[:2])) == []


def test_the_other_state_gradient_stands_beside_without_a_published_figure() -> None:
    other = {run.configuration: [(4.0, 3.0, 5.0)] for run in RUNS}
    rows = list(tilewise_rows(RUNS, other))
    assert len(rows) == len(configurations(RUNS)) == 4
    assert rows[0]["published"] is None
    assert rows[0]["note"] == "nothing published; per batch: 10.500 ms"


@pytest.mark.slow
def test_derived_rows_follow_the_runs(tmp_path: Path) -> None:
    """A small network at two capacities and two depths, two thresholds each."""
    lines = ["hidden,max_activity,dense,sparse,batch,T,second_threshold,ms_total,ms_keras"]
    for threshold in ("0.9", "0.95"):
        lines.append(f"2,0.1,40-24-24-10,8-4-4-2,4,3,{threshold},1.0,1.1")
        lines.append(f"2,0.5,40-24-24-10,8-12-12-2,4,3,{threshold},1.5,1.4")
        lines.append(f"3,0.1,40-12-12-12-10,8-2-2-2-2,4,3,{threshold},0.5,0.6")
    path = tmp_path / "small.csv"
    path.write_text("\n".join(lines) + "\n")
    rows = check_files((path,), None, lambda *_: None)
    by_kind = {kind: [row for row in rows if row.kind == kind] for kind in dict.fromkeys(row.kind for row in rows)}
    assert {kind: len(given) for kind, given in by_kind.items()} == {
        "one run": 6,
        "mean over second thresholds": 3,
        "slope in capacity": 1,
        "slope in width": 1,
        "tile-wise state gradient": 3,
    }
    first, last = by_kind["mean over second thresholds"][:2]
    assert by_kind["slope in capacity"][0].predicted == pytest.approx(last.predicted - first.predicted, abs=2e-4)  # type: ignore[operator]
    assert all(row.within is None and row.predicted for row in by_kind["tile-wise state gradient"])
    assert "activity of random input" in rows[0].note


@pytest.mark.parametrize("bad", ["x", "nan", "-1"])
def test_a_time_that_is_no_time_is_refused(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "small.csv"
    path.write_text(
        f"hidden,dense,sparse,batch,T,second_threshold,ms_total,ms_keras\n2,40-24-24-10,8-4-4-2,4,3,0.9,1.0,{bad}\n"
    )
    (row,) = check_files((path,), None, lambda *_: None)
    assert (row.name, row.note) == ("line 2", f"column 'ms_keras': '{bad}' is not a number{' above 0'}")


# ---- the console


def test_every_row_is_printed_within_the_width() -> None:
    long = [*ROWS, make_row("long " * 30, None, note="because " * 40)]
    lines = table(long)
    assert max(map(len, lines)) <= COLUMNS
    assert sum("not computed:" in line for line in lines) == 2
    assert any(" OUT " in line for line in lines)
    assert any("ms_keras 9.5: 1.105" in line for line in lines)
    assert any("first: 1 of 2 within tolerance, mean error 17.5%, median 17.5%, worst 1.300" in line for line in lines)


def test_a_summary_of_nothing_has_no_errors() -> None:
    assert Summary([]).worst is None
    assert Summary([make_row("x", 1.0, None)]).compared == 0
