"""Tables, descriptions and label files as spreadsheets and hands write them."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from mimdsim.base.csv_table import parse_table
from mimdsim.base.errors import DataFileError
from mimdsim.base.search_path import files_of
from mimdsim.machine import load_machine
from mimdsim.validation.calibration.fit import spreads
from mimdsim.validation.reference_table import Row, silent
from mimdsim.validation.tables import FORMATS, check_files
from mimdsim.workload import load_workload
from mimdsim.workload.data.dvs_gesture import read_labels

HEADER = "id,operation,table_rows,row_floats,dtype,lookups,tiles,lookups_per_tile,time_ms"
ROW = "gather,popops::multiSlice,44000,15,float32,460800,1152,400,0.238"


def checked(folder: Path, text: str) -> list[Row]:
    path = folder / "mine.csv"
    path.write_bytes(text.encode())
    return check_files((path,), None, silent)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + HEADER + "\n" + ROW,
        HEADER.upper() + "\n" + ROW,
        HEADER.title().replace(",", " , ") + "\n" + ROW.replace(",", " ,\t"),
        HEADER.replace(",", ", ") + "\n" + ", ".join(f'"{cell}"' for cell in ROW.split(",")),
        HEADER + "\r\n" + ROW + "\r\n",
    ],
    ids=["byte order mark", "capitals", "spaces", "quotes after spaces", "line ends"],
)
def test_a_table_is_read_however_it_is_written(tmp_path: Path, text: str) -> None:
    (plain,) = checked(tmp_path, HEADER + "\n" + ROW)
    (row,) = checked(tmp_path, text)
    assert plain.predicted is not None
    assert (row.name, row.predicted, row.published) == (plain.name, plain.predicted, plain.published)


@pytest.mark.parametrize("name", ["spread", "Spread", " SPREAD ", "\ufeffspread"])
def test_a_spread_is_read_however_its_column_is_written(tmp_path: Path, name: str) -> None:
    rows = checked(tmp_path, f"{name},{HEADER}\n10 %,{ROW}")
    assert spreads(rows, [tmp_path / "mine.csv"], 0.02) == pytest.approx([0.0238])


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("sprad", "spread"), ("spreads", "spread"), ("machin", "machine"), ("Mashine", "machine"), ("spred", "spread")],
)
def test_a_column_that_looks_like_a_known_one_is_named(tmp_path: Path, wrong: str, meant: str) -> None:
    with pytest.raises(DataFileError, match=f"'{wrong}'; did you mean '{meant}'"):
        checked(tmp_path, f"{wrong},{HEADER}\n1,{ROW}")


def test_a_needed_column_that_is_misspelt_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="'lookup'; did you mean 'lookups'"):
        checked(tmp_path, HEADER.replace("lookups,", "lookup,") + "\n" + ROW)


def test_columns_of_ones_own_are_let_pass(tmp_path: Path) -> None:
    checked(tmp_path, f"comment,date,lab,{HEADER}\na,b,c,{ROW}")


@pytest.mark.slow
def test_a_machine_is_honoured_in_every_kind_of_table(tmp_path: Path) -> None:
    """Tables whose rows name no machine are predicted for one that they do name, or say that they cannot be."""
    own = files_of("references", ".csv")
    tried = set()
    for path in own.values():
        table = parse_table(path, path.read_text(encoding="utf-8"))
        form = next(form for form in FORMATS if form.needed <= set(table.columns))
        if "machine" in form.needed or id(form) in tried:
            continue
        tried.add(id(form))
        assert "machine" not in table.columns
        lines = path.read_text(encoding="utf-8").splitlines()[:2]
        mine = tmp_path / path.name
        mine.write_text(f"machine,{lines[0]}\nnowhere-chip,{lines[1]}\n", encoding="utf-8")
        rows = check_files((mine,), None, silent)
        if form.on is None:
            assert [row.predicted for row in rows] == [None]
            assert "nowhere-chip" in rows[0].note
            assert rows[0].name == "line 2"
        mine.write_text(f"machine,{lines[0]}\nwormhole,{lines[1]}\n", encoding="utf-8")
        rows = check_files((mine,), None, silent)
        if form.on is None:
            assert all(row.bearing is None or row.bearing.machine == "wormhole" for row in rows)
        else:
            assert [row.predicted for row in rows] == [None]
            assert "'wormhole': rows with these columns are predicted for" in rows[0].note
    assert len(tried) >= 6


def test_rows_of_two_machines_keep_their_lines(tmp_path: Path) -> None:
    rows = checked(tmp_path, f"machine,{HEADER}\nbow,{ROW}\nc600,{ROW}\n\nbow,{ROW}\n,{ROW}")
    named = [(row.bearing.machine, row.bearing.line) for row in rows if row.bearing is not None]
    assert named == [("bow", 2), ("bow", 5), ("c600", 3), ("c600", 6)]


def test_a_byte_order_mark_in_a_description(tmp_path: Path) -> None:
    for kind, name, load in (("workloads", "digits", load_workload), ("models", "bow", load_machine)):
        path = tmp_path / f"{name}.toml"
        path.write_bytes(codecs.BOM_UTF8 + files_of(kind)[path.name].read_bytes())  # type: ignore[index]
        assert load(str(path)) == load(name)  # type: ignore[operator]


def test_a_label_file_however_it_is_written(tmp_path: Path) -> None:
    recording, labels = tmp_path / "user01_led.aedat", tmp_path / "user01_led_labels.csv"
    labels.write_text("class,startTime_usec,endTime_usec\n1,10,20\n", encoding="utf-8")
    plain = read_labels(recording)
    labels.write_bytes(codecs.BOM_UTF8 + b"Class, StartTime_usec, EndTime_usec\r\n1, 10, 20\r\n")
    assert read_labels(recording) == plain
