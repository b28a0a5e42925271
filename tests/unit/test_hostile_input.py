"""Input that hangs, fills memory or leaves a traceback where nobody looks: refused in a sentence and in little time."""

from __future__ import annotations

import ast
import csv
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mimdsim.base.console import printable
from mimdsim.base.errors import MOST_PROBLEMS, DescriptionError
from mimdsim.base.files import read_bounded
from mimdsim.base.schema import parse_toml
from mimdsim.base.units import parse_quantity
from mimdsim.cli import main
from mimdsim.machine import load_machine
from mimdsim.pipeline.overrides import parse_changes
from mimdsim.report.tables import csv_text
from mimdsim.workload import find_workload, load_workload

ROOT = Path(__file__).resolve().parents[2]
DIGITS = find_workload("digits").read_text()
SECONDS = 5.0  # for what takes 10 ms on a free processor


def typed(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def refused(words: list[object], message: str) -> None:
    """Exit code 2 with a short message and no other noise."""
    began = time.process_time()
    result = typed(*words)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert len(result.output) < 8000
    assert time.process_time() - began < SECONDS


TEXTS = {
    "spaces in a list": (DIGITS + "\nlist = [\n[" + " " * 20_000 + "\n]\n]\nbad = 3\n", "unknown key 'training.list'"),
    "unknown keys": ("".join(f"unknown{number} = 1\n" for number in range(3000)) + DIGITS, "and 2,990 more"),
    "dotted key": (".".join("a" * 20_000) + " = 1\n" + DIGITS, "a key has over 32 parts"),
    "dotted table": ("[" + " . ".join(['"a"'] * 20_000) + "]\n" + DIGITS, "a key has over 32 parts"),
    "dotted inline": ("x = {" + ".".join(["'a'"] * 20_000) + " = 1}\n" + DIGITS, "a key has over 32 parts"),
    "many dotted keys": (
        "".join(".".join(["a"] * 30 + [f"x{number}"]) + " = 1\n" for number in range(10_000)),
        "nested over 16 deep",
    ),
    "long integer": ("seed = " + "1" * 5000, "is not TOML"),
    "long hexadecimal integer": ("seed = 0x" + "1" * 6000, "a whole number of 23997 bits"),
    "brackets": ("seed = " + "[" * 100_000, "nested over 16 deep"),
    "brackets that close": ("seed = " + "[" * 40 + "]" * 40, "nested over 16 deep"),
    "control characters": ('"\\u001b[31m\\u202e" = 1\n' + DIGITS, r"unknown key '\x1b[31m\u202e'"),
    "path with NUL": (DIGITS.replace("[data]", '[data]\npath = "a\\u0000"'), "'data.path'"),
    "long path": (DIGITS.replace("[data]", '[data]\npath = "' + "x" * 300 + '"'), "'data.path'"),
    "model with NUL": (DIGITS.replace("[network]", '[network]\nimported = "a\\u0000"'), "'network.imported'"),
    "epochs": (DIGITS.replace("epochs = 12", 'epochs = "1e300"'), "must be less than 2^63"),
    "batch": (DIGITS.replace("batch = 48", "batch = 1000000"), "must be less than or equal to 65536"),
    "layers": (DIGITS.replace("[256, 128]", str([1] * 5000)), "at most 256"),
    "number of spaces": (DIGITS.replace("batch = 48", f'batch = "1{" " * 100_000}!"'), "is not a number with a unit"),
}


@pytest.mark.first(3)
@pytest.mark.parametrize("name", list(TEXTS))
def test_hostile_workloads_are_refused_at_once(tmp_path: Path, name: str) -> None:
    text, message = TEXTS[name]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    refused(["check", path, "bow"], message)


def test_hostile_machines_are_refused_at_once(tmp_path: Path) -> None:
    text = (ROOT / "models" / "bow.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(
        text.replace("[tile.sources]", "[tile.sources]\n" + "".join(f"x{at} = 'y'\n" for at in range(5000)))
    )
    refused(["check", "digits", path], "; and ")
    path.write_text("".join(f"x{at} = 1\n" for at in range(3000)) + text)
    refused(["check", "digits", path], "and 2,990 more")
    path.write_text(text.replace('kind = "mimd"', "kind = []"))
    refused(["check", "digits", path], "kind = []; must be one of")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["training.batch=" + "[" * 100_000], "'training.batch'"),
        (["training.batch=" + "1" * 5000], "is not a number with a unit"),
        (["training.batch=4\nb=2"], "has several lines; give each key its own --set"),
        (["training.batch=4", "training.batch=8"], "given twice; give each key one value"),
        (["training.optimiser=\udcff"], r"\udcff"),
        (["x" * 10_000 + "=1"], "(10,000 characters)"),
        (["training.epochs=1e300"], "must be less than 2^63"),
    ],
)
def test_hostile_changes_are_refused(changes: list[str], message: str) -> None:
    refused(["check", "digits", "bow", *(word for change in changes for word in ("--set", change))], message)


def test_of_many_problems_the_first_ten_are_said() -> None:
    with pytest.raises(DescriptionError) as caught:
        load_workload("digits", {f"training.unknown{number}": 1 for number in range(40)})
    assert len(caught.value.problems) == MOST_PROBLEMS
    assert str(caught.value).count("\n") == MOST_PROBLEMS + 1
    assert "digits.toml: 40 problems" in str(caught.value)
    assert str(caught.value).endswith("  - and 30 more")


def test_what_is_good_is_still_read() -> None:
    assert parse_changes(("training.batch=4", "data.path=/a b/" + "c" * 200))[0]["data.path"].endswith("c")
    assert parse_toml("a.b.c.d = 1\n'x.y'.z = '1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18'", where="") == {
        "a": {"b": {"c": {"d": 1}}},
        "x.y": {"z": "1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18"},
    }
    assert parse_quantity(" 624  KiB ", "sram_bytes") == 624 * 1024
    assert load_machine("bow").name == "bow"


HEADER = "codelet,scope,dtype,params,cycles\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "has a header but no rows"),
        (HEADER + "a" * 200_000 + ",b,c,d,1\n", "is not a CSV table near line 1: field larger than"),
        (HEADER + "a\rb,b,c,d,1\n", "columns of the header"),
        (HEADER + '"a,b,c,d,1\n', "is not a CSV table"),
        (HEADER.strip() + ",cycles\nFill,vertex,float,n=4,10,11\n", "has the column 'cycles' twice"),
        (HEADER + "Fill,vertex,float,n=4,nan\n", "'nan' is not a number"),
        (",".join(f"c{at}" for at in range(20_000)), "20,000 columns; at most 200 are allowed"),
    ],
)
def test_hostile_tables_of_figures_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode())
    refused(["validate", path], message)


@pytest.mark.parametrize("dt", ["nan", "inf", "-1", "0"])
def test_a_timestep_is_a_number(tmp_path: Path, dt: str) -> None:
    refused(["import", tmp_path / "none.nir", "--dt", dt], "--dt")


def test_a_state_dict_that_is_no_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    for wrong in (np.nan, np.inf, 1e60):
        np.savez(path, **{"fc1.weight": np.ones((4, 3)), "fc2.weight": np.array([[wrong, 1, 1, 1]])})
        refused(["import", path, "--workload", "digits", "--out", tmp_path / "made"], "'fc2.weight' holds values that")
    assert not (tmp_path / "made").exists()


def test_a_failure_of_ours_is_a_sentence_with_its_traceback_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("\x1b]0;x")

    monkeypatch.setattr("mimdsim.workload.list_workloads", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = typed("list")
    assert result.exit_code == 4
    (file,) = tmp_path.glob("mimdsim-traceback-*.txt")
    assert "KeyError" in result.output
    assert f"please report it with the command and the files that it read, and with {file}" in result.output
    assert "Traceback" not in result.output
    assert "\x1b" not in result.output
    assert "in broken" in file.read_text()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert "in broken" in typed("list").output  # nowhere to write
    monkeypatch.setenv("MIMDSIM_TRACEBACK", "1")
    assert isinstance(typed("list").exception, KeyError)


@pytest.mark.slow
def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    assert printable("a\n\tb\x1b[2J \u202ec \udc80 é – 漢") == "a\n\\tb\\x1b[2J \\u202ec \\udc80 é – 漢"
    for path in (ROOT / "mimdsim").rglob("*.py"):
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        assert path.name == "console.py" or not calls & {"click.echo", "echo", "print"}, path


def test_cells_that_a_spreadsheet_would_run_are_quoted() -> None:
    rows = list(csv.reader(io.StringIO(csv_text(["=1+1", "ok"], [("@x", -1.5), ("-2", "+3"), ("\x00=4", 5)]))))
    assert rows == [["'=1+1", "ok"], ["'@x", "-1.5"], ["'-2", "'+3"], ["'=4", "5"]]


def test_a_file_may_be_as_long_as_its_bound_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(ValueError, match="is over 4 bytes"):
        read_bounded(path, 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("network.hidden", [True, 3]),
        ("network.capacity", [True, 1, 1]),
        ("network.threshold", [True, 1.0, 1.0]),
        ("network.neuron_parameters.decay", [True, 0.5]),
        ("training.optimiser_parameters.beta1", False),
    ],
)
def test_a_boolean_among_numbers_is_no_number(key: str, value: Any) -> None:
    with pytest.raises(DescriptionError, match="holds a boolean; numbers are needed"):
        load_workload("digits", {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("network.surrogate_slope", 1e39),
        ("network.surrogate_slope", [1.0, 1.0, 1e39]),
        ("training.weight_scale", "1e300"),
        ("training.weight_offset", -1e39),
        ("training.largest_gradient_norm", 1e308),
        ("training.optimiser_parameters", {"epsilon": 1e39}),
    ],
)
def test_a_number_that_a_training_would_take_for_infinite_is_refused(key: str, value: Any) -> None:
    with pytest.raises(DescriptionError, match=r"must be at most 3\.4e\+38 in size, as float32 holds it"):
        load_workload("digits", {key: value})
