"""Tables of published figures with rows that cannot be read: those are refused with their place, others predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reference_rows import given

from mimdsim.base.csv_table import parse_table
from mimdsim.base.errors import DataFileError
from mimdsim.base.search_path import files_of
from mimdsim.validation.gpus.networks import NETWORKS
from mimdsim.validation.markdown_page import rows_as_json
from mimdsim.validation.reference_table import Asked, ReferenceTable, Row
from mimdsim.validation.tables import FORMATS, check_files

LARGE = "9" * 400
CODELETS = "codelet,scope,dtype,params,cycles\n"
GOOD = {"dense": [784, 100, 10], "end": [49]}
ACCESSES = {
    "tensix_tiles": "10", "pairing": "with care", "dram_channels": "2", "direction": "read", "virtual_channel": "same",
    "noc": "0", "GB_per_s": "50",
}  # fmt: skip


def checked(folder: Path, text: str, name: str = "mine.csv") -> list[Row]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    rows = check_files((path,), None, lambda *_: None)
    json.loads(rows_as_json(rows))
    return rows


def of_memory(row: dict[str, str]) -> Row:
    (form,) = (form for form in FORMATS if "tensix_tiles" in form.needed)
    (found,) = form.rows(given(row), Asked())
    return found


def test_a_column_that_only_some_tables_have_is_asked_for() -> None:
    found = of_memory(ACCESSES)
    assert (found.name, found.predicted) == ("line 2", None)
    assert found.note == "no column 'bytes_per_tile': add it, with a whole number in every row"
    assert of_memory(ACCESSES | {"bytes_per_tile": "65536"}).predicted is not None


@pytest.mark.first(30)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: min(form.needed))
def test_columns_that_may_be_missing_or_empty_stop_no_table(form: ReferenceTable) -> None:
    """Cells that hold nothing are refused or have a default; whatever a row says, no reader fails."""
    for cells in (form.needed, form.read):
        for text in ("", "1", "inf", LARGE):
            rows = form.rows(given(dict.fromkeys(sorted(cells), text)), Asked())
            assert all(row.predicted is not None or row.note for row in rows)
            rows_as_json(rows)


@pytest.mark.first(3)
@pytest.mark.parametrize("source", ["", " ", "a paper"])
def test_a_network_without_a_source_is_predicted(source: str) -> None:
    row = {
        "gpu": "A100", "framework": "snnTorch", "metric": "forward", "neurons_or_layers": "512", "value_s": "0.01",
        "source": source, "task": "1x Linear(N;N) + LIF", "batch_B": "16", "steps_T": "10", "exec_style": "time loop",
    }  # fmt: skip
    (found,) = NETWORKS.rows(given(row), Asked())
    assert found.predicted is not None
    assert found.origin == source.strip().partition(" ")[0]


@pytest.mark.first(30)
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"dense": ["x"]}, "key 'dense', number 1 of the list: \"x\" is not a whole width"),
        ({"dense": [10, 10.5, 10]}, "key 'dense', number 2 of the list: 10.5 is not a whole width"),
        ({"dense": [10, True, 10]}, "key 'dense', number 2 of the list: true is not a whole width"),
        ({"dense": []}, "key 'dense': 0 widths; give two or more, such as [784, 100, 10]"),
        ({"dense": 5}, "key 'dense': 5 is not a list of whole widths, such as [784, 100, 10]"),
        (GOOD | {"start": 5}, "key 'start': 5 is not a list of numbers"),
        (GOOD | {"start": None}, "key 'start': null is not a list of numbers"),
        (GOOD | {"start": {"a": 1}}, "key 'start': an object is not a list of numbers"),
        (GOOD | {"start": [[1]]}, "key 'start', number 1 of the list: a list is not a number"),
        (GOOD | {"start": [1, "a"]}, "key 'start', number 2 of the list: \"a\" is not a number"),
        (GOOD | {"start": [1e999]}, "key 'start', number 1 of the list: Infinity is not a number"),
        (GOOD | {"start": [float("nan")]}, "key 'start', number 1 of the list: NaN is not a number"),
        (GOOD | {"start": [10**400]}, "key 'start', number 1 of the list: 1000"),
        (GOOD | {"stat": [1]}, "unknown key 'stat'; did you mean 'start'?; known: dense, start"),
        ({"dense": [10, 10**12, 10]}, "every width must be 1 to 16777216"),
        ({"start": [1]}, "is not a mapping with the key 'dense'"),
        (3, "is not a mapping with the key 'dense'"),
    ],
)
def test_a_printed_mapping_that_cannot_be_read_is_refused_beside_others(tmp_path: Path, bad: object, said: str) -> None:
    first, refused, last = checked(tmp_path, json.dumps([GOOD, bad, GOOD]), "mine.json")
    assert (first.name, first.predicted is not None) == ("784-100-10 end[0]", True)
    assert first == last
    assert (refused.name, refused.predicted) == ("entry 2", None)
    assert said in refused.note


def test_a_file_without_a_single_mapping_is_none_of_them(tmp_path: Path) -> None:
    for cases in ([], [{"start": [1]}], {"dense": [10, 10]}):
        with pytest.raises(DataFileError, match="is not a list of mappings with the key 'dense'"):
            checked(tmp_path, json.dumps(cases), "mine.json")


@pytest.mark.first(10)
@pytest.mark.parametrize("cycles", ["inf", "-inf", "nan", "1e999", "1e308", "1e-320"])
def test_a_figure_out_of_the_range_of_numbers_is_refused(tmp_path: Path, cycles: str) -> None:
    row = "popops::Fill,worker,f32,n=16,"
    refused, other = checked(tmp_path, f"{CODELETS}{row}{cycles}\n{row}31\n")
    assert (refused.name, refused.predicted, refused.published) == ("line 2", None, None)
    assert refused.note.startswith(f"column 'cycles': '{cycles}' is not a number")
    assert other.within


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("table", "changes", "said"),
    [
        ("vendor_cycle_estimates.csv", {"codelet": "popops::Fill", "params": "n=" + LARGE}, "must be below 2^53"),
        ("gpu_products.csv", {"includes_host_overhead_us": LARGE}, "is not a number of microseconds"),
        ("gpu_convolutions.csv", {"padding": LARGE}, "as large a kernel, stride or padding"),
    ],
)
def test_numbers_too_large_to_compute_with_are_refused(table: str, changes: dict[str, str], said: str) -> None:
    path = files_of("references", "")[table]
    read = parse_table(path, path.read_text(encoding="utf-8"))
    form = next(form for form in FORMATS if form.needed <= set(read.columns))
    (found,) = form.rows(given({**read.rows[0], **changes}), Asked())
    assert found.predicted is None
    assert said in found.note
