"""Checks: the compiled program is right; three published defects are found and named; references are held."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from commands import mimdsim
from networks import small_network

from mimdsim import api
from mimdsim.base.errors import MimdsimError
from mimdsim.checking.program import _crossings
from mimdsim.validation.tables import check_files
from mimdsim.workload import load_workload

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "references"
FOUR = ("--set", "mapping.neurons_per_tile=4")


def test_the_compiled_program_is_right() -> None:
    output = mimdsim("check", "digits", "bow", *FOUR)
    assert "FAIL" not in output
    assert "variables agree in 7 draws, superstep by superstep, with the interpreter" in output


def test_a_program_on_several_chips_is_right() -> None:
    small = ("network.hidden=[24, 16]", "network.capacity=[6, 4, 10]", "chip.tiles=16", "links.chips=2")
    output = mimdsim("check", "digits", "tiny", *(word for each in small for word in ("--set", each)))
    assert "FAIL" not in output
    assert "variables agree in 7 draws, superstep by superstep, with the interpreter" in output


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
def test_samples_that_share_tiles_are_checked_sharing_them(spikes: str) -> None:
    small = ("network.hidden=[8, 6]", "network.capacity=[4, 4, 10]", "chip.tiles=16", f"network.spikes={spikes}")
    output = mimdsim("check", "digits", "tiny", *(word for each in small for word in ("--set", each)))
    assert "FAIL" not in output
    assert "batch 16" in output  # on the 15 tiles that hold any


@pytest.mark.slow
def test_code_that_does_not_fit_its_region_fails_the_check() -> None:
    output = mimdsim("check", "digits", "bow", "--set", "tile.code_bytes=300 KiB", code=1)
    assert "FAIL  memory" in output
    assert "the executable region has 208.0 KiB" in output


@pytest.mark.slow
def test_the_compiled_program_is_right_vertex_by_vertex() -> None:
    small = (
        "--set",
        "network.hidden=[24, 16]",
        "--set",
        "network.capacity=[6, 4, 10]",
        "--timesteps",
        "3",
        "--batch",
        "4",
    )
    output = mimdsim("check", "digits", "bow", "--strict", *small)
    assert "each vertex run alone on memory that holds only its slices" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "arguments", "message"),
    [
        ("defect_1_current_buffer", FOUR, "vertex 0 of LifUpdate (hidden0) on tile 1 left its slices: index 2"),
        (
            "defect_2_input_gradient",
            FOUR,
            "vertex 0 of InputGradient (output) on tile 97 leaves partial.output[0, 0, 0]",
        ),
        ("defect_4_batch_split", ("--batch", "8"), "of WeightGradient (output) on tile"),
    ],
)
def test_a_published_defect_is_found_and_its_vertex_named(file: str, arguments: tuple[str, ...], message: str) -> None:
    output = mimdsim("check", "digits", "bow", "--program", str(ROOT / f"examples/{file}.py"), *arguments, code=1)
    assert message in output


@pytest.mark.parametrize(
    ("file", "arguments"), [("defect_1_current_buffer", ()), ("defect_4_batch_split", ("--batch", "6"))]
)
def test_where_a_defect_does_no_harm_the_check_passes(file: str, arguments: tuple[str, ...]) -> None:
    """Only the first tile stays within a buffer of two neurons; six contexts share a batch of six evenly."""
    narrow = (
        "--set",
        "network.hidden=[2, 2]",
        "--set",
        "network.capacity=[2, 2, 2]",
        "--set",
        "mapping.neurons_per_tile=2",
    )
    code = 0 if file == "defect_4_batch_split" else 1  # the output layer has tiles beyond the first two neurons
    mimdsim("check", "digits", "bow", "--program", str(ROOT / f"examples/{file}.py"), *narrow, *arguments, code=code)


@pytest.mark.slow
def test_findings_as_json() -> None:
    findings = json.loads(mimdsim("check", "digits", "bow", "--json"))
    assert [finding["name"] for finding in findings] == ["rules", "memory", "values", "gradients", "time"]
    assert all(finding["passed"] for finding in findings)


def test_a_program_file_without_build_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("x = 1\n")
    assert "defines no function build" in mimdsim("check", "digits", "bow", "--program", str(path), code=2)
    path.write_text("def build(subject):\n    return 3\n")
    assert "must return a Program, returned int" in mimdsim("check", "digits", "bow", "--program", str(path), code=2)


def test_a_program_that_breaks_a_rule_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "moved.py"
    path.write_text(
        "import dataclasses\n"
        "def build(subject):\n"
        "    def move(step):\n"
        "        tables = tuple(dataclasses.replace(t, tiles=(t.tiles + 1)) if t.codelet.name == 'LifUpdate' else t\n"
        "                       for t in step.tables)\n"
        "        return dataclasses.replace(step, tables=tables)\n"
        "    return subject.program.map_supersteps(move)\n"
    )
    output = mimdsim("check", "digits", "bow", "--program", str(path), code=1)
    assert "vertex 0 of LifUpdate (hidden0) on tile 2 writes v.hidden0[0, 0:2], which lies on tile 1" in output
    assert "not run" in output


def test_vendor_points_and_printed_mappings_are_reproduced() -> None:
    files = [str(ROOT / "references" / name) for name in ("vendor_cycle_estimates.csv", "tile_mapping_golden.json")]
    rows = json.loads(mimdsim("validate", "--json", *files))
    assert len(rows) > 200
    assert all(row["within"] for row in rows)


@pytest.mark.slow
def test_published_training_times_are_predicted_and_named_when_out(tmp_path: Path) -> None:
    lines = (ROOT / "references/ipu_training_step_ms.csv").read_text().splitlines()
    path = tmp_path / "two.csv"
    path.write_text("\n".join([lines[0], lines[2], lines[8]]) + "\n")
    output = mimdsim("validate", str(path), code=3)
    assert "OUT" in output
    assert "not computed:" not in output


@pytest.mark.skipif(not SHARED.exists(), reason="needs the folder of outside references")
def test_gpu_tables_are_read_and_rows_that_cannot_be_computed_say_why() -> None:
    rows = json.loads(mimdsim("validate", "--json", str(SHARED / "gpu_snn_measurements.csv"), code=3))
    assert rows
    assert all(row["predicted"] is not None or row["note"] for row in rows)
    assert sum(row["predicted"] is None for row in rows) == 2  # an LSTM in plain Python
    text = mimdsim("validate", str(SHARED / "gemm_measurements.csv"), code=3)
    assert "IPU(GC200) FP16 4096x1024x1024" in text
    assert "within tolerance" in text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "a,b\n1,2\n", "known tables have at least"),
        ("x.json", "{", "is not JSON"),
        ("x.json", "[1]", "is not a list of mappings"),
        ("x.csv", "codelet,scope,dtype,params,cycles\npopops::Fill,worker,f32,n=16,many\n", "'many' is not a number"),
        ("x.csv", "codelet,scope,dtype,params,cycles\npopops::Fill,worker\n", "line 2 does not have the 5 columns"),
    ],
)
def test_a_bad_reference_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert message in mimdsim("validate", str(path), code=2)


def test_all_tables_end_with_a_summary(tmp_path: Path) -> None:
    head, *rows = (ROOT / "references" / "chips.csv").read_text().splitlines()
    for name, those in (("a.csv", rows[:2]), ("b.csv", rows[2:])):
        (tmp_path / name).write_text("\n".join([head, *those, those[0].replace(",", ",x", 1)]))
    lines = mimdsim("validate", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), code=3).splitlines()
    assert re.match(r"In all \d+ rows: \d+ of \d+ within tolerance, mean error .*, median .*%, worst ", lines[-2])
    assert lines[-1].startswith("Not compared: 1 (machine 'xmk1': 1 problem - no such machine")


def test_an_unknown_codelet_is_named_and_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("codelet,scope,dtype,params,cycles\npopops::Nonsense,worker,f32,n=16,10\n")
    assert "not computed: no formula for this codelet" in mimdsim("validate", str(path))


@pytest.mark.slow
def test_memory_is_checked_in_full_length_and_batch() -> None:
    output = mimdsim("check", "digits", "bow", "--set", "tile.sram_bytes=100 KiB", code=1)
    assert "FAIL  memory: fullest tile" in output
    assert "of 100.0 KiB; over by" in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(subject:\n", "cannot be imported: SyntaxError"),
        ("def build(subject):\n    return 1 / 0\n", "ZeroDivisionError: division by zero"),
        (
            "def build(subject):\n    return subject.program.with_codelet('LifUpdat', None)\n",
            "did you mean 'LifUpdate'?",
        ),
        ("import sys\nsys.exit(0)\n", "cannot be imported: SystemExit"),
    ],
)
def test_a_program_file_that_fails_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert message in mimdsim("check", "digits", "bow", "--program", str(path), code=2)


def test_a_mistake_in_a_program_file_is_told_with_the_line_of_that_file(tmp_path: Path) -> None:
    """Though it is found in a record of ours, that the user's line makes."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "def build(subject):\n"
        "    def halve(step):\n"
        "        tables = [replace(t, tiles=t.tiles / 2) for t in step.tables]\n"
        "        return replace(step, tables=tuple(tables))\n"
        "    return subject.program.map_supersteps(halve)\n"
    )
    output = mimdsim("check", "digits", "bow", "--program", str(path), code=2)
    assert "tiles must be whole numbers in one column, given float64" in output
    assert "(mine.py, line 4: tables = [replace(" in output


def test_a_codelet_that_raises_names_its_vertex(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import dataclasses\n"
        "from mimdsim.codelets.neurons import LIF_UPDATE\n"
        "def broken(*given):\n    raise KeyError('lost')\n"
        "def build(subject):\n"
        "    changed = dataclasses.replace(LIF_UPDATE, form='vertex', compute=broken)\n"
        "    return subject.program.with_codelet('LifUpdate', changed)\n"
    )
    output = mimdsim("check", "digits", "bow", "--program", str(path), code=1)
    assert "vertex 0 of LifUpdate (hidden0) on tile 1 raised KeyError" in output


@pytest.mark.slow
def test_a_program_with_supersteps_of_its_own_is_held_by_what_it_leaves(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    source = (
        "import dataclasses\n"
        "def build(subject):\n"
        "    program = subject.program.map_supersteps(\n"
        "        lambda step: dataclasses.replace(step, name='x ' + step.name, defines=()))\n"
        "    kept = tuple(item for item in program.body if getattr(item, 'name', '') != LEFT_OUT)\n"
        "    return dataclasses.replace(program, body=kept)\n"
    )
    path.write_text(source.replace("LEFT_OUT", "'none'"))
    assert "FAIL" not in mimdsim("check", "digits", "bow", "--program", str(path))
    path.write_text(source.replace("LEFT_OUT", "'x update weights'"))
    output = mimdsim("check", "digits", "bow", "--program", str(path), code=1)
    assert "leaves output 'next.w.hidden0' wrong" in output


@pytest.mark.slow
def test_a_cheaper_codelet_is_timed_beside_the_compiled_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import dataclasses\n"
        "from mimdsim.codelets.spikes import FLAG_SPIKES\n"
        "def build(subject):\n"
        "    cost = dataclasses.replace(FLAG_SPIKES.cost, fixed=FLAG_SPIKES.cost.fixed - 6)\n"
        "    changed = dataclasses.replace(FLAG_SPIKES, cost=cost)\n"
        "    return subject.program.with_codelet('FlagSpikes', changed)\n"
    )
    output = mimdsim("check", "digits", "bow", "--program", str(path))
    assert " ms) a training step of 6 timesteps and batch 8, the compiled program takes" in output
    saved = re.search(r"\((-[\d.]+)%, interval (-[\d.]+)% to (-[\d.]+)%\)", output.splitlines()[-1])
    assert saved
    change, low, high = map(float, saved.groups())
    assert low < change < high


def test_a_formula_without_a_result_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    lines = (ROOT / "references" / "vendor_cycle_estimates.csv").read_text().splitlines()[:2]
    path.write_text("\n".join(lines).replace("convUnits=16", "convUnits=0") + "\n")
    (row,) = check_files((path,), None, lambda *_: None)
    assert row.predicted is None
    assert "the formula has no result for params" in row.note


def test_layers_whose_potentials_never_or_always_cross_the_threshold_are_noted() -> None:
    network = small_network((6, 5, 4, 3), timesteps=2, batch=3)
    spikes = Counter({"spikes.hidden0": 30, "spikes.hidden1": 1, "spikes.output": 0})
    (found,) = _crossings(network, spikes, 1)
    assert (found.passed, found.mood) == (True, "note")
    assert (
        "30 of 30 potentials of 'hidden0' crossed its threshold, 0 of 18 potentials of 'output' crossed" in found.text
    )
    assert _crossings(network, spikes + Counter({"spikes.hidden0": 29, "spikes.output": 1}), 2) == []


def test_a_loaded_workload_is_checked_as_its_name_is() -> None:
    changes = {"network.hidden": (12,), "network.capacity": (6, 4)}
    by_name = api.check("digits", "tiny", changes=changes)
    assert str(api.check(load_workload("digits", changes), "tiny")) == str(by_name)
    with pytest.raises(MimdsimError, match="the workload is already loaded"):
        api.check(load_workload("digits"), "tiny", changes=changes)
